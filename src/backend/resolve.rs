use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tokio::sync::oneshot;

use crate::backend::ConnectionError;
use crate::clock::{Clock, SystemClock};
use crate::locks::lock;
use crate::on_drop::OnDrop;

/// Looks up the addresses of host names. Clones share the lookups under way.
#[derive(Clone)]
pub(crate) struct Resolver {
    /// Blocks until the system's resolver answers.
    look_up: Arc<LookUp>,
    under_way: Arc<Mutex<HashMap<Arc<str>, Lookup>>>,
    /// After this time a lookup counts as stuck: the next dial begins another one.
    max_lookup_time: Duration,
}

type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

type LookupResult = Result<Vec<SocketAddr>, ConnectionError>;

struct Lookup {
    began: LocalInstant,
    result: Shared<BoxFuture<'static, LookupResult>>,
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl Resolver {
    pub(crate) fn new(
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver {
            look_up: Arc::new(look_up),
            under_way: Arc::default(),
            max_lookup_time: Duration::from_secs(60),
        }
    }

    /// The addresses of a host, in the order of the system's resolver.
    pub(super) async fn addresses(&self, address: &Address) -> LookupResult {
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, address.port)]);
        }
        let mut found = self.start_or_join(&address.host).await?;
        found.iter_mut().for_each(|place| place.set_port(address.port));
        Ok(found)
    }

    /// The lookup of the host that is under way, or a new one. A lookup holds a thread until it
    /// ends, even if all dials have given up. With one for each dial, a resolver that hangs would
    /// take all threads on which the application's own blocking calls run. One that never answers
    /// takes a thread a minute.
    fn start_or_join(&self, host: &Arc<str>) -> Shared<BoxFuture<'static, LookupResult>> {
        let (tell, told) = oneshot::channel();
        let cancelled = || ConnectionError::not_sent("the lookup of the host name was cancelled");
        let result =
            told.map(move |told| told.unwrap_or_else(|_| Err(cancelled()))).boxed().shared();
        let began = SystemClock.now();
        {
            let mut under_way = lock(&self.under_way);
            if let Some(running) = under_way.get(host)
                && began < running.began.saturating_add(self.max_lookup_time)
            {
                return running.result.clone();
            }
            under_way.insert(host.clone(), Lookup { began, result: result.clone() });
        }
        let (under_way, name) = (self.under_way.clone(), host.clone());
        // Later dials begin a new lookup.
        let end = OnDrop::new(move || {
            let mut under_way = lock(&under_way);
            if under_way.get(&name).is_some_and(|lookup| lookup.began == began) {
                under_way.remove(&name);
            }
        });
        let (look_up, host) = (self.look_up.clone(), host.clone());
        // A runtime that has ended drops this at once, so nothing is locked.
        tokio::task::spawn_blocking(move || {
            let found = look_up(&host).map_err(unresolved);
            drop(end);
            let _ = tell.send(found);
        });
        result
    }

    /// The addresses of a host, in the order of the resolver; none if it cannot be resolved.
    pub(super) async fn places(&self, address: &Address) -> Vec<Arc<str>> {
        let found = self.addresses(address).await;
        let mut places: Vec<Arc<str>> = Vec::new();
        for place in found.into_iter().flatten() {
            let place: Arc<str> = place.ip().to_string().into();
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

fn unresolved(error: io::Error) -> ConnectionError {
    ConnectionError::not_sent("the host name does not resolve").with_source(error)
}

#[cfg(test)]
mod tests;
