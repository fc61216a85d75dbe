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

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "embedded")]
mod busy;
#[cfg(feature = "embedded")]
mod cached;
#[cfg(feature = "embedded")]
mod crowds;
#[cfg(feature = "native")]
mod errors;
mod events;
#[cfg(feature = "embedded")]
mod extremes;
#[cfg(feature = "embedded")]
mod failing;
mod five_faults;
#[cfg(feature = "embedded")]
mod handing_on;
#[cfg(feature = "embedded")]
mod healing;
mod holding;
mod leading;
#[cfg(feature = "embedded")]
mod leftovers;
#[cfg(feature = "embedded")]
mod meanwhile;
mod multi;
mod mutex;
#[cfg(feature = "embedded")]
mod pushed;
mod queries;
mod quorum;
mod reentry;
mod replicas;
#[cfg(feature = "embedded")]
mod runtimes;
mod rwlock;
mod semaphore;
mod slots;
mod stray_replies;
#[cfg(feature = "legacy")]
mod two_key;
mod waiting;
