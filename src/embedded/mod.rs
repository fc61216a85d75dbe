//! A stand-in for a cluster, in this process: the same Lua scripts over an in-memory store.
//!
//! It answers as Redis 7.0 does, as far as locks need it. It differs from a real server as follows:
//!
//! - Scripts have the libraries `string`, `table`, `math` and `coroutine`, but not `bit`, `cjson`,
//!   `cmsgpack` and `struct`. The table `redis` lacks the functions for debugging, replication,
//!   permissions and RESP3.
//! - The fields of a hash are in the order of their names.
//! - Time stands still while a script runs, as it does from Redis 7.2 on.
//! - `INFO` has only the section `server`. `WAIT` answers at once and does not wait. There
//!   are no disks and no `WAITAOF`. Only shard channels can be subscribed to.
//! - A script that does not end is not stopped.
//! - While a master is stopped, the slots of the others are served, as with
//!   `cluster-require-full-coverage no`. For the default of real servers, use
//!   [`require_full_coverage`](EmbeddedClusterBuilder::require_full_coverage).

mod cluster;
mod cluster_state;
mod command_spec;
mod commands;
mod connection;
mod failover;
mod faults;
mod glob;
mod hashing;
mod keyspace;
mod lua_call;
mod lua_host;
mod number;
mod observer;
mod random;
mod replication;
mod reply;
mod routing;
mod script_reply;
#[cfg(feature = "__testing")]
#[allow(missing_docs, missing_debug_implementations)]
mod script_step;
mod server;
mod session;
mod simulated_network;
mod slot_migration;
mod slots;
mod subscribers;
#[cfg(test)]
mod tests;
mod undo_log;

pub use cluster::{EmbeddedCluster, EmbeddedClusterBuilder};
pub use cluster_state::ScriptStats;
pub use faults::FaultInjector;
pub use observer::{CommandObserver, ServedCommand};
#[cfg(feature = "__testing")]
pub use script_step::{LockHash, ScriptInput, ScriptOutput, ScriptStep};
pub use session::WaitSemantics;
pub use simulated_network::{
    Delivery, MessageKind, NetworkMessage, NetworkModel, SimulatedHost, SimulatedNetwork,
};
