//! The slot map, and how it is kept fresh: which nodes are queried for it, and when. `discovery`
//! fetches the first one. `belief` decides which answer is believed.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use crate::backend::{Address, ConnectionError};
use crate::backoff::{Backoff, with_jitter};
use crate::clock::{Clock, LocalInstant};
use crate::router::address_translation::AddressTranslator;
use crate::router::belief::{
    Admission, DeploymentKind, NodeView, ReportedTopology, UnexpectedServer,
};
use crate::router::call::{CallError, CallErrorKind};
use crate::router::connect_error::{Announcer, announced};
use crate::router::connection::ServerConnection;
use crate::router::connection_pool::ConnectionPool;
use crate::router::master_watch::MasterWatches;
use crate::router::membership::Membership;
use crate::router::runtime::RuntimeHandle;
use crate::router::sentinels::{SentinelError, SentinelGroup};
use crate::router::server_list::ServerList;
use crate::router::telemetry;
use crate::router::{Slot, lock};

/// The interval from the start of one refresh to the start of the next. It doubles after each
/// refresh that brought nothing new.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(50);
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// The longest interval while a call waits for a server that does not answer.
const MAX_URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// How long one node is waited for before the next one is queried as well.
pub(crate) const QUERY_STAGGER: Duration = Duration::from_millis(100);

/// How many nodes are queried once one has reported something new.
pub(crate) const SAMPLE_SIZE: usize = 5;

/// The latest place of a seed among the nodes that are queried: the configured names lead to the
/// nodes that exist now.
const MAX_SEED_POSITION: usize = 2;

/// Which nodes a refresh queries first.
#[derive(Clone, Debug)]
pub(crate) enum RefreshSource {
    Any,
    /// Several, even if the first one reports nothing new: it may be behind.
    Several,
    /// This one knows best: it was just named as a master.
    Prefer(Address),
    /// Not this one, unless no other node answers: it is in trouble.
    Avoid(Address),
}

/// The slot map, shared by all calls.
#[derive(Debug)]
pub(crate) struct Topology {
    connections: Arc<ConnectionPool>,
    clock: Arc<dyn Clock>,
    seeds: Vec<Address>,
    membership: Arc<Membership>,
    /// Notified when a slot changes its master. (Unlike `watch` it wakes tasks in the order of
    /// their arrival, so a simulation can be repeated.)
    changed: Notify,
    refreshing: Mutex<RefreshState>,
    watchers: MasterWatches,
    runtime: RuntimeHandle,
}

#[derive(Debug, Default)]
struct RefreshState {
    in_flight: Option<Shared<BoxFuture<'static, ()>>>,
    /// When the last refresh began.
    last: Option<LocalInstant>,
    /// When the refresh under way begins.
    starts_at: LocalInstant,
    /// Wakes the refresh under way when it should begin earlier.
    start_earlier: Arc<Notify>,
    /// Refreshes in a row that brought nothing new.
    unchanged_count: u32,
}

/// Why there is no map.
#[derive(Debug)]
pub(crate) enum DiscoveryError {
    /// The seeds are of several deployments.
    MultipleServers(String),
    /// The sentinels name no master.
    Sentinel(SentinelError),
    /// None of these servers tells it.
    Unreachable(ServerList, ConnectionError),
}

/// A node that was queried, and its answer.
pub(crate) type NodeReply = (Address, Result<NodeView, ConnectionError>);

/// The nodes that are queried for one refresh, and their answers so far.
struct RefreshRound<'a> {
    /// Nodes that are not queried so far.
    candidates: VecDeque<Address>,
    queries: FuturesUnordered<BoxFuture<'a, NodeReply>>,
    queried: usize,
    views: Vec<NodeView>,
    /// The node that is in trouble. It is queried only if the others cannot settle the map.
    avoided: Option<Address>,
    /// Addresses where nothing listens, or a server of another cluster does.
    dead_addresses: HashSet<Address>,
    last_failure: ConnectionError,
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

    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn sentinels(&self) -> Option<&SentinelGroup> {
        self.membership.sentinels().map(|sentinels| &**sentinels)
    }

    /// The number of lessons so far. A view that is requested from now on should include them.
    pub(crate) fn lesson(&self) -> u64 {
        self.membership.known().redirect_count()
    }

    /// The connection to a server, which is dialled if there is none.
    pub(crate) async fn connect(
        &self,
        address: &Address,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        self.connections.connect(address).await
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
        if self.seeds.contains(address) {
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
    pub(crate) async fn on_master_change(self: &Arc<Self>) {
        for _ in 0..2 {
            lock(&self.refreshing).unchanged_count = 0;
            self.refresh(RefreshSource::Several).await;
        }
    }

    /// Starts a refresh of the map, unless one is under way. The returned future may be awaited or
    /// dropped.
    pub(crate) fn refresh(self: &Arc<Self>, from: RefreshSource) -> Shared<BoxFuture<'static, ()>> {
        self.refresh_by(from, MAX_REFRESH_INTERVAL)
    }

    /// As `refresh`, at most `longest` after the last one began.
    fn refresh_by(
        self: &Arc<Self>,
        from: RefreshSource,
        longest: Duration,
    ) -> Shared<BoxFuture<'static, ()>> {
        let mut refreshing = lock(&self.refreshing);
        let begin = refreshing.next_start(self.clock.now(), longest);
        let running = refreshing.in_flight.as_ref();
        if let Some(under_way) = running.filter(|under_way| under_way.peek().is_none()).cloned() {
            refreshing.bring_forward(begin);
            return under_way;
        }
        refreshing.starts_at = begin;
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        self.runtime.spawn("refresh of the slot map", async move {
            this.wait_to_begin().await;
            // A failure is logged there, and every call that needs the map refreshes again.
            let changed = this.fetch(&from).await;
            let mut refreshing = lock(&this.refreshing);
            refreshing.unchanged_count =
                if changed { 0 } else { (refreshing.unchanged_count + 1).min(16) };
            refreshing.in_flight = None;
            drop(refreshing);
            let _ = tell.send(());
        });
        let under_way = told.map(drop).boxed().shared();
        refreshing.in_flight = Some(under_way.clone());
        under_way
    }

    /// Waits until the refresh under way should begin. That time can become earlier meanwhile.
    async fn wait_to_begin(&self) {
        loop {
            let (begin, hurry) = {
                let mut refreshing = lock(&self.refreshing);
                let now = self.clock.now();
                if now >= refreshing.starts_at {
                    refreshing.last = Some(now);
                    return;
                }
                (refreshing.starts_at, refreshing.start_earlier.clone())
            };
            tokio::select! {
                () = self.clock.sleep_until(begin) => {}
                () = hurry.notified() => {}
            }
        }
    }

    /// Resolves when the map no longer has the slot at that address. Other nodes are queried for it
    /// at intervals, but not at once: a healthy server answers before that. All calls that wait for
    /// the same server share these queries.
    pub(crate) async fn wait_master_changed(self: &Arc<Self>, slot: Slot, address: &Address) {
        self.wait_before_poll().await;
        let look = || self.clone().poll_other_nodes(address.clone());
        let _watcher = self.watchers.join(&self.runtime, address, look);
        loop {
            let changed = self.changed();
            if self.membership.known().map.master_of(slot) != Some(address) {
                return;
            }
            changed.await;
        }
    }

    /// Queries the other nodes again and again.
    async fn poll_other_nodes(self: Arc<Self>, troubled: Address) {
        loop {
            self.refresh_by(RefreshSource::Avoid(troubled.clone()), MAX_URGENT_INTERVAL).await;
            self.wait_before_poll().await;
        }
    }

    async fn wait_before_poll(&self) {
        let pause = with_jitter(2 * MIN_REFRESH_INTERVAL);
        self.clock.sleep_until(self.clock.now().saturating_add(pause)).await;
    }

    /// Fetches the map anew. One node that reports nothing new is enough; otherwise a few are
    /// queried, and one of their views is chosen. A slow node causes little delay, because the next
    /// one is soon queried too. Returns true if a slot has another master now.
    async fn fetch(&self, from: &RefreshSource) -> bool {
        if let Some(sentinels) = self.sentinels() {
            return self.fetch_from_sentinels(sentinels).await;
        }
        let since = self.lesson();
        let mut survey = RefreshRound {
            candidates: self.candidates(from).into(),
            queries: FuturesUnordered::new(),
            queried: 0,
            views: Vec::new(),
            avoided: None,
            dead_addresses: HashSet::new(),
            last_failure: ConnectionError::not_sent("no node is known"),
        };
        loop {
            self.query_next(&mut survey);
            if survey.queries.is_empty() {
                telemetry::emit_refresh_failed(&survey.last_failure);
                return false;
            }
            let response_timeout =
                self.clock.sleep_until(self.clock.now().saturating_add(QUERY_STAGGER));
            tokio::select! {
                biased;
                Some(heard) = survey.queries.next() => {
                    let Some(view) = self.accept_view(&mut survey, heard) else {
                        if survey.views.is_empty() {
                            continue;
                        }
                        // A node that is gone does not count in the choice.
                        match self.choose(&mut survey) {
                            Some(view) => return self.install(view, since),
                            None => continue,
                        }
                    };
                    let is_enough = !matches!(from, RefreshSource::Several) || survey.views.len() > 1;
                    if is_enough && self.membership.known().is_confirmed_by(&view) {
                        telemetry::record_refresh(&view.node, false);
                        return false;
                    }
                    self.query_more_nodes(from, &mut survey, view).await;
                }
                () = response_timeout => continue,
            }
            if let Some(view) = self.choose(&mut survey) {
                return self.install(view, since);
            }
            survey.candidates.extend(survey.avoided.take());
        }
    }

    /// The master that sentinels name serves all slots. Nothing is sent to the one before it any
    /// more, even while the new one cannot be reached.
    async fn fetch_from_sentinels(&self, sentinels: &SentinelGroup) -> bool {
        let since = self.lesson();
        let master = match sentinels.query().await {
            Ok(master) => master.address,
            Err(untold) => {
                telemetry::emit_refresh_failed(&ConnectionError::from(untold));
                return false;
            }
        };
        if self.contains(&master) {
            telemetry::record_refresh(&master, false);
            return false;
        }
        self.install(NodeView { node: master, topology: ReportedTopology::Standalone(None) }, since)
    }

    /// Queries the next node, if there is one.
    fn query_next<'a>(&'a self, survey: &mut RefreshRound<'a>) {
        if let Some(node) = survey.candidates.pop_front() {
            survey.queried += 1;
            survey.queries.push(self.query(node).boxed());
        }
    }

    /// A node's view, if it counts.
    fn accept_view(
        &self,
        survey: &mut RefreshRound<'_>,
        (node, outcome): NodeReply,
    ) -> Option<NodeView> {
        let view = match outcome {
            Ok(view) => view,
            Err(failure) => {
                if failure.is_connection_refused || is_identity_error(&failure) {
                    survey.dead_addresses.insert(node);
                }
                survey.last_failure = failure;
                return None;
            }
        };
        let Some(why) = self.membership.known().reject_reason(&view) else {
            return Some(view);
        };
        telemetry::emit_unexpected_server(&node, why.label(), &why);
        survey.last_failure = ConnectionError {
            source: Some(Arc::new(why)),
            ..ConnectionError::not_sent(format!("at {node} there is {why}"))
        };
        survey.dead_addresses.insert(node);
        None
    }

    /// Queries a few nodes at once after one has reported something new, and waits a short time for
    /// them.
    async fn query_more_nodes<'a>(
        &'a self,
        from: &RefreshSource,
        survey: &mut RefreshRound<'a>,
        view: NodeView,
    ) {
        survey.views.push(view);
        if let RefreshSource::Avoid(troubled) = from {
            let all = survey.candidates.len();
            survey.candidates.retain(|node| node != troubled);
            survey.avoided = (survey.candidates.len() < all).then(|| troubled.clone());
        }
        while survey.queried < SAMPLE_SIZE && !survey.candidates.is_empty() {
            self.query_next(survey);
        }
        let mut late = self.clock.sleep_until(self.clock.now().saturating_add(QUERY_STAGGER));
        loop {
            tokio::select! {
                biased;
                heard = survey.queries.next() => {
                    let Some(heard) = heard else { return };
                    let view = self.accept_view(survey, heard);
                    survey.views.extend(view);
                }
                () = &mut late => return,
            }
        }
    }

    /// The view to install, once there is one.
    fn choose(&self, survey: &mut RefreshRound<'_>) -> Option<NodeView> {
        let chosen = self.membership.known().choose(&survey.views, &survey.dead_addresses).cloned();
        if chosen.is_none()
            && let Some(view) = survey.views.last()
        {
            telemetry::emit_refresh_outdated(&view.node);
            survey.last_failure = ConnectionError::not_sent(format!(
                "{} tells of an older epoch than is known",
                view.node
            ));
        }
        chosen
    }

    /// Of the first views, the one to install.
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
            connection.is_superseded()
                || match known.admission(address, connection.identity(), connection.process_name())
                {
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

    /// The nodes to query, in order: connected ones, other known ones, seeds. One of the seeds is
    /// among the first three.
    fn candidates(&self, from: &RefreshSource) -> Vec<Address> {
        let known = self.membership.known();
        let mut nodes = known.map.nodes().to_vec();
        if known.kind != DeploymentKind::Cluster {
            return nodes;
        }
        fastrand::shuffle(&mut nodes);
        nodes.sort_by_key(|address| self.connections.get(address).is_none());
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        seeds.sort_by_key(|seed| known.map.contains(seed));
        drop(known);
        if let RefreshSource::Prefer(first) = from {
            nodes.retain(|address| address != first);
            nodes.insert(0, first.clone());
        }
        if let RefreshSource::Avoid(last) = from {
            seeds.sort_by_key(|seed| seed == last);
            nodes.retain(|address| address != last);
        }
        for (number, seed) in seeds.into_iter().enumerate() {
            let early = &nodes[..nodes.len().min(MAX_SEED_POSITION + 1)];
            if number == 0 && !early.contains(&seed) {
                nodes.retain(|address| *address != seed);
                nodes.insert(nodes.len().min(MAX_SEED_POSITION), seed);
            } else if !nodes.contains(&seed) {
                nodes.push(seed);
            }
        }
        if let RefreshSource::Avoid(last) = from {
            nodes.retain(|address| address != last);
            nodes.push(last.clone());
        }
        nodes
    }

    pub(crate) async fn query(&self, node: Address) -> NodeReply {
        let queried = async {
            let connection = self.connections.connect(&node).await?;
            self.membership.view(&connection, &node).await
        };
        let outcome = queried.await;
        (node, outcome)
    }
}

/// Returns true if a connection was refused because of the server's identity.
fn is_identity_error(failure: &ConnectionError) -> bool {
    failure.source.as_ref().is_some_and(|source| source.is::<UnexpectedServer>())
}

impl RefreshState {
    /// When the next refresh may begin.
    fn next_start(&mut self, now: LocalInstant, longest: Duration) -> LocalInstant {
        let Some(last) = self.last else { return now };
        if now >= last.saturating_add(MAX_REFRESH_INTERVAL) {
            self.unchanged_count = 0;
        }
        let interval = Backoff::new(MIN_REFRESH_INTERVAL, longest)
            .delay(self.unchanged_count.saturating_sub(1));
        // Never sooner than the shortest interval, so that many callers cause no storm.
        last.saturating_add(interval.max(MIN_REFRESH_INTERVAL)).max(now)
    }

    /// Moves the start of the refresh under way up to `by`, if it has not begun.
    fn bring_forward(&mut self, by: LocalInstant) {
        if by < self.starts_at {
            self.starts_at = by;
            self.start_earlier.notify_one();
        }
    }
}

impl DiscoveryError {
    pub(crate) fn into_call_error(self) -> CallError {
        let (reason, last) = match self {
            DiscoveryError::MultipleServers(why) => (CallErrorKind::InvalidDeployment(why), None),
            DiscoveryError::Sentinel(SentinelError::Invalid(why)) => {
                (CallErrorKind::InvalidDeployment(why), None)
            }
            DiscoveryError::Sentinel(SentinelError::NoReply(_, failure))
            | DiscoveryError::Unreachable(_, failure)
                if failure.is_permanent =>
            {
                (CallErrorKind::PermanentConnectionError, Some(failure))
            }
            DiscoveryError::Sentinel(SentinelError::NoReply(tried, failure)) => {
                (CallErrorKind::NoSentinel(tried, failure.to_string()), Some(failure))
            }
            DiscoveryError::Unreachable(tried, failure) => {
                (CallErrorKind::Unreachable(tried, failure.to_string()), Some(failure))
            }
        };
        CallError { kind: reason, in_doubt: None, last_error: last }
    }
}
