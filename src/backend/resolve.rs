//! Resolves host names.

use std::sync::Arc;

use rwlease_core::resp::Address;

/// The addresses of a host, in no particular order; none if it cannot be resolved.
pub(crate) async fn resolve_host(address: &Address) -> Vec<Arc<str>> {
    let found = tokio::net::lookup_host((&*address.host, address.port)).await;
    let mut places: Vec<Arc<str>> =
        found.into_iter().flatten().map(|place| place.ip().to_string().into()).collect();
    places.sort();
    places.dedup();
    places
}
