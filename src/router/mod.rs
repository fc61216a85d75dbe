//! The router: slots, the slot map, redirects, retries.
//!
//! Imports run down, and `tests/architecture` checks it. From the top:
//!
//! - `transport` is what the layers above call: this router, or the connection of an application
//!   (`cluster_adapter`).
//! - [`calls`] are the methods of the [`Router`].
//! - [`subscriptions`] keep channels joined.
//! - [`cluster`] knows the servers, and has a connection to each.
//! - [`sentinel`] asks sentinels for the master.
//! - [`connections`] are to one server each.
//! - Files that all of these use.

mod address_translation;
mod bad_entries;
mod calls;
mod cluster;
#[cfg(feature = "cluster-async")]
mod cluster_adapter;
mod connections;
#[cfg(feature = "__testing")]
pub(crate) mod parsers;
mod runtime;
// Only URLs name sentinels.
#[cfg_attr(not(any(feature = "native", feature = "redis")), allow(dead_code, unused_imports))]
mod sentinel;
mod server_list;
mod subscriptions;
pub(crate) mod telemetry;
#[cfg(test)]
mod tests;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{Call, CallError, CallReply, Confirmation};
use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use rwlease_core::time::{ClockBounds, LocalInstant};
use tokio_util::task::AbortOnDropHandle;

use crate::backend::{ConnectionError, Connector};
use crate::backoff::with_jitter;
use crate::clock::Clock;
use crate::error::Result;
use crate::scripts::Scripts;
use address_translation::AddressTranslator;
use calls::in_flight::InFlightCall;
use calls::replicated::ReplicatedCallPools;
use calls::script_upload::ScriptUploads;
use cluster::connection_pool::{ConnectionPool, PoolConfig};
use cluster::membership::Membership;
use cluster::refresh::RefreshSource;
use cluster::topology::Topology;
use connections::limits::ConnectionLimits;
use sentinel::SentinelGroup;
use subscriptions::Subscriptions;

pub(crate) use address_translation::TranslateFn;
pub(crate) use calls::send_gate::SendGate;
#[cfg(feature = "cluster-async")]
pub(crate) use cluster_adapter::ClusterAdapter;
pub(crate) use connections::send_permit::Priority;
pub(crate) use runtime::RuntimeHandle;
#[cfg_attr(not(any(feature = "native", feature = "redis")), allow(unused_imports))]
pub(crate) use sentinel::SentinelTargets;
pub(crate) use subscriptions::SubscriptionEvent;
pub(crate) use transport::Transport;

/// Settings of the router. Each duration limits one thing.
#[derive(Clone)]
pub(crate) struct RouterConfig {
    pub(crate) scripts: &'static Scripts,
    /// Nodes of the cluster to start from. One reachable server is enough.
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
    /// How long to wait for servers that do not answer when the client connects.
    pub(crate) wait_for_servers: Option<Duration>,
    /// The interval between two refreshes of the slot map in the background.
    pub(crate) refresh_interval: Duration,
    pub(crate) address_translator: Option<TranslateFn>,
}

impl Default for RouterConfig {
    fn default() -> Self {
        RouterConfig {
            scripts: Scripts::embedded(),
            seeds: Vec::new(),
            sentinels: None,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            max_in_flight_per_server: 256,
            wait_for_servers: None,
            refresh_interval: Duration::from_secs(30),
            address_translator: None,
        }
    }
}

debug_fields!(|config| RouterConfig {
    seeds: config.seeds,
    connect_timeout: config.connect_timeout,
    response_timeout: config.response_timeout,
    max_in_flight: config.max_in_flight_per_server,
    refresh_interval: config.refresh_interval,
    ..
});

/// Sends calls to the masters of their slots.
pub(crate) struct Router {
    pub(crate) scripts: &'static Scripts,
    runtime: RuntimeHandle,
    clock: Arc<dyn Clock>,
    limits: ConnectionLimits,
    connections: Arc<ConnectionPool>,
    topology: Arc<Topology>,
    script_uploads: Arc<ScriptUploads>,
    replicated: Arc<ReplicatedCallPools>,
    pub(crate) subscriptions: Subscriptions,
    background: Vec<AbortOnDropHandle<()>>,
}

impl Router {
    /// Fetches the slot map from the seeds, and from the nodes that they name.
    pub(crate) async fn connect(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: RouterConfig,
    ) -> Result<Arc<Router>> {
        let limits = ConnectionLimits {
            connect_timeout: settings.connect_timeout,
            response_timeout: settings.response_timeout,
            max_in_flight: settings.max_in_flight_per_server,
        };
        let translation = AddressTranslator(settings.address_translator);
        let sentinels = settings.sentinels.map(|sentinels| {
            Arc::new(SentinelGroup::new(sentinels, clock.clone(), translation.clone(), limits))
        });
        let membership = Arc::new(Membership::new(translation, limits, sentinels.clone()));
        let runtime = RuntimeHandle::current(connector.health());
        let pools = PoolConfig {
            connector: connector.clone(),
            clock: clock.clone(),
            membership: membership.clone(),
            limits,
            runtime: runtime.clone(),
        };
        let connections = ConnectionPool::new(pools.clone());
        let replicated = Arc::new(ReplicatedCallPools::new(pools));
        let texts = Arc::new(ScriptUploads::new(clock.clone(), settings.response_timeout));
        let topology = Topology::new(
            runtime.clone(),
            connections.clone(),
            clock.clone(),
            settings.seeds,
            membership,
        );
        topology.discover_within(settings.wait_for_servers).await?;
        let refreshing = refresh_periodically(
            topology.clone(),
            replicated.clone(),
            texts.clone(),
            clock.clone(),
            settings.refresh_interval,
        );
        let refreshing = runtime.spawn("regular refresh", refreshing);
        let watching = sentinels.map(|sentinels| {
            let topology = topology.clone();
            let on_change = move || topology.clone().on_master_change();
            runtime.spawn("sentinels", sentinel::run_subscriptions(sentinels, on_change))
        });
        let background =
            [refreshing].into_iter().chain(watching).map(AbortOnDropHandle::new).collect();
        let subscriptions = Subscriptions::start(
            runtime.clone(),
            connector,
            clock.clone(),
            settings.connect_timeout,
            topology.clone(),
        );
        Ok(Arc::new(Router {
            scripts: settings.scripts,
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

    /// Sends one call to the master of its slot. With a confirmation it uses separate connections,
    /// so that it blocks no other calls. Every attempt passes the gate before it is sent. If the
    /// future is dropped, a command can arrive until the call's `not_after`.
    pub(crate) async fn call_with(
        &self,
        call: &Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
        gate: Option<&SendGate>,
    ) -> Result<CallReply, CallError> {
        InFlightCall::new(self, call, confirmation, deadline, gate).run().await
    }

    /// The known master of a slot, for grouping calls by server.
    pub(crate) fn master_of(&self, slot: Slot) -> Option<Address> {
        self.topology.master_of(slot)
    }

    /// Why the master of this slot cannot be reached at the moment, as far as a dial has shown.
    pub(crate) fn dial_failure(&self, slot: Slot) -> Option<ConnectionError> {
        let address = self.master_of(slot)?;
        let failure = self.connections.dial_failure(&address)?;
        Some(self.topology.explain(failure, &address, None))
    }

    /// Returns bounds for the clock of the server, if there is a connection to it.
    pub(crate) fn clock_bounds(&self, address: &Address) -> Option<ClockBounds> {
        self.connections.get(address).map(|connection| connection.clock_bounds())
    }

    /// Waits between two attempts, but not past the deadline.
    async fn back_off(&self, pause: Duration, deadline: LocalInstant) {
        if !pause.is_zero() {
            self.clock.sleep_until(self.clock.now().saturating_add(pause).min(deadline)).await;
        }
    }

    /// Closes all connections. Later calls fail as [`RuntimeHandle::closed`] says, and so do calls
    /// between two attempts.
    pub(crate) fn close(&self) {
        self.background.iter().for_each(AbortOnDropHandle::abort);
        self.subscriptions.close();
        self.connections.close();
        self.replicated.close();
        self.topology.close();
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
