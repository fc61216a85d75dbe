//! Resolves host names.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rwlease_core::resp::Address;

/// Looks up the addresses of host names.
#[derive(Clone)]
pub(crate) struct Resolver {
    /// Blocks until the system's resolver answers.
    look_up: Arc<LookUp>,
}

type LookUp = dyn Fn(&Address) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver::new(|address| Ok((&*address.host, address.port).to_socket_addrs()?.collect()))
    }
}

debug_fields!(|_: Resolver| Resolver { .. });

impl Resolver {
    pub(crate) fn new(
        look_up: impl Fn(&Address) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver { look_up: Arc::new(look_up) }
    }

    /// The addresses of a host, in the order of the system's resolver.
    pub(super) async fn addresses(&self, address: &Address) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, address.port)]);
        }
        let (look_up, address) = (self.look_up.clone(), address.clone());
        tokio::task::spawn_blocking(move || look_up(&address)).await?
    }

    /// The addresses of a host, in no particular order; none if it cannot be resolved.
    pub(super) async fn places(&self, address: &Address) -> Vec<Arc<str>> {
        let found = self.addresses(address).await;
        let mut places: Vec<Arc<str>> =
            found.into_iter().flatten().map(|place| place.ip().to_string().into()).collect();
        places.sort();
        places.dedup();
        places
    }
}
