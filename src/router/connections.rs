//! One connection to each server: made when it is needed, shared, replaced when it is broken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::oneshot;

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector, NodeError};
use crate::router::connection::Connection;
use crate::router::{jittered, lock, read, write};

/// How long a server is left alone after the first failed dial; twice as long after each further one.
const FIRST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The connections that carry commands.
#[derive(Debug)]
pub(crate) struct Connections {
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    connect_timeout: Duration,
    live: RwLock<HashMap<Address, Arc<Connection>>>,
    dials: Mutex<HashMap<Address, Dial>>,
    closed: AtomicBool,
}

/// What is going on with a server that there is no usable connection to.
#[derive(Debug, Default)]
struct Dial {
    under_way: Option<Shared<BoxFuture<'static, Dialled>>>,
    failures: u32,
    rest_until: Moment,
    failure: Option<Arc<NodeError>>,
}

type Dialled = Result<Arc<Connection>, Arc<NodeError>>;

impl Connections {
    pub(crate) fn new(connector: Arc<dyn Connector>, clock: Arc<dyn Clock>, connect_timeout: Duration) -> Arc<Self> {
        Arc::new(Connections {
            connector,
            clock,
            connect_timeout,
            live: RwLock::default(),
            dials: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// For a connection to be opened.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The connection to this server, if there is one that can be used at once.
    pub(crate) fn ready(&self, address: &Address) -> Option<Arc<Connection>> {
        read(&self.live)
            .get(address)
            .filter(|connection| connection.is_usable())
            .cloned()
    }

    /// The connection to this server. It is dialled by one task, whoever waits for it; just after a failed dial the
    /// answer is that failure.
    pub(crate) async fn connect(self: &Arc<Self>, address: &Address) -> Result<Arc<Connection>, NodeError> {
        if let Some(connection) = self.ready(address) {
            return Ok(connection);
        }
        let dialled = match self.dial(address) {
            Ok(under_way) => under_way.await,
            Err(ready) => ready,
        };
        dialled.map_err(Arc::unwrap_or_clone)
    }

    /// Closes the connections to servers that the caller does not want to keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        write(&self.live).retain(|address, _| keep(address));
        lock(&self.dials).retain(|address, dial| dial.under_way.is_some() || keep(address));
    }

    /// Drops all connections and makes no more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        write(&self.live).clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The dial under way, which is begun if need be; or what is there already.
    fn dial(self: &Arc<Self>, address: &Address) -> Result<Shared<BoxFuture<'static, Dialled>>, Dialled> {
        let mut dials = lock(&self.dials);
        // A dial may have ended since the caller looked.
        if let Some(connection) = self.ready(address) {
            return Err(Ok(connection));
        }
        let dial = dials.entry(address.clone()).or_default();
        if let Some(under_way) = dial.under_way.as_ref().filter(|under_way| under_way.peek().is_none()) {
            return Ok(under_way.clone());
        }
        if let Some(failure) = dial.failure.as_ref().filter(|_| self.clock.now() < dial.rest_until) {
            return Err(Err(failure.clone()));
        }
        let under_way = self.spawn_dial(address.clone());
        dial.under_way = Some(under_way.clone());
        Ok(under_way)
    }

    /// Dials in a task of its own, so that a caller that gives up does not stop it for the others.
    fn spawn_dial(self: &Arc<Self>, address: Address) -> Shared<BoxFuture<'static, Dialled>> {
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let opened = Connection::open(&*this.connector, &*this.clock, &address, this.connect_timeout).await;
            let _ = tell.send(this.settle(&address, opened));
        });
        told.map(|told| told.unwrap_or_else(|_| Err(Arc::new(NodeError::unsent("the dial was given up")))))
            .boxed()
            .shared()
    }

    /// Notes how a dial ended.
    fn settle(&self, address: &Address, opened: Result<Connection, NodeError>) -> Dialled {
        let mut dials = lock(&self.dials);
        match opened {
            Ok(_) if self.is_closed() => Err(Arc::new(NodeError::unsent("the client is shut down"))),
            Ok(connection) => {
                let connection = Arc::new(connection);
                write(&self.live).insert(address.clone(), connection.clone());
                dials.remove(address);
                Ok(connection)
            }
            Err(failure) => {
                crate::observe::connect_failed(address, &failure);
                let failure = Arc::new(failure);
                let dial = dials.entry(address.clone()).or_default();
                let rest = (FIRST_REST * 2u32.saturating_pow(dial.failures)).min(LONGEST_REST);
                dial.under_way = None;
                dial.failures = (dial.failures + 1).min(16);
                dial.rest_until = self.clock.now().after(jittered(rest));
                dial.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }
}
