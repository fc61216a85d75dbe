//! Rows of PostgreSQL.

use rwlease::{FencingToken, Lease};
use testkit::{FencedStore, Result};
use tokio_postgres::Client;

use crate::{PostgresServer, RowWriter, Statements};

/// Each call goes to the next connection, so that writers run at the same time.
pub struct PostgresStore {
    connections: Vec<Client>,
    statements: Statements,
}

impl PostgresStore {
    pub async fn new(server: &PostgresServer, statements: Statements) -> Result<PostgresStore> {
        let mut connections = Vec::new();
        for _ in 0..8 {
            connections.push(server.connect().await?);
        }
        connections[0].batch_execute("DROP TABLE IF EXISTS fenced").await?;
        connections[0].batch_execute(&statements.create_table).await?;
        Ok(PostgresStore { connections, statements })
    }

    fn connection(&self, writer: &RowWriter) -> &Client {
        &self.connections[writer.token.unsigned_abs() as usize % self.connections.len()]
    }

    /// Writes with this number. `None` deletes.
    pub async fn write(
        &self,
        writer: &RowWriter,
        number: i64,
        value: Option<&str>,
    ) -> Result<bool> {
        let RowWriter { name, token, .. } = writer;
        let connection = self.connection(writer);
        let changed =
            connection.execute(&self.statements.set, &[name, token, &number, &value]).await?;
        Ok(changed == 1)
    }
}

impl FencedStore for PostgresStore {
    type Writer = RowWriter;

    fn writer(&self, name: &str, _: &Lease, token: FencingToken) -> Result<RowWriter> {
        Ok(RowWriter::new(name, token))
    }

    async fn enter(&self, writer: &RowWriter) -> Result<Option<Option<String>>> {
        let RowWriter { name, token, .. } = writer;
        let number = writer.next_sequence();
        let connection = self.connection(writer);
        let row = connection.query_opt(&self.statements.enter, &[name, token, &number]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn set(&self, writer: &RowWriter, value: &str) -> Result<bool> {
        self.write(writer, writer.next_sequence(), Some(value)).await
    }

    async fn delete(&self, writer: &RowWriter) -> Result<bool> {
        self.write(writer, writer.next_sequence(), None).await
    }

    async fn get(&self, name: &str) -> Result<Option<String>> {
        let query = "SELECT value FROM fenced WHERE name = $1";
        let row = self.connections[0].query_opt(query, &[&name]).await?;
        Ok(row.and_then(|row| row.get(0)))
    }
}
