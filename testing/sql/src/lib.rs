//! The statements of `docs/fencing.md` on the databases that they are for.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod postgres_server;
mod postgres_store;
mod sqlite_store;
mod statements;

pub use postgres_server::PostgresServer;
pub use postgres_store::PostgresStore;
pub use sqlite_store::SqliteStore;
pub use statements::Statements;

use std::sync::atomic::{AtomicI64, Ordering};

use rwlease::FencingToken;

/// Writes one row with one token, and numbers its writes.
#[derive(Debug)]
pub struct RowWriter {
    name: String,
    token: i64,
    sequence: AtomicI64,
}

impl RowWriter {
    pub fn new(name: &str, token: FencingToken) -> RowWriter {
        let token = i64::try_from(token.get()).expect("at most 2^53");
        RowWriter { name: name.into(), token, sequence: AtomicI64::new(0) }
    }

    fn next_sequence(&self) -> i64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }
}
