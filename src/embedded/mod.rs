//! A stand-in for a cluster, in this process: the same Lua scripts over an in-memory store.
//!
//! It answers as Redis 7.0 does, as far as locks need it. It differs from a real server as follows:
//!
//! - Scripts have the libraries `string`, `table`, `math` and `coroutine`, but not `bit`, `cjson`,
//!   `cmsgpack` and `struct`. The table `redis` lacks the functions for debugging, replication,
//!   permissions and RESP3.
//! - The fields of a hash are in the order of their names.
//! - Time stands still while a script runs, as it does from Redis 7.2 on.
//! - `INFO` has only the section `server`. `WAIT` answers at once and does not wait. Only shard
//!   channels can be subscribed to.
//! - A script that does not end is not stopped.

mod answer;
mod call;
mod cluster;
mod command;
mod commands;
mod connection;
mod engine;
mod failover;
mod faults;
mod glob;
mod hashing;
mod log;
mod moves;
mod network;
mod number;
#[cfg(test)]
mod pure_step;
mod random;
mod replication;
mod script_host;
mod script_reply;
mod server;
mod session;
mod slots;
mod store;
mod subscribers;
#[cfg(test)]
mod tests;
mod watch;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use engine::{EmbeddedCluster, EmbeddedClusterBuilder};
pub use faults::FaultInjector;
pub use network::{
    Delivery, MessageKind, NetworkMessage, NetworkModel, SimulatedHost, SimulatedNetwork,
};
#[cfg(test)]
pub(crate) use pure_step::{LockHash, ScriptInput, ScriptOutput, ScriptStep};
pub use session::WaitSemantics;
pub use watch::{CommandObserver, ServedCommand};
pub use world::ScriptStats;

/// Locks the mutex, also after a panic elsewhere: each change is complete before its lock is
/// released.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
