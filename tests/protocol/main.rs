//! The scripts on a real server: the answer of each, and what it leaves in the hash.

// Helpers fail as tests do. The ban on direct clocks is for the library.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub
)]

mod fixture;
mod request;

mod accept_transfer;
mod arguments;
mod cached;
mod client_record;
mod cluster;
mod cost;
mod crowds;
mod fast_paths;
mod fenced;
mod force_release_push;
mod foreign_keys;
mod full_memory;
mod healing;
mod holding;
mod lease_changes;
mod mutex;
mod push;
mod queueing;
mod release_until;
mod rights;
mod semaphore;
mod state_line_shapes;
