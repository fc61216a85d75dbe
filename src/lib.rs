//! Distributed read/write locks for Redis Cluster.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquisition;
mod asking;
mod client;
mod clock;
mod core;
mod error;
mod guard;
mod locks;
mod node;
mod protocol;
mod router;
mod rwlock;
mod settings;
mod worker;

pub use asking::Renewal;
pub use error::{Error, ErrorKind, Result};
pub use guard::{Guard, Lease, LeaseState, ReadGuard, Released, WriteGuard};
pub use locks::{Builder, Locks};
pub use node::{Credentials, CredentialsFuture, CredentialsProvider};
pub use protocol::{Fairness, Mode, scripts};
pub use router::{CrossSlot, Script, Slot, assert_same_slot};
pub use rwlock::{Acquire, RwLock, TryAcquire};

/// Servers in this process, for demos and for tests.
#[cfg(feature = "embedded")]
pub mod embedded {
    pub use crate::node::embedded::{Builder, Engine, Faults, Fate, Host, Kind, Message, Network, Served, Tally, Watcher, Weather};
}
