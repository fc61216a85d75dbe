//! What a server remembers about a connection from one command to the next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The writes that a replica must have to count for `WAIT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitSemantics {
    /// All that the master had written when the connection's last command ended, as up to Redis
    /// 7.0.
    #[default]
    AllWrites,
    /// All that the master had written when the connection's last command that wrote something
    /// ended, as from Redis 7.2 on and in Valkey. So on a connection that has written nothing,
    /// `WAIT` counts every connected replica.
    OwnWrites,
}

/// A connection, as the server sees it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The last command was `ASKING`.
    asking: AtomicBool,
    /// The replication offset to which `WAIT` compares.
    wait_offset: AtomicU64,
}

impl Session {
    /// Whether the last command was `ASKING`. Resets it.
    pub(crate) fn take_asking(&self) -> bool {
        self.asking.swap(false, Relaxed)
    }

    pub(crate) fn set_asking(&self) {
        self.asking.store(true, Relaxed);
    }

    pub(crate) fn wait_offset(&self) -> u64 {
        self.wait_offset.load(Relaxed)
    }

    /// Notes that a command has ended, with the replication offset before it and now.
    pub(crate) fn end_command(&self, covers: WaitSemantics, before: u64, now: u64) {
        if covers == WaitSemantics::AllWrites || now != before {
            self.wait_offset.store(now, Relaxed);
        }
    }
}
