//! Rows of SQLite.

use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension, params};
use rwlease::{FencingToken, Lease};
use testkit::{FencedStore, Result, TempFolder};

use crate::{RowWriter, Statements};

/// Two connections to one file.
#[derive(Debug)]
pub struct SqliteStore {
    connections: [Mutex<Connection>; 2],
    statements: Statements,
    _folder: TempFolder,
}

impl SqliteStore {
    pub fn new(statements: Statements) -> Result<SqliteStore> {
        let folder = TempFolder::new("sqlite")?;
        let connect = || -> rusqlite::Result<_> {
            let connection = Connection::open(folder.join("fenced"))?;
            connection.pragma_update(None, "synchronous", "off")?;
            Ok(Mutex::new(connection))
        };
        let connections = [connect()?, connect()?];
        connections[0].lock().unwrap().execute_batch(&statements.create_table)?;
        Ok(SqliteStore { connections, statements, _folder: folder })
    }

    fn connection(&self, writer: &RowWriter) -> &Mutex<Connection> {
        &self.connections[writer.token.unsigned_abs() as usize % self.connections.len()]
    }

    /// Writes with this number. `None` deletes.
    pub fn write(&self, writer: &RowWriter, number: i64, value: Option<&str>) -> Result<bool> {
        let connection = self.connection(writer).lock().unwrap();
        let mut statement = connection.prepare_cached(&self.statements.set)?;
        Ok(statement.execute(params![writer.name, writer.token, number, value])? == 1)
    }
}

impl FencedStore for SqliteStore {
    type Writer = RowWriter;

    fn writer(&self, name: &str, _: &Lease, token: FencingToken) -> Result<RowWriter> {
        Ok(RowWriter::new(name, token))
    }

    async fn enter(&self, writer: &RowWriter) -> Result<Option<Option<String>>> {
        let connection = self.connection(writer).lock().unwrap();
        let mut statement = connection.prepare_cached(&self.statements.enter)?;
        let values = params![writer.name, writer.token, writer.next_sequence()];
        Ok(statement.query_row(values, |row| row.get(0)).optional()?)
    }

    async fn set(&self, writer: &RowWriter, value: &str) -> Result<bool> {
        self.write(writer, writer.next_sequence(), Some(value))
    }

    async fn delete(&self, writer: &RowWriter) -> Result<bool> {
        self.write(writer, writer.next_sequence(), None)
    }

    async fn get(&self, name: &str) -> Result<Option<String>> {
        let connection = self.connections[0].lock().unwrap();
        let query = "SELECT value FROM fenced WHERE name = $1";
        let mut statement = connection.prepare_cached(query)?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?.flatten())
    }
}
