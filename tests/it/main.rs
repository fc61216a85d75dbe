//! What locks promise, on real servers and on embedded ones: one program, with a module for each
//! subject.
//!
//! `cargo test --test it -- holding::` runs one of them. Slow tests are in `tests/faults`.

// The bans on direct clocks, unwrapping and printing are for the library.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "embedded")]
mod busy;
#[cfg(feature = "embedded")]
mod cached;
#[cfg(feature = "native")]
mod client_records;
#[cfg(feature = "native")]
mod connecting;
#[cfg(feature = "embedded")]
mod election;
#[cfg(feature = "native")]
mod errors;
mod events;
#[cfg(feature = "embedded")]
mod failing;
#[cfg(feature = "embedded")]
mod fenced_value;
mod fixture;
#[cfg(feature = "embedded")]
mod healing;
mod holding;
#[cfg(feature = "embedded")]
mod lease_races;
#[cfg(feature = "embedded")]
mod limits;
mod multi_lock;
mod mutex;
mod published_lock_faults;
#[cfg(feature = "embedded")]
mod push_grants;
mod redlock;
mod reentrant;
mod replicas;
#[cfg(all(feature = "embedded", feature = "native"))]
mod reports;
#[cfg(feature = "embedded")]
mod runtimes;
#[cfg(feature = "embedded")]
mod semaphore;
mod set_nx_mutex;
#[cfg(feature = "embedded")]
mod shutdown_and_drop;
mod status;
mod stray_replies;
#[cfg(feature = "embedded")]
mod transfer;
#[cfg(feature = "legacy")]
mod two_key;
mod waiting;
