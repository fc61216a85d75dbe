//! Slow tests: masters that die, slots that move, clients that are killed, TLS. One program, with a
//! module for each subject.
//!
//! `cargo test --test faults -- redirects::` runs one of them. `tests/it` tests the other promises
//! of locks.

// The bans on direct clocks, unwrapping and printing are for the library.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod cluster;
mod failover;
mod fencing;
mod known_faults;
mod migration;
#[cfg(feature = "native")]
mod overload;
mod redirects;
mod self_test;
#[cfg(any(feature = "native", feature = "redis"))]
mod sentinels;
mod staying;
// By URLs, TLS needs a feature. With `fred`, the application brings its own TLS, here by the
// feature `fred-tls`.
#[cfg(any(all(feature = "tls", any(feature = "native", feature = "redis")), feature = "fred-tls"))]
mod fleet;
#[cfg(any(all(feature = "tls", any(feature = "native", feature = "redis")), feature = "fred-tls"))]
mod secure;
