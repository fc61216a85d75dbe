//! One shared connection to each server, opened on first use and replaced when it breaks.

use std::collections::HashMap;
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rustc_hash::FxHashMap;
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tokio::sync::{Notify, oneshot};

use crate::backend::{ConnectionError, Connector};
use crate::clock::Clock;
use crate::locks::{lock, read, write};
use crate::router::cluster::membership::Membership;
use crate::router::connections::limits::{ConnectionLimits, DIAL_BACKOFF, first_redial};
use crate::router::connections::server_connection::ServerConnection;
use crate::router::runtime::RuntimeHandle;
use crate::router::telemetry;

/// What opens the connections of a pool, and their limits.
#[derive(Clone)]
pub(crate) struct PoolConfig {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) runtime: RuntimeHandle,
}

/// The connections that carry commands.
pub(crate) struct ConnectionPool {
    config: PoolConfig,
    by_address: RwLock<FxHashMap<Address, Arc<ServerConnection>>>,
    dials: Mutex<HashMap<Address, DialState>>,
    closed: AtomicBool,
    /// Wakes the dials when `ConnectionPool` is closed.
    closing: Notify,
}

/// The state of a server without a usable connection.
#[derive(Debug, Default)]
struct DialState {
    in_flight: Option<Shared<BoxFuture<'static, DialResult>>>,
    /// Failed dials in a row.
    failure_count: u32,
    retry_at: LocalInstant,
    last_error: Option<Arc<ConnectionError>>,
    /// Whether the connection of the last dial has answered. Until then it counts as failed.
    proven_flag: Option<Arc<AtomicBool>>,
}

type DialResult = Result<Arc<ServerConnection>, Arc<ConnectionError>>;

impl ConnectionPool {
    pub(crate) fn new(config: PoolConfig) -> Arc<Self> {
        Arc::new(ConnectionPool {
            config,
            by_address: RwLock::default(),
            dials: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    /// The connection to this server, if there is a usable one now.
    pub(crate) fn get(&self, address: &Address) -> Option<Arc<ServerConnection>> {
        read(&self.by_address).get(address).filter(|connection| connection.is_usable()).cloned()
    }

    /// Whether a connection to this server was open before.
    pub(crate) fn has_connected(&self, address: &Address) -> bool {
        read(&self.by_address).contains_key(address)
    }

    /// Why there is no usable connection to this server, if the last dial has failed.
    pub(crate) fn dial_failure(&self, address: &Address) -> Option<ConnectionError> {
        if self.get(address).is_some() {
            return None;
        }
        let dials = lock(&self.dials);
        let failed = dials.get(address).filter(|dial| dial.proven_flag.is_none())?;
        failed.last_error.as_deref().cloned()
    }

    /// The failure of the last dial, until the server may be dialled again.
    pub(crate) fn resting_failure(&self, address: &Address) -> Option<ConnectionError> {
        let now = self.config.clock.now();
        let is_resting = lock(&self.dials).get(address).is_some_and(|dial| now < dial.retry_at);
        self.dial_failure(address).filter(|_| is_resting)
    }

    /// The connection to this server. One task dials for all callers. Shortly after a failed dial,
    /// a patient caller waits for the next one, and another caller gets that failure.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        address: &Address,
        patient: bool,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        if let Some(connection) = self.get(address) {
            return Ok(connection);
        }
        let dialled = match self.start_or_join_dial(address, patient) {
            Ok(under_way) => under_way.await,
            Err(ready) => ready,
        };
        dialled.map_err(Arc::unwrap_or_clone)
    }

    /// Closes the connections to servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        write(&self.by_address).retain(|address, _| keep(address));
        lock(&self.dials).retain(|address, dial| dial.is_under_way() || keep(address));
    }

    /// Retires the connections for which `must_retire` is true. The next call opens a new
    /// connection.
    pub(crate) fn retire_where(&self, must_retire: impl Fn(&Address, &ServerConnection) -> bool) {
        for (address, connection) in &*read(&self.by_address) {
            if must_retire(address, connection) {
                connection.retire();
            }
        }
    }

    /// Retires the connection to `address` on which a command was sent at `sent`, because of the
    /// reply. A connection that was opened later stays.
    pub(crate) fn retire_open_at(&self, address: &Address, sent: LocalInstant) {
        let connection = read(&self.by_address).get(address).cloned();
        if let Some(connection) = connection.filter(|connection| connection.was_open_at(sent)) {
            connection.retire_untrusted();
        }
    }

    /// Drops all connections and opens no more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        // Retired, so that a call that waits for a permit is not sent any more.
        for (_, connection) in write(&self.by_address).drain() {
            connection.retire();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The dial under way, started if there is none; or the connection that exists by now.
    fn start_or_join_dial(
        self: &Arc<Self>,
        address: &Address,
        patient: bool,
    ) -> Result<Shared<BoxFuture<'static, DialResult>>, DialResult> {
        let mut dials = lock(&self.dials);
        // A dial may have ended since the caller looked.
        if let Some(connection) = self.get(address) {
            return Err(Ok(connection));
        }
        let dial = dials.entry(address.clone()).or_default();
        dial.take_proof();
        let resting = dial.last_error.as_ref().filter(|_| self.config.clock.now() < dial.retry_at);
        if let Some(failure) = resting.filter(|_| !patient) {
            return Err(Err(failure.clone()));
        }
        if let Some(under_way) = dial.in_flight.as_ref().filter(|_| dial.is_under_way()) {
            return Ok(under_way.clone());
        }
        let begin = match resting {
            Some(_) => Some(dial.retry_at),
            None if dial.last_error.is_none() && self.has_broken(address) => {
                Some(self.config.clock.now().saturating_add(first_redial()))
            }
            None => None,
        };
        let under_way = self.spawn_dial(address.clone(), begin);
        dial.in_flight = Some(under_way.clone());
        Ok(under_way)
    }

    /// Returns true if the last connection to this server broke under a call. (One that nothing was
    /// under way on is replaced at once: clients need it at different times.)
    fn has_broken(&self, address: &Address) -> bool {
        read(&self.by_address)
            .get(address)
            .is_some_and(|connection| connection.retired.load(Ordering::Relaxed))
    }

    /// Dials in a separate task, so that a caller that gives up does not stop it for the others.
    fn spawn_dial(
        self: &Arc<Self>,
        address: Address,
        begin: Option<LocalInstant>,
    ) -> Shared<BoxFuture<'static, DialResult>> {
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        self.config.runtime.spawn("dial", async move {
            let opened = tokio::select! {
                biased;
                () = this.wait_closed() => Err(client_closed_error()),
                opened = this.open(&address, begin) => opened,
            };
            let _ = tell.send(this.finish_dial(&address, opened));
        });
        told.map(|told| {
            told.unwrap_or_else(|_| {
                Err(Arc::new(ConnectionError::not_sent("the dial was cancelled")))
            })
        })
        .boxed()
        .shared()
    }

    async fn open(
        &self,
        address: &Address,
        begin: Option<LocalInstant>,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        if let Some(begin) = begin {
            self.config.clock.sleep_until(begin).await;
        }
        let began = self.config.clock.now();
        let PoolConfig { connector, clock, membership, limits, .. } = &self.config;
        let opening = membership.open(&**connector, clock, address, *limits);
        let opened = opening.await;
        let chain = opened.as_ref().err().map(ConnectionError::chain);
        let failure = chain.as_ref().map(|chain| chain as &dyn Display);
        telemetry::record_dial(
            address,
            "commands",
            self.config.clock.now().saturating_duration_since(began),
            failure,
        );
        opened
    }

    /// Resolves when this is closed.
    async fn wait_closed(&self) {
        let mut woken = pin!(self.closing.notified());
        // From here on, a close between the check and the wait wakes too.
        woken.as_mut().enable();
        if !self.is_closed() {
            woken.await;
        }
    }

    /// Notes how a dial ended.
    fn finish_dial(
        &self,
        address: &Address,
        opened: Result<Arc<ServerConnection>, ConnectionError>,
    ) -> DialResult {
        let mut dials = lock(&self.dials);
        let now = self.config.clock.now();
        match opened {
            Ok(connection) => {
                let before = {
                    let mut live = write(&self.by_address);
                    // Checked under the lock that `close` takes to clear the map: a connection that
                    // is inserted after that would stay open.
                    if self.is_closed() {
                        return Err(Arc::new(client_closed_error()));
                    }
                    live.insert(address.clone(), connection.clone())
                };
                let useless = ConnectionError::not_sent(
                    "the last connection was closed before it answered a call",
                );
                let dial = dials.entry(address.clone()).or_default();
                dial.record_failure(now, Arc::new(useless));
                dial.proven_flag = Some(connection.proven.clone());
                drop(dials);
                // The caller's subscriber runs here, so nothing is locked.
                if let Some(before) =
                    before.filter(|before| before.process_name != connection.process_name)
                {
                    telemetry::emit_restart(address, before.name(), connection.name());
                }
                Ok(connection)
            }
            Err(failure) => {
                let failure = Arc::new(failure);
                let dial = dials.entry(address.clone()).or_default();
                dial.record_failure(now, failure.clone());
                Err(failure)
            }
        }
    }
}

fn client_closed_error() -> ConnectionError {
    ConnectionError::not_sent("the client is shut down")
}

impl DialState {
    fn is_under_way(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|under_way| under_way.peek().is_none())
    }

    fn record_failure(&mut self, now: LocalInstant, failure: Arc<ConnectionError>) {
        self.in_flight = None;
        self.retry_at = now.saturating_add(DIAL_BACKOFF.delay(self.failure_count));
        self.failure_count += 1;
        self.last_error = Some(failure);
        self.proven_flag = None;
    }

    /// A connection that has answered resets the count of failures.
    fn take_proof(&mut self) {
        if self.proven_flag.take_if(|proof| proof.load(Ordering::Relaxed)).is_some() {
            *self = DialState { in_flight: self.in_flight.take(), ..DialState::default() };
        }
    }
}

#[cfg(test)]
mod tests;
