//! The code that benches on clusters share.

// Every user compiles this as its own module and needs only a part of it.
#![allow(dead_code, unused_imports)]

mod baseline;
mod baseline_connection;
mod goal;
mod table;
mod target;

pub use baseline::{BaselineClient, ScriptPair, ScriptsOnly, SetNx};
pub use goal::{Goals, exit_code};
pub use table::Table;
pub use target::BenchCluster;
