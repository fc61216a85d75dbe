//! One shared connection to each server, opened on first use and replaced when it breaks.

use std::collections::HashMap;
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector, NodeError};
use crate::router::connection::{Connection, Limits};
use crate::router::membership::Membership;
use crate::router::runtime::Runtime;
use crate::router::telemetry::{self, Carries};
use crate::router::{DIALS, first_redial, lock, read, write};

/// The connections that carry commands.
#[derive(Debug)]
pub(crate) struct Connections {
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    membership: Arc<Membership>,
    limits: Limits,
    runtime: Runtime,
    live: RwLock<FxHashMap<Address, Arc<Connection>>>,
    dials: Mutex<HashMap<Address, Dial>>,
    closed: AtomicBool,
    /// Wakes the dials when `Connections` is closed.
    closing: Notify,
}

/// The state of a server without a usable connection.
#[derive(Debug, Default)]
struct Dial {
    under_way: Option<Shared<BoxFuture<'static, Dialled>>>,
    /// Failed dials in a row.
    failures: u32,
    rest_until: Moment,
    failure: Option<Arc<NodeError>>,
    /// Whether the connection of the last dial has answered. Until then it counts as failed.
    proof: Option<Arc<AtomicBool>>,
}

type Dialled = Result<Arc<Connection>, Arc<NodeError>>;

impl Connections {
    pub(crate) fn new(
        runtime: Runtime,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        membership: Arc<Membership>,
        limits: Limits,
    ) -> Arc<Self> {
        Arc::new(Connections {
            connector,
            clock,
            membership,
            limits,
            runtime,
            live: RwLock::default(),
            dials: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    /// The connection to this server, if there is a usable one now.
    pub(crate) fn ready(&self, address: &Address) -> Option<Arc<Connection>> {
        read(&self.live).get(address).filter(|connection| connection.is_usable()).cloned()
    }

    /// The connection to this server. One task dials for all callers. Shortly after a failed dial,
    /// returns that failure.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        address: &Address,
    ) -> Result<Arc<Connection>, NodeError> {
        self.dialled(address, false).await
    }

    /// As `connect`, but shortly after a failed dial this waits for the next one.
    pub(crate) async fn reach(
        self: &Arc<Self>,
        address: &Address,
    ) -> Result<Arc<Connection>, NodeError> {
        self.dialled(address, true).await
    }

    /// Closes the connections to servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        write(&self.live).retain(|address, _| keep(address));
        lock(&self.dials).retain(|address, dial| dial.is_under_way() || keep(address));
    }

    /// Retires the connections for which `is_stranger` is true, so that they are opened anew.
    pub(crate) fn retire_where(&self, is_stranger: impl Fn(&Address, &Connection) -> bool) {
        for (address, connection) in &*read(&self.live) {
            if is_stranger(address, connection) {
                connection.retire();
            }
        }
    }

    /// Retires the connection to `address` on which a command was sent at `sent`. A connection that
    /// was opened later stays.
    pub(crate) fn retire_open_at(&self, address: &Address, sent: Moment) {
        self.retire_where(|at, connection| at == address && connection.was_open_at(sent));
    }

    /// Drops all connections and makes no more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        // Retired, so that a call that waits for a permit is not sent any more.
        for (_, connection) in write(&self.live).drain() {
            connection.retire();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    async fn dialled(
        self: &Arc<Self>,
        address: &Address,
        patient: bool,
    ) -> Result<Arc<Connection>, NodeError> {
        if let Some(connection) = self.ready(address) {
            return Ok(connection);
        }
        let dialled = match self.dial(address, patient) {
            Ok(under_way) => under_way.await,
            Err(ready) => ready,
        };
        dialled.map_err(Arc::unwrap_or_clone)
    }

    /// The dial under way, started if there is none; or the connection that exists by now.
    fn dial(
        self: &Arc<Self>,
        address: &Address,
        patient: bool,
    ) -> Result<Shared<BoxFuture<'static, Dialled>>, Dialled> {
        let mut dials = lock(&self.dials);
        // A dial may have ended since the caller looked.
        if let Some(connection) = self.ready(address) {
            return Err(Ok(connection));
        }
        let dial = dials.entry(address.clone()).or_default();
        dial.take_proof();
        let resting = dial.failure.as_ref().filter(|_| self.clock.now() < dial.rest_until);
        if let Some(failure) = resting.filter(|_| !patient) {
            return Err(Err(failure.clone()));
        }
        if let Some(under_way) = dial.under_way.as_ref().filter(|_| dial.is_under_way()) {
            return Ok(under_way.clone());
        }
        let begin = match resting {
            Some(_) => Some(dial.rest_until),
            None if dial.failure.is_none() && self.has_broken(address) => {
                Some(self.clock.now().after(first_redial()))
            }
            None => None,
        };
        let under_way = self.spawn_dial(address.clone(), begin);
        dial.under_way = Some(under_way.clone());
        Ok(under_way)
    }

    /// Returns true if the last connection to this server broke under a call. (One that nothing was
    /// under way on is replaced at once: clients need it at different times.)
    fn has_broken(&self, address: &Address) -> bool {
        read(&self.live).get(address).is_some_and(|connection| connection.is_retired())
    }

    /// Dials in a separate task, so that a caller that gives up does not stop it for the others.
    fn spawn_dial(
        self: &Arc<Self>,
        address: Address,
        begin: Option<Moment>,
    ) -> Shared<BoxFuture<'static, Dialled>> {
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        self.runtime.spawn("dial", async move {
            let opened = tokio::select! {
                biased;
                () = this.end() => Err(shut_down()),
                opened = this.open(&address, begin) => opened,
            };
            let _ = tell.send(this.settle(&address, opened));
        });
        told.map(|told| {
            told.unwrap_or_else(|_| Err(Arc::new(NodeError::unsent("the dial was given up"))))
        })
        .boxed()
        .shared()
    }

    async fn open(
        &self,
        address: &Address,
        begin: Option<Moment>,
    ) -> Result<Arc<Connection>, NodeError> {
        if let Some(begin) = begin {
            self.clock.sleep_until(begin).await;
        }
        let began = self.clock.now();
        let opening = self.membership.open(&*self.connector, &self.clock, address, self.limits);
        let opened = opening.await;
        let failure = opened.as_ref().err().map(|failure| failure as &dyn Display);
        telemetry::dialled(address, Carries::Commands, self.clock.now().since(began), failure);
        opened
    }

    /// Resolves when this is closed.
    async fn end(&self) {
        let mut woken = pin!(self.closing.notified());
        // From here on, a close between the check and the wait wakes too.
        woken.as_mut().enable();
        if !self.is_closed() {
            woken.await;
        }
    }

    /// Notes how a dial ended.
    fn settle(&self, address: &Address, opened: Result<Arc<Connection>, NodeError>) -> Dialled {
        let mut dials = lock(&self.dials);
        let now = self.clock.now();
        match opened {
            Ok(connection) => {
                let before = {
                    let mut live = write(&self.live);
                    // Checked under the lock that `close` takes to clear the map: a connection that
                    // is inserted after that would stay open.
                    if self.is_closed() {
                        return Err(Arc::new(shut_down()));
                    }
                    live.insert(address.clone(), connection.clone())
                };
                if let Some(before) =
                    before.filter(|before| before.process() != connection.process())
                {
                    telemetry::restarted(address, before.name(), connection.name());
                }
                let useless = NodeError::unsent("the last connection ended before it had answered");
                let dial = dials.entry(address.clone()).or_default();
                dial.came_to_nothing(now, Arc::new(useless));
                dial.proof = Some(connection.proof());
                Ok(connection)
            }
            Err(failure) => {
                let failure = Arc::new(failure);
                let dial = dials.entry(address.clone()).or_default();
                dial.came_to_nothing(now, failure.clone());
                Err(failure)
            }
        }
    }
}

fn shut_down() -> NodeError {
    NodeError::unsent("the client is shut down")
}

impl Dial {
    fn is_under_way(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.peek().is_none())
    }

    fn came_to_nothing(&mut self, now: Moment, failure: Arc<NodeError>) {
        self.under_way = None;
        self.rest_until = now.after(DIALS.pause(self.failures));
        self.failures += 1;
        self.failure = Some(failure);
    }

    /// A connection that has answered resets the count of failures.
    fn take_proof(&mut self) {
        if self.proof.take_if(|proof| proof.load(Ordering::Relaxed)).is_some() {
            *self = Dial { under_way: self.under_way.take(), ..Dial::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::fake::{Fakes, TestClock, address};
    use crate::router::translation::Translation;

    const LIMITS: Limits = Limits {
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
        in_flight: 1,
    };

    /// A connection that a dial inserts after the others were cleared would stay open. The order of
    /// the threads is up to the system, so the test repeats it often.
    #[tokio::test]
    async fn a_dial_that_ends_while_the_client_is_closed_leaves_no_connection() {
        let (fakes, clock) = (Fakes::new(&[(0, 16383, "a")]), TestClock::start());
        let connector: Arc<dyn Connector> = Arc::new(fakes);
        for _ in 0..200 {
            let membership = Arc::new(Membership::new(Translation(None), LIMITS));
            let connections = Connections::new(
                Runtime::current(connector.health()),
                connector.clone(),
                clock.clone(),
                membership,
                LIMITS,
            );
            let opened =
                Connection::open(&*connector, clock.clone(), &address("a"), None, LIMITS).await;
            let opened = opened.map(Arc::new);
            let reading = read(&connections.live);
            std::thread::scope(|scope| {
                scope.spawn(|| connections.settle(&address("a"), opened));
                // The dial holds this lock until it may write what is read here.
                while connections.dials.try_lock().is_ok() {
                    std::thread::yield_now();
                }
                (0..100).for_each(|_| std::thread::yield_now());
                scope.spawn(|| connections.close());
                while !connections.is_closed() {
                    std::thread::yield_now();
                }
                drop(reading);
            });
            assert!(connections.ready(&address("a")).is_none(), "nobody would close it");
        }
    }
}
