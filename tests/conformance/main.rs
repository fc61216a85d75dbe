//! The conformance suite over each backend: `cargo test --test conformance -- embedded::` for one
//! of them.

// The bans on direct clocks and on unwrapping are for the library.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
#[path = "mod.rs"]
mod conformance;
#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "cluster-async")]
mod cluster_async;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "fred")]
mod fred;
#[cfg(feature = "native")]
mod native;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "native", feature = "redis"))]
mod sentinel;
