//! The read/write lock in one hash: a `read` and a `write` timestamp, both by the clock of the last
//! caller.

use redis::aio::MultiplexedConnection;

use super::super::Result;
use super::eval;

/// The settings of one client, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub key: u64,
    pub read: u64,
    pub write: u64,
}

/// The usual settings.
impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { key: 10_000, read: 1_000, write: 3_000 }
    }
}

/// One client of one lock. `now` is the reading of its own clock in milliseconds, and is its
/// identity as well.
#[derive(Clone, Debug)]
pub struct SingleHash {
    connection: MultiplexedConnection,
    key: String,
    timeouts: Timeouts,
}

impl SingleHash {
    pub fn new(
        connection: MultiplexedConnection,
        key: impl Into<String>,
        timeouts: Timeouts,
    ) -> Self {
        SingleHash { connection, key: key.into(), timeouts }
    }

    pub async fn acquire_read(&self, now: u64) -> Result<bool> {
        self.acquire(include_str!("single_hash/acquire_read.lua"), now).await
    }

    pub async fn acquire_write(&self, now: u64) -> Result<bool> {
        self.acquire(include_str!("single_hash/acquire_write.lua"), now).await
    }

    pub async fn release_read(&self, acquired: u64) -> Result {
        self.release(include_str!("single_hash/release_read.lua"), acquired).await
    }

    pub async fn release_write(&self, acquired: u64) -> Result {
        self.release(include_str!("single_hash/release_write.lua"), acquired).await
    }

    async fn acquire(&self, script: &str, now: u64) -> Result<bool> {
        let Timeouts { key, read, write } = self.timeouts;
        eval(&self.connection, script, &[&self.key], &[key, read, write, now]).await
    }

    async fn release(&self, script: &str, acquired: u64) -> Result {
        eval(&self.connection, script, &[&self.key], acquired).await
    }
}
