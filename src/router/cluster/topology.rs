//! The slot map that all calls share. `discovery` fetches the first map, and `refresh` fetches it
//! again. `known_cluster` decides which view is installed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::backend::ConnectionError;
use crate::backoff::with_jitter;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::locks::lock;
use crate::router::address_translation::AddressTranslator;
use crate::router::cluster::connection_pool::ConnectionPool;
use crate::router::cluster::known_cluster::{Admission, DeploymentKind};
use crate::router::cluster::master_watch::MasterWatches;
use crate::router::cluster::membership::Membership;
use crate::router::cluster::node_view::NodeView;
use crate::router::cluster::refresh::{
    MAX_URGENT_INTERVAL, MIN_REFRESH_INTERVAL, RefreshSource, RefreshState,
};
use crate::router::connections::connect_error::{Announcer, announced};
use crate::router::runtime::RuntimeHandle;
use crate::router::sentinel::{SentinelError, SentinelGroup};
use crate::router::server_list::ServerList;
use crate::router::telemetry;

/// The slot map, shared by all calls.
pub(crate) struct Topology {
    pub(in crate::router) connections: Arc<ConnectionPool>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) seeds: Vec<Address>,
    pub(in crate::router) membership: Arc<Membership>,
    /// Notified when a slot changes its master. (Unlike `watch` it wakes tasks in the order of
    /// their arrival, so a simulation can be repeated.)
    changed: Notify,
    pub(super) refreshing: Mutex<RefreshState>,
    watchers: MasterWatches,
    pub(super) runtime: RuntimeHandle,
}

/// Why there is no map.
#[derive(Debug)]
pub(crate) enum DiscoveryError {
    /// The seeds are of several deployments.
    MultipleServers(String),
    /// The sentinels name no master.
    Sentinel(SentinelError),
    /// None of these servers returned a map.
    Unreachable(ServerList, ConnectionError),
}

impl Topology {
    pub(crate) fn new(
        runtime: RuntimeHandle,
        connections: Arc<ConnectionPool>,
        clock: Arc<dyn Clock>,
        seeds: Vec<Address>,
        membership: Arc<Membership>,
    ) -> Arc<Self> {
        let mut distinct: Vec<Address> = Vec::new();
        for seed in seeds {
            if !distinct.contains(&seed) {
                distinct.push(seed);
            }
        }
        Arc::new(Topology {
            connections,
            clock,
            seeds: distinct,
            membership,
            changed: Notify::new(),
            refreshing: Mutex::default(),
            watchers: MasterWatches::default(),
            runtime,
        })
    }

    /// Returns true if only the name of the server leads to another one: it has no cluster, and no
    /// sentinel watches it.
    pub(crate) fn is_found_by_name(&self) -> bool {
        self.sentinels().is_none()
            && matches!(self.membership.known().kind, DeploymentKind::Standalone(_))
    }

    pub(crate) fn sentinels(&self) -> Option<&SentinelGroup> {
        self.membership.sentinels().map(|sentinels| &**sentinels)
    }

    /// The number of redirects that were recorded. A view that is requested after this includes
    /// them.
    pub(crate) fn redirect_count(&self) -> u64 {
        self.membership.known().redirect_count()
    }

    pub(crate) fn translation(&self) -> &AddressTranslator {
        self.membership.translation()
    }

    /// Adds to the failure to reach an address who announced it, if no setting names it:
    /// `named_by`, or the server whose map is known.
    pub(crate) fn explain(
        &self,
        failure: ConnectionError,
        address: &Address,
        named_by: Option<&Address>,
    ) -> ConnectionError {
        // A server that was reached before is away: clients do not need another address.
        if self.seeds.contains(address) || self.connections.has_connected(address) {
            return failure;
        }
        let by = match self.membership.sentinels() {
            Some(_) => Some(Announcer::Sentinels),
            None => named_by
                .cloned()
                .or_else(|| self.membership.known().source())
                .map(Announcer::Server),
        };
        let is_translated = self.translation().0.is_some();
        match by {
            Some(by) => announced(failure, &by, is_translated),
            None => failure,
        }
    }

    pub(crate) fn master_of(&self, slot: Slot) -> Option<Address> {
        self.membership.known().map.master_of(slot).cloned()
    }

    pub(crate) fn masters(&self) -> Vec<Address> {
        self.membership.known().map.masters()
    }

    /// Resolves when a slot changes its master from now on.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Notes the master of a slot that a server named. Refreshes the whole map in the background,
    /// because slots seldom move alone.
    pub(crate) fn on_moved(self: &Arc<Self>, slot: Slot, to: &Address) {
        let is_news = self.membership.known_mut().record_redirect(slot, to);
        if is_news {
            self.changed.notify_waiters();
            lock(&self.refreshing).unchanged_count = 0;
        }
        drop(self.refresh(RefreshSource::Prefer(to.clone())));
    }

    /// Handles a sentinel's report that the master has changed: queries all sentinels at once.
    /// Queries them again after that, because a query under way may have begun before the report.
    pub(crate) async fn on_master_change(self: Arc<Self>) {
        for _ in 0..2 {
            lock(&self.refreshing).unchanged_count = 0;
            self.refresh(RefreshSource::Several).await;
        }
    }

    /// Resolves when the map no longer has the slot at that address. Other nodes are queried for it
    /// at intervals, but not at once: a healthy server answers before that. All calls that wait for
    /// the same server share these queries.
    pub(crate) async fn wait_master_changed(self: &Arc<Self>, slot: Slot, address: &Address) {
        self.wait_before_poll().await;
        let poll = || self.clone().poll_other_nodes(address.clone());
        let _watcher = self.watchers.join(&self.runtime, address, poll);
        loop {
            let changed = self.changed();
            if self.membership.known().map.master_of(slot) != Some(address) {
                return;
            }
            changed.await;
        }
    }

    /// Queries the other nodes again and again.
    async fn poll_other_nodes(self: Arc<Self>, avoided: Address) {
        loop {
            self.refresh_by(RefreshSource::Avoid(avoided.clone()), MAX_URGENT_INTERVAL).await;
            self.wait_before_poll().await;
        }
    }

    async fn wait_before_poll(&self) {
        let pause = with_jitter(2 * MIN_REFRESH_INTERVAL);
        self.clock.sleep_until(self.clock.now().saturating_add(pause)).await;
    }

    pub(crate) fn first_choice(&self, views: &[NodeView]) -> Option<NodeView> {
        self.membership.known().choose(views, &HashSet::new()).cloned()
    }

    /// Closes connections to nodes that are no longer part of the cluster.
    pub(crate) fn drop_foreign_nodes(&self) {
        let known = self.membership.known();
        self.connections
            .retain(|address| known.map.contains(address) || self.seeds.contains(address));
    }

    /// Stops all queries for the master.
    pub(crate) fn close(&self) {
        if let Some(sentinels) = self.sentinels() {
            sentinels.close();
        }
    }

    /// Returns true if this is a node of the cluster.
    pub(crate) fn contains(&self, address: &Address) -> bool {
        self.membership.known().map.contains(address)
    }

    pub(crate) fn install(&self, view: NodeView, since: u64) -> bool {
        let node = view.node.clone();
        let changed = self.membership.known_mut().install(view, since);
        // Some may have been opened before anything was known. (Lock order: what is known before
        // the connections.)
        let known = self.membership.known();
        self.connections.retire_where(|address, connection| {
            let process = connection.process_name.as_deref();
            connection.is_superseded()
                || match known.admission(address, &connection.identity, process) {
                    Admission::Admitted => false,
                    // The new map may come from a node that lags behind.
                    Admission::CheckSlotMap => !connection.is_map_verified(),
                    Admission::FindOriginal | Admission::Rejected(_) => true,
                }
        });
        drop(known);
        telemetry::record_refresh(&node, changed);
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }
}

impl From<DiscoveryError> for Error {
    fn from(error: DiscoveryError) -> Error {
        match error {
            DiscoveryError::MultipleServers(why)
            | DiscoveryError::Sentinel(SentinelError::Invalid(why)) => Error::invalid(why),
            DiscoveryError::Sentinel(SentinelError::NoReply(_, failure))
            | DiscoveryError::Unreachable(_, failure)
                if failure.is_permanent =>
            {
                failure.into()
            }
            DiscoveryError::Sentinel(SentinelError::NoReply(tried, failure)) => {
                let message = format!("no sentinel can be used (tried {tried})");
                Error::new(ErrorKind::Unavailable, message).with_source(failure)
            }
            DiscoveryError::Unreachable(tried, failure) => {
                let message = format!("no server can be used (tried {tried})");
                Error::new(ErrorKind::Unavailable, message).with_source(failure)
            }
        }
    }
}
