//! Locks under load while servers and clients fail: workers in separate processes, nemeses, and a
//! checker that judges the workers' logs.

// Each program that includes this module uses a part of it. The ban on direct clocks is for the
// library.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods
)]

pub mod checker;
pub mod history;
pub mod ledger;
pub mod nemesis;
pub mod permits;
pub mod process;
pub mod rows;
pub mod run;
pub mod sampler;
pub mod scene;
pub mod scorecard;
pub mod store;
pub mod verdict;
pub mod worker;
