//! Refreshes of the slot map: which nodes are queried, and when.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tokio::sync::{Notify, oneshot};

use crate::backend::ConnectionError;
use crate::backoff::Backoff;
use crate::locks::lock;
use crate::router::cluster::known_cluster::DeploymentKind;
use crate::router::cluster::node_view::{NodeView, ReportedTopology};
use crate::router::cluster::topology::Topology;
use crate::router::connections::unexpected_server::UnexpectedServer;
use crate::router::sentinel::SentinelGroup;
use crate::router::telemetry;

/// The interval from the start of one refresh to the start of the next. It doubles after each
/// refresh that brought nothing new.
pub(super) const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(50);

const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// The longest interval while a call waits for a server that does not answer.
pub(super) const MAX_URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// How long one node is waited for before the next one is queried as well.
pub(crate) const QUERY_STAGGER: Duration = Duration::from_millis(100);

/// How many nodes are queried once one has reported something new.
pub(crate) const SAMPLE_SIZE: usize = 5;

/// The latest place of a seed among the nodes that are queried: the configured names lead to the
/// nodes that exist now.
const MAX_SEED_POSITION: usize = 2;

/// The nodes that a refresh queries first.
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

#[derive(Debug, Default)]
pub(super) struct RefreshState {
    in_flight: Option<Shared<BoxFuture<'static, ()>>>,
    /// When the last refresh began.
    last_start: Option<LocalInstant>,
    /// When the refresh under way begins.
    starts_at: LocalInstant,
    /// Wakes the refresh under way when it should begin earlier.
    start_earlier: Arc<Notify>,
    /// Refreshes in a row that brought nothing new.
    pub(super) unchanged_count: u32,
}

/// A node that was queried, and its answer.
pub(crate) type NodeReply = (Address, Result<NodeView, ConnectionError>);

/// The nodes that are queried for one refresh, and the replies that have arrived.
struct RefreshRound<'a> {
    /// Nodes that are not queried yet.
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
    /// Starts a refresh of the map, unless one is under way. The returned future may be awaited or
    /// dropped.
    pub(crate) fn refresh(self: &Arc<Self>, from: RefreshSource) -> Shared<BoxFuture<'static, ()>> {
        self.refresh_by(from, MAX_REFRESH_INTERVAL)
    }

    /// As `refresh`, at most `longest` after the last one began.
    pub(super) fn refresh_by(
        self: &Arc<Self>,
        from: RefreshSource,
        longest: Duration,
    ) -> Shared<BoxFuture<'static, ()>> {
        let mut refreshing = lock(&self.refreshing);
        let begin = refreshing.next_start(self.clock.now(), longest);
        let running = refreshing.in_flight.as_ref();
        if let Some(in_flight) = running.filter(|in_flight| in_flight.peek().is_none()).cloned() {
            refreshing.bring_forward(begin);
            return in_flight;
        }
        refreshing.starts_at = begin;
        let (done_tx, done_rx) = oneshot::channel();
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
            let _ = done_tx.send(());
        });
        let in_flight = done_rx.map(drop).boxed().shared();
        refreshing.in_flight = Some(in_flight.clone());
        in_flight
    }

    /// Waits until the refresh under way should begin. That time can become earlier meanwhile.
    async fn wait_to_begin(&self) {
        loop {
            let (begin, hurry) = {
                let mut refreshing = lock(&self.refreshing);
                let now = self.clock.now();
                if now >= refreshing.starts_at {
                    refreshing.last_start = Some(now);
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

    /// Fetches the map again. One node that reports nothing new is enough; otherwise a few are
    /// queried, and one of their views is chosen. A slow node causes little delay, because the next
    /// one is soon queried too. Returns true if a slot has another master now.
    async fn fetch(&self, from: &RefreshSource) -> bool {
        if let Some(sentinels) = self.sentinels() {
            return self.fetch_from_sentinels(sentinels).await;
        }
        let since = self.redirect_count();
        let mut round = RefreshRound {
            candidates: self.candidates(from).into(),
            queries: FuturesUnordered::new(),
            queried: 0,
            views: Vec::new(),
            avoided: None,
            dead_addresses: HashSet::new(),
            last_failure: ConnectionError::not_sent("no node is known"),
        };
        loop {
            self.query_next(&mut round);
            if round.queries.is_empty() {
                telemetry::emit_refresh_failed(&round.last_failure.chain());
                return false;
            }
            let next_query = self.clock.sleep_until(self.clock.now().saturating_add(QUERY_STAGGER));
            tokio::select! {
                biased;
                Some(reply) = round.queries.next() => {
                    let Some(view) = self.accept_view(&mut round, reply) else {
                        if round.views.is_empty() {
                            continue;
                        }
                        // A node that is gone does not count in the choice.
                        match self.choose(&mut round) {
                            Some(view) => return self.install(view, since),
                            None => continue,
                        }
                    };
                    let is_enough = !matches!(from, RefreshSource::Several) || round.views.len() > 1;
                    if is_enough && self.membership.known().is_confirmed_by(&view) {
                        telemetry::record_refresh(&view.node, false);
                        return false;
                    }
                    self.query_more_nodes(from, &mut round, view).await;
                }
                () = next_query => continue,
            }
            if let Some(view) = self.choose(&mut round) {
                return self.install(view, since);
            }
            round.candidates.extend(round.avoided.take());
        }
    }

    /// Asks the sentinels for the master, which serves all slots. Stops sending to the previous
    /// master at once, even if the new master is unreachable.
    async fn fetch_from_sentinels(&self, sentinels: &SentinelGroup) -> bool {
        let since = self.redirect_count();
        let master = match sentinels.query().await {
            Ok(master) => master.address,
            Err(error) => {
                telemetry::emit_refresh_failed(&ConnectionError::from(error).chain());
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
    fn query_next<'a>(&'a self, round: &mut RefreshRound<'a>) {
        if let Some(node) = round.candidates.pop_front() {
            round.queried += 1;
            round.queries.push(self.query(node).boxed());
        }
    }

    /// A node's view, if it counts.
    fn accept_view(
        &self,
        round: &mut RefreshRound<'_>,
        (node, outcome): NodeReply,
    ) -> Option<NodeView> {
        let view = match outcome {
            Ok(view) => view,
            Err(failure) => {
                if failure.is_connection_refused || is_identity_error(&failure) {
                    round.dead_addresses.insert(node);
                }
                round.last_failure = failure;
                return None;
            }
        };
        let Some(reason) = self.membership.known().reject_reason(&view) else {
            return Some(view);
        };
        telemetry::emit_unexpected_server(&node, reason.label(), &reason);
        round.last_failure = reason.at(&node);
        round.dead_addresses.insert(node);
        None
    }

    /// Queries a few nodes at once after one has reported something new, and waits a short time for
    /// them.
    async fn query_more_nodes<'a>(
        &'a self,
        from: &RefreshSource,
        round: &mut RefreshRound<'a>,
        view: NodeView,
    ) {
        round.views.push(view);
        if let RefreshSource::Avoid(avoided) = from {
            let all = round.candidates.len();
            round.candidates.retain(|node| node != avoided);
            round.avoided = (round.candidates.len() < all).then(|| avoided.clone());
        }
        while round.queried < SAMPLE_SIZE && !round.candidates.is_empty() {
            self.query_next(round);
        }
        let mut late = self.clock.sleep_until(self.clock.now().saturating_add(QUERY_STAGGER));
        loop {
            tokio::select! {
                biased;
                reply = round.queries.next() => {
                    let Some(reply) = reply else { return };
                    let view = self.accept_view(round, reply);
                    round.views.extend(view);
                }
                () = &mut late => return,
            }
        }
    }

    /// The view to install, once there is one.
    fn choose(&self, round: &mut RefreshRound<'_>) -> Option<NodeView> {
        let chosen = self.membership.known().choose(&round.views, &round.dead_addresses).cloned();
        if chosen.is_none()
            && let Some(view) = round.views.last()
        {
            telemetry::emit_refresh_outdated(&view.node);
            let message = format!("{} reports an older epoch than the known one", view.node);
            round.last_failure = ConnectionError::not_sent(message);
        }
        chosen
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
            let connection = self.connections.connect(&node, false).await?;
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
        let Some(last) = self.last_start else { return now };
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
