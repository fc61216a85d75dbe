//! The scripts on a real server: the answer of each, and what it leaves in the hash.

// Helpers fail as tests do. The ban on direct clocks is for the library.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub
)]

#[path = "../support/mod.rs"]
mod support;

mod lab;
mod request;
mod state;

mod arguments;
mod cached;
mod changing;
mod cluster;
mod cost;
mod crowds;
mod ending;
mod full_memory;
mod handoff;
mod healing;
mod holding;
mod mutex;
mod pushing;
mod queueing;
mod random;
mod rights;
mod semaphore;
mod shapes;
mod strange;
mod taking_up;
