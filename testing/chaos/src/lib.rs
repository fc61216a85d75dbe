//! Locks under load while servers and clients fail: workers in separate processes, nemeses, and a
//! checker that judges the workers' logs.

// The bans are for the library.
#![allow(clippy::print_stdout, clippy::panic, clippy::disallowed_methods)]

pub mod checker;
pub mod history;
pub mod ledger;
pub mod nemesis;
pub mod process;
pub mod run;
pub mod scenario;
pub mod scorecard;
pub mod scorecard_rows;
pub mod staying;
pub mod store;
pub mod verdict;
pub mod worker;
