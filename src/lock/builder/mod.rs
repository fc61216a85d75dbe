//! The settings of a client, and the ways to connect. Only this module knows every layer.

// The page of `ClientBuilder` lists the methods in the order of these modules: the settings first,
// and the usual way to connect before the others.
mod client_builder;

#[cfg(any(feature = "native", feature = "redis"))]
mod urls;

#[cfg(feature = "cluster-async")]
mod cluster_connection;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "fred")]
mod fred;
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) mod sentinel;

pub use client_builder::ClientBuilder;
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use client_builder::refuse;
