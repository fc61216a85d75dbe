//! The router: slots, the slot map, redirects, retries.

mod activity;
mod bad_entries;
mod batch;
mod belief;
mod call;
mod clock_bounds;
#[cfg(feature = "cluster-async")]
mod cluster_adapter;
mod cluster_slots;
mod connection;
mod connection_pool;
mod delifeq;
mod discovery;
mod in_flight;
mod master_query;
mod membership;
mod replicated;
mod reply_action;
mod runtime;
mod send_marker;
mod server_info;
mod shared_timer;
mod slot_map;
// Only URLs name sentinels.
mod address_translation;
mod connect_error;
mod master_term;
mod master_watch;
mod node_query;
mod reply_timeout;
mod script_upload;
#[cfg_attr(not(any(feature = "native", feature = "redis")), allow(dead_code, unused_imports))]
mod sentinels;
mod server_list;
mod subscriptions;
pub(crate) mod telemetry;
#[cfg(test)]
mod tests;
mod time_limit;
mod topology;
mod transport;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::backend::{Address, Connector};
use crate::backoff::{Backoff, scale, with_jitter};
use crate::clock::{Clock, LocalInstant};
use crate::health::ClientHealth;
use crate::slot::Slot;
use address_translation::AddressTranslator;
use connection::ConnectionLimits;
use connection_pool::ConnectionPool;
use in_flight::InFlightCall;
use membership::Membership;
use replicated::ReplicatedCallPools;
use script_upload::ScriptUploads;
use sentinels::SentinelGroup;
use topology::{DiscoveryError, RefreshSource, Topology};

pub(crate) use address_translation::TranslateFn;
pub use call::Script;
pub(crate) use call::{Call, CallError, CallErrorKind, CallReply};
pub(crate) use clock_bounds::ClockBounds;
#[cfg(feature = "cluster-async")]
pub(crate) use cluster_adapter::ClusterAdapter;
pub(crate) use connection::Priority;
pub(crate) use runtime::RuntimeHandle;
#[cfg_attr(not(any(feature = "native", feature = "redis")), allow(unused_imports))]
pub(crate) use sentinels::SentinelTargets;
pub(crate) use subscriptions::{EventListener, SubscriptionEvent, Subscriptions};
pub(crate) use transport::Transport;

/// Pauses between the attempts of one call.
const ATTEMPT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));

/// The longest pause before a connection that broke under a call is made again. A server or a proxy
/// that restarts cuts the connections of all clients at once, and should not get all their dials at
/// once.
const FIRST_REDIAL: Duration = Duration::from_millis(100);

/// How long a server is left alone after a failed dial, and a channel after a failed join.
const DIAL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// Settings of the router. Each duration limits one thing.
#[derive(Clone)]
pub(crate) struct RouterConfig {
    /// Nodes of the cluster to start from. One that can be reached is enough.
    pub(crate) seeds: Vec<Address>,
    /// The sentinels that name the server, in place of seeds.
    pub(crate) sentinels: Option<SentinelTargets>,
    /// The limit for opening a connection, with authentication and first answers.
    pub(crate) connect_timeout: Duration,
    /// How long a connection may be quiet while a call is under way on it. After that the call's
    /// outcome is unknown, and the call is repeated.
    pub(crate) response_timeout: Duration,
    /// The most calls under way at one server. Further calls wait here.
    pub(crate) max_in_flight_per_server: usize,
    /// The interval between two refreshes of the slot map in the background.
    pub(crate) refresh_interval: Duration,
    pub(crate) address_translator: Option<TranslateFn>,
}

impl Default for RouterConfig {
    fn default() -> Self {
        RouterConfig {
            seeds: Vec::new(),
            sentinels: None,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            max_in_flight_per_server: 256,
            refresh_interval: Duration::from_secs(30),
            address_translator: None,
        }
    }
}

impl fmt::Debug for RouterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterSettings")
            .field("seeds", &self.seeds)
            .field("sentinels", &self.sentinels)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("max_in_flight", &self.max_in_flight_per_server)
            .field("refresh_interval", &self.refresh_interval)
            .finish_non_exhaustive()
    }
}

/// Sends calls to the masters of their slots.
#[derive(Debug)]
pub(crate) struct Router {
    runtime: RuntimeHandle,
    clock: Arc<dyn Clock>,
    limits: ConnectionLimits,
    connections: Arc<ConnectionPool>,
    topology: Arc<Topology>,
    script_uploads: Arc<ScriptUploads>,
    replicated: Arc<ReplicatedCallPools>,
    subscriptions: Subscriptions,
    background: BackgroundTasks,
}

/// Tasks that are aborted when this is dropped.
#[derive(Debug)]
struct BackgroundTasks(Vec<AbortHandle>);

impl Router {
    /// Fetches the slot map from the seeds, and from the nodes that they name.
    pub(crate) async fn connect(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: RouterConfig,
    ) -> Result<Arc<Router>, CallError> {
        let limits = ConnectionLimits {
            connect_timeout: settings.connect_timeout,
            response_timeout: settings.response_timeout,
            max_in_flight: settings.max_in_flight_per_server,
        };
        let translation = AddressTranslator(settings.address_translator);
        let sentinels = settings.sentinels.map(|sentinels| {
            Arc::new(SentinelGroup::new(sentinels, clock.clone(), translation.clone(), limits))
        });
        let membership = Membership::new(translation, limits).with_sentinels(sentinels.clone());
        let membership = Arc::new(membership);
        let runtime = RuntimeHandle::current(connector.health());
        let connections = ConnectionPool::new(
            runtime.clone(),
            connector.clone(),
            clock.clone(),
            membership.clone(),
            limits,
        );
        let replicated = Arc::new(ReplicatedCallPools::new(
            runtime.clone(),
            connector.clone(),
            clock.clone(),
            membership.clone(),
            limits,
        ));
        let texts = Arc::new(ScriptUploads::new(clock.clone(), settings.response_timeout));
        let topology = Topology::new(
            runtime.clone(),
            connections.clone(),
            clock.clone(),
            settings.seeds,
            membership,
        );
        topology.discover().await.map_err(DiscoveryError::into_call_error)?;
        let refreshing = refresh_periodically(
            topology.clone(),
            replicated.clone(),
            texts.clone(),
            clock.clone(),
            settings.refresh_interval,
        );
        let refreshing = runtime.spawn("regular refresh", refreshing);
        let watching = sentinels.map(|sentinels| {
            runtime.spawn("sentinels", sentinels::run_subscriptions(sentinels, topology.clone()))
        });
        let tasks = [refreshing].into_iter().chain(watching);
        let background = BackgroundTasks(tasks.map(|task| task.abort_handle()).collect());
        let subscriptions = Subscriptions::start(
            runtime.clone(),
            connector,
            clock.clone(),
            settings.connect_timeout,
            topology.clone(),
        );
        Ok(Arc::new(Router {
            runtime,
            clock,
            limits,
            connections,
            topology,
            script_uploads: texts,
            replicated,
            subscriptions,
            background,
        }))
    }

    /// Sends one call to the master of its slot, and returns its answer before the deadline.
    ///
    /// If the future is dropped, a command may stay under way. It can arrive until the call's
    /// `not_after`.
    pub(crate) async fn call(
        &self,
        call: &Call,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        InFlightCall::new(self, call, deadline).run().await
    }

    /// As `call`, but waits for that many replicas, and the answer says how many have the write. It
    /// uses separate connections, so that it blocks no other calls. With 0 replicas, it is `call`.
    pub(crate) async fn call_replicated(
        &self,
        call: &Call,
        replicas: u32,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        InFlightCall::confirmed(self, call, replicas, deadline).run().await
    }

    /// The known master of a slot, for grouping calls by server.
    pub(crate) fn master_of(&self, slot: Slot) -> Option<Address> {
        self.topology.master_of(slot)
    }

    /// Bounds for that server's clock, if there is a connection to it.
    pub(crate) fn clock_bounds(&self, address: &Address) -> Option<ClockBounds> {
        self.connections.get(address).map(|connection| connection.clock_bounds())
    }

    pub(crate) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Waits between two attempts, but not past the deadline.
    async fn back_off(&self, pause: Duration, deadline: LocalInstant) {
        if !pause.is_zero() {
            self.clock.sleep_until(self.clock.now().saturating_add(pause).min(deadline)).await;
        }
    }

    /// Why calls fail once the connections are closed.
    pub(crate) fn closed(&self) -> CallErrorKind {
        closed(self.runtime.health())
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        &self.runtime
    }

    /// Closes all connections. Later calls fail as [`closed`](Self::closed) says, and so do calls
    /// between two attempts.
    pub(crate) fn close(&self) {
        self.background.end();
        self.subscriptions.close();
        self.connections.close();
        self.replicated.close();
        self.topology.close();
    }
}

/// The reason of calls to a client that was shut down, or has failed.
fn closed(health: &ClientHealth) -> CallErrorKind {
    health
        .failure()
        .map_or(CallErrorKind::Closed, |failure| CallErrorKind::ClientFailed(failure.clone()))
}

impl BackgroundTasks {
    fn end(&self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        self.end();
    }
}

/// Refreshes the map at intervals, for changes that no redirect reports: nodes that joined or left.
async fn refresh_periodically(
    topology: Arc<Topology>,
    replicated: Arc<ReplicatedCallPools>,
    texts: Arc<ScriptUploads>,
    clock: Arc<dyn Clock>,
    interval: Duration,
) {
    loop {
        clock.sleep_until(clock.now().saturating_add(with_jitter(interval))).await;
        topology.refresh(RefreshSource::Several).await;
        topology.drop_foreign_nodes();
        replicated.retain(|address| topology.contains(address));
        texts.retain(|address| topology.contains(address));
    }
}

/// The pause before a connection that broke is made again for the first time.
fn first_redial() -> Duration {
    scale(FIRST_REDIAL, fastrand::f64())
}

// What these locks protect is consistent at every moment, so a panic elsewhere does not corrupt it.

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
