//! The servers in the process of `rwlease`: the same Lua scripts over an in-memory store. The crate
//! `rwlease` connects to them, and its module `embedded` says how they differ from real ones.
//!
//! `link` is the way to the servers: what a backend of `rwlease` needs of a connection.

#![warn(missing_docs, missing_debug_implementations)]
// The library does not panic or print, and it reads the time by its clock alone.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::dbg_macro,
    clippy::todo,
    clippy::disallowed_methods
)]

mod cluster;
mod cluster_state;
mod command_spec;
mod commands;
mod failover;
mod faults;
mod glob;
mod keyspace;
#[doc(hidden)]
pub mod link;
mod locks;
mod lua_call;
mod lua_host;
#[doc(hidden)]
pub mod manual_clock;
mod number;
mod observer;
mod random;
mod replication;
mod reply;
mod routing;
mod script_reply;
#[doc(hidden)]
pub mod script_step;
mod server;
mod session;
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
pub use session::WaitSemantics;
