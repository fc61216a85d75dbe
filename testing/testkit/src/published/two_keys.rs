//! The read/write lock in two keys, one for all readers and one for the writer. Neither key names
//! its holders.

use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::super::Result;
use super::eval;

/// One client of one lock.
#[derive(Clone, Debug)]
pub struct TwoKeys {
    connection: MultiplexedConnection,
    read_key: String,
    write_key: String,
    /// In seconds.
    timeout: u64,
}

impl TwoKeys {
    pub fn new(
        connection: MultiplexedConnection,
        read_key: impl Into<String>,
        write_key: impl Into<String>,
        timeout: u64,
    ) -> Self {
        TwoKeys { connection, read_key: read_key.into(), write_key: write_key.into(), timeout }
    }

    pub async fn acquire_read(&self) -> Result<bool> {
        self.acquire(include_str!("two_keys/acquire_read.lua")).await
    }

    pub async fn acquire_write(&self) -> Result<bool> {
        self.acquire(include_str!("two_keys/acquire_write.lua")).await
    }

    pub async fn release_read(&self) -> Result {
        self.delete(&self.read_key).await
    }

    pub async fn release_write(&self) -> Result {
        self.delete(&self.write_key).await
    }

    async fn acquire(&self, script: &str) -> Result<bool> {
        eval(&self.connection, script, &[&self.read_key, &self.write_key], self.timeout).await
    }

    async fn delete(&self, key: &str) -> Result {
        Ok(cmd("DEL").arg(key).query_async(&mut self.connection.clone()).await?)
    }
}
