//! The conformance suite over each backend: `cargo test --test conformance -- embedded::` for one
//! of them.

// The bans on direct clocks and on unwrapping are for the library.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use rwlease::{Client, ClientBuilder, ErrorKind};

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

/// Connects with each of these settings. Each must be refused by its name.
#[allow(dead_code)] // not every backend has such settings
async fn must_refuse(
    settings: impl IntoIterator<Item = (&'static str, ClientBuilder)>,
    connect: impl AsyncFn(ClientBuilder) -> rwlease::Result<Client>,
) {
    for (setting, settings) in settings {
        let error = connect(settings).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{setting}");
        assert!(error.to_string().contains(setting), "{setting}: {error}");
    }
}
