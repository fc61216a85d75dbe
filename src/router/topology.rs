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

use crate::backoff::{Backoff, jittered};
use crate::clock::{Clock, Moment};
use crate::node::{Address, NodeError};
use crate::router::belief::{Admission, Kind, Stranger, Told, View};
use crate::router::call::{CallError, Reason};
use crate::router::connection::Connection;
use crate::router::connections::Connections;
use crate::router::membership::Membership;
use crate::router::runtime::Runtime;
use crate::router::sentinels::{Sentinels, Untold};
use crate::router::telemetry;
use crate::router::translation::Translation;
use crate::router::tried::Tried;
use crate::router::unopened::{Announcer, announced};
use crate::router::watchers::Watchers;
use crate::router::{Slot, lock};

/// The interval from the start of one refresh to the start of the next. It doubles after each
/// refresh that brought nothing new.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);
/// The longest interval while a call waits for a server that does not answer.
const URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// How long one node is waited for before the next one is queried as well.
pub(crate) const STAGGER: Duration = Duration::from_millis(100);

/// How many nodes are queried once one has reported something new.
pub(crate) const SAMPLE: usize = 5;

/// The latest place of a seed among the nodes that are queried: the configured names lead to the
/// nodes that exist now.
const SEED_AT: usize = 2;

/// Which nodes a refresh queries first.
#[derive(Clone, Debug)]
pub(crate) enum RefreshFrom {
    Anyone,
    /// Several, even if the first one reports nothing new: it may be behind.
    Several,
    /// This one knows best: it was just named as a master.
    First(Address),
    /// Not this one, unless no other node answers: it is in trouble.
    Another(Address),
}

/// The slot map, shared by all calls.
#[derive(Debug)]
pub(crate) struct Topology {
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
    seeds: Vec<Address>,
    membership: Arc<Membership>,
    /// Notified when a slot changes its master. (Unlike `watch` it wakes tasks in the order of
    /// their arrival, so a simulation can be repeated.)
    changed: Notify,
    refreshing: Mutex<Refreshing>,
    watchers: Watchers,
    runtime: Runtime,
}

#[derive(Debug, Default)]
struct Refreshing {
    under_way: Option<Shared<BoxFuture<'static, ()>>>,
    /// When the last refresh began.
    last: Option<Moment>,
    /// When the refresh under way begins.
    begin: Moment,
    /// Wakes the refresh under way when it should begin earlier.
    hurry: Arc<Notify>,
    /// Refreshes in a row that brought nothing new.
    unchanged: u32,
}

/// Why there is no map.
#[derive(Debug)]
pub(crate) enum Unfound {
    /// The seeds are of several deployments.
    Several(String),
    /// The sentinels name no master.
    Untold(Untold),
    /// None of these servers tells it.
    Failed(Tried, NodeError),
}

/// A node that was queried, and its answer.
pub(crate) type Heard = (Address, Result<View, NodeError>);

/// The nodes that are queried for one refresh, and their answers so far.
struct Survey<'a> {
    /// Nodes that are not queried so far.
    candidates: VecDeque<Address>,
    queries: FuturesUnordered<BoxFuture<'a, Heard>>,
    queried: usize,
    views: Vec<View>,
    /// The node that is in trouble. It is queried only if the others cannot settle the map.
    spared: Option<Address>,
    /// Addresses where nothing listens, or a server of another cluster does.
    gone: HashSet<Address>,
    last_failure: NodeError,
}

impl Topology {
    pub(crate) fn new(
        runtime: Runtime,
        connections: Arc<Connections>,
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
            watchers: Watchers::default(),
            runtime,
        })
    }

    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        self.membership.sentinels().map(|sentinels| &**sentinels)
    }

    /// The number of lessons so far. A view that is requested from now on should include them.
    pub(crate) fn lesson(&self) -> u64 {
        self.membership.known().lesson()
    }

    /// The connection to a server, which is dialled if there is none.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Arc<Connection>, NodeError> {
        self.connections.connect(address).await
    }

    pub(crate) fn translation(&self) -> &Translation {
        self.membership.translation()
    }

    /// Adds to the failure to reach an address who announced it, if no setting names it:
    /// `named_by`, or the server whose map is known.
    pub(crate) fn explain(
        &self,
        failure: NodeError,
        address: &Address,
        named_by: Option<&Address>,
    ) -> NodeError {
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
    pub(crate) fn moved(self: &Arc<Self>, slot: Slot, to: &Address) {
        let is_news = self.membership.known_mut().moved(slot, to);
        if is_news {
            self.changed.notify_waiters();
            lock(&self.refreshing).unchanged = 0;
        }
        drop(self.refresh(RefreshFrom::First(to.clone())));
    }

    /// Handles a sentinel's report that the master has changed: queries all sentinels at once.
    /// Queries them again after that, because a query under way may have begun before the report.
    pub(crate) async fn hear_of_change(self: &Arc<Self>) {
        for _ in 0..2 {
            lock(&self.refreshing).unchanged = 0;
            self.refresh(RefreshFrom::Several).await;
        }
    }

    /// Starts a refresh of the map, unless one is under way. The returned future may be awaited or
    /// dropped.
    pub(crate) fn refresh(self: &Arc<Self>, from: RefreshFrom) -> Shared<BoxFuture<'static, ()>> {
        self.refresh_within(from, LONGEST_INTERVAL)
    }

    /// As `refresh`, at most `longest` after the last one began.
    fn refresh_within(
        self: &Arc<Self>,
        from: RefreshFrom,
        longest: Duration,
    ) -> Shared<BoxFuture<'static, ()>> {
        let mut refreshing = lock(&self.refreshing);
        let begin = refreshing.next_begin(self.clock.now(), longest);
        let running = refreshing.under_way.as_ref();
        if let Some(under_way) = running.filter(|under_way| under_way.peek().is_none()).cloned() {
            refreshing.hasten(begin);
            return under_way;
        }
        refreshing.begin = begin;
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        self.runtime.spawn("refresh of the slot map", async move {
            this.wait_to_begin().await;
            // A failure is logged there, and every call that needs the map refreshes again.
            let changed = this.fetch(&from).await;
            let mut refreshing = lock(&this.refreshing);
            refreshing.unchanged = if changed { 0 } else { (refreshing.unchanged + 1).min(16) };
            refreshing.under_way = None;
            drop(refreshing);
            let _ = tell.send(());
        });
        let under_way = told.map(drop).boxed().shared();
        refreshing.under_way = Some(under_way.clone());
        under_way
    }

    /// Waits until the refresh under way should begin. That time can become earlier meanwhile.
    async fn wait_to_begin(&self) {
        loop {
            let (begin, hurry) = {
                let mut refreshing = lock(&self.refreshing);
                let now = self.clock.now();
                if now >= refreshing.begin {
                    refreshing.last = Some(now);
                    return;
                }
                (refreshing.begin, refreshing.hurry.clone())
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
    pub(crate) async fn master_left(self: &Arc<Self>, slot: Slot, address: &Address) {
        self.look_later().await;
        let look = || self.clone().look_beside(address.clone());
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
    async fn look_beside(self: Arc<Self>, troubled: Address) {
        loop {
            self.refresh_within(RefreshFrom::Another(troubled.clone()), URGENT_INTERVAL).await;
            self.look_later().await;
        }
    }

    async fn look_later(&self) {
        let pause = jittered(2 * FIRST_INTERVAL);
        self.clock.sleep_until(self.clock.now().after(pause)).await;
    }

    /// Fetches the map anew. One node that reports nothing new is enough; otherwise a few are
    /// queried, and one of their views is chosen. A slow node causes little delay, because the next
    /// one is soon queried too. Returns true if a slot has another master now.
    async fn fetch(&self, from: &RefreshFrom) -> bool {
        if let Some(sentinels) = self.sentinels() {
            return self.fetch_from_sentinels(sentinels).await;
        }
        let since = self.lesson();
        let mut survey = Survey {
            candidates: self.candidates(from).into(),
            queries: FuturesUnordered::new(),
            queried: 0,
            views: Vec::new(),
            spared: None,
            gone: HashSet::new(),
            last_failure: NodeError::unsent("no node is known"),
        };
        loop {
            self.query_next(&mut survey);
            if survey.queries.is_empty() {
                telemetry::refresh_failed(&survey.last_failure);
                return false;
            }
            let response_timeout = self.clock.sleep_until(self.clock.now().after(STAGGER));
            tokio::select! {
                biased;
                Some(heard) = survey.queries.next() => {
                    let Some(view) = self.admit(&mut survey, heard) else {
                        if survey.views.is_empty() {
                            continue;
                        }
                        // A node that is gone does not count in the choice.
                        match self.choose(&mut survey) {
                            Some(view) => return self.install(view, since),
                            None => continue,
                        }
                    };
                    let is_enough = !matches!(from, RefreshFrom::Several) || survey.views.len() > 1;
                    if is_enough && self.membership.known().is_confirmed_by(&view) {
                        telemetry::refreshed(&view.node, false);
                        return false;
                    }
                    self.sample(from, &mut survey, view).await;
                }
                () = response_timeout => continue,
            }
            if let Some(view) = self.choose(&mut survey) {
                return self.install(view, since);
            }
            survey.candidates.extend(survey.spared.take());
        }
    }

    /// The master that sentinels name serves all slots. Nothing is sent to the one before it any
    /// more, even while the new one cannot be reached.
    async fn fetch_from_sentinels(&self, sentinels: &Sentinels) -> bool {
        let since = self.lesson();
        let master = match sentinels.query().await {
            Ok(master) => master.address,
            Err(untold) => {
                telemetry::refresh_failed(&NodeError::from(untold));
                return false;
            }
        };
        if self.knows(&master) {
            telemetry::refreshed(&master, false);
            return false;
        }
        self.install(View { node: master, told: Told::Alone(None) }, since)
    }

    /// Queries the next node, if there is one.
    fn query_next<'a>(&'a self, survey: &mut Survey<'a>) {
        if let Some(node) = survey.candidates.pop_front() {
            survey.queried += 1;
            survey.queries.push(self.query(node).boxed());
        }
    }

    /// A node's view, if it counts.
    fn admit(&self, survey: &mut Survey<'_>, (node, outcome): Heard) -> Option<View> {
        let view = match outcome {
            Ok(view) => view,
            Err(failure) => {
                if failure.refused || is_of_stranger(&failure) {
                    survey.gone.insert(node);
                }
                survey.last_failure = failure;
                return None;
            }
        };
        let Some(why) = self.membership.known().refusal(&view) else {
            return Some(view);
        };
        telemetry::stranger(&node, why.word(), &why);
        survey.last_failure = NodeError {
            source: Some(Arc::new(why)),
            ..NodeError::unsent(format!("at {node} there is {why}"))
        };
        survey.gone.insert(node);
        None
    }

    /// Queries a few nodes at once after one has reported something new, and waits a short time for
    /// them.
    async fn sample<'a>(&'a self, from: &RefreshFrom, survey: &mut Survey<'a>, view: View) {
        survey.views.push(view);
        if let RefreshFrom::Another(troubled) = from {
            let all = survey.candidates.len();
            survey.candidates.retain(|node| node != troubled);
            survey.spared = (survey.candidates.len() < all).then(|| troubled.clone());
        }
        while survey.queried < SAMPLE && !survey.candidates.is_empty() {
            self.query_next(survey);
        }
        let mut late = self.clock.sleep_until(self.clock.now().after(STAGGER));
        loop {
            tokio::select! {
                biased;
                heard = survey.queries.next() => {
                    let Some(heard) = heard else { return };
                    let view = self.admit(survey, heard);
                    survey.views.extend(view);
                }
                () = &mut late => return,
            }
        }
    }

    /// The view to install, once there is one.
    fn choose(&self, survey: &mut Survey<'_>) -> Option<View> {
        let chosen = self.membership.known().choose(&survey.views, &survey.gone).cloned();
        if chosen.is_none()
            && let Some(view) = survey.views.last()
        {
            telemetry::refresh_outdated(&view.node);
            survey.last_failure =
                NodeError::unsent(format!("{} tells of an older epoch than is known", view.node));
        }
        chosen
    }

    /// Of the first views, the one to install.
    pub(crate) fn first_choice(&self, views: &[View]) -> Option<View> {
        self.membership.known().choose(views, &HashSet::new()).cloned()
    }

    /// Closes connections to nodes that are no longer part of the cluster.
    pub(crate) fn forget_strangers(&self) {
        let known = self.membership.known();
        self.connections.retain(|address| known.map.has(address) || self.seeds.contains(address));
    }

    /// Stops all queries for the master.
    pub(crate) fn close(&self) {
        if let Some(sentinels) = self.sentinels() {
            sentinels.close();
        }
    }

    /// Returns true if this is a node of the cluster.
    pub(crate) fn knows(&self, address: &Address) -> bool {
        self.membership.known().map.has(address)
    }

    pub(crate) fn install(&self, view: View, since: u64) -> bool {
        let node = view.node.clone();
        let changed = self.membership.known_mut().install(view, since);
        // Some may have been opened before anything was known. (Lock order: what is known before
        // the connections.)
        let known = self.membership.known();
        self.connections.retire_where(|address, connection| {
            connection.is_over()
                || match known.admission(address, connection.identity(), connection.process()) {
                    Admission::Welcome => false,
                    // The new map may come from a node that lags behind.
                    Admission::QueryItsMap => !connection.has_shown_map(),
                    Admission::FindTheFirst | Admission::Refused(_) => true,
                }
        });
        drop(known);
        telemetry::refreshed(&node, changed);
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// The nodes to query, in order: connected ones, other known ones, seeds. One of the seeds is
    /// among the first three.
    fn candidates(&self, from: &RefreshFrom) -> Vec<Address> {
        let known = self.membership.known();
        let mut nodes = known.map.nodes().to_vec();
        if known.kind != Kind::Cluster {
            return nodes;
        }
        fastrand::shuffle(&mut nodes);
        nodes.sort_by_key(|address| self.connections.ready(address).is_none());
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        seeds.sort_by_key(|seed| known.map.has(seed));
        drop(known);
        if let RefreshFrom::First(first) = from {
            nodes.retain(|address| address != first);
            nodes.insert(0, first.clone());
        }
        if let RefreshFrom::Another(last) = from {
            seeds.sort_by_key(|seed| seed == last);
            nodes.retain(|address| address != last);
        }
        for (number, seed) in seeds.into_iter().enumerate() {
            let early = &nodes[..nodes.len().min(SEED_AT + 1)];
            if number == 0 && !early.contains(&seed) {
                nodes.retain(|address| *address != seed);
                nodes.insert(nodes.len().min(SEED_AT), seed);
            } else if !nodes.contains(&seed) {
                nodes.push(seed);
            }
        }
        if let RefreshFrom::Another(last) = from {
            nodes.retain(|address| address != last);
            nodes.push(last.clone());
        }
        nodes
    }

    pub(crate) async fn query(&self, node: Address) -> Heard {
        let queried = async {
            let connection = self.connections.connect(&node).await?;
            self.membership.view(&connection, &node).await
        };
        let outcome = queried.await;
        (node, outcome)
    }
}

/// Returns true if a connection was refused because of the server's identity.
fn is_of_stranger(failure: &NodeError) -> bool {
    failure.source.as_ref().is_some_and(|source| source.is::<Stranger>())
}

impl Refreshing {
    /// When the next refresh may begin.
    fn next_begin(&mut self, now: Moment, longest: Duration) -> Moment {
        let Some(last) = self.last else { return now };
        if now >= last.after(LONGEST_INTERVAL) {
            self.unchanged = 0;
        }
        let interval =
            Backoff::new(FIRST_INTERVAL, longest).pause(self.unchanged.saturating_sub(1));
        // Never sooner than the shortest interval, so that many callers cause no storm.
        last.after(interval.max(FIRST_INTERVAL)).max(now)
    }

    /// Moves the start of the refresh under way up to `by`, if it has not begun.
    fn hasten(&mut self, by: Moment) {
        if by < self.begin {
            self.begin = by;
            self.hurry.notify_one();
        }
    }
}

impl Unfound {
    pub(crate) fn into_call_error(self) -> CallError {
        let (reason, last) = match self {
            Unfound::Several(why) => (Reason::Invalid(why), None),
            Unfound::Untold(Untold::Invalid(why)) => (Reason::Invalid(why), None),
            Unfound::Untold(Untold::Unheard(_, failure)) | Unfound::Failed(_, failure)
                if failure.permanent =>
            {
                (Reason::Permanent, Some(failure))
            }
            Unfound::Untold(Untold::Unheard(tried, failure)) => {
                (Reason::NoSentinel(tried, failure.to_string()), Some(failure))
            }
            Unfound::Failed(tried, failure) => {
                (Reason::Unreachable(tried, failure.to_string()), Some(failure))
            }
        };
        CallError { reason, in_doubt: None, last }
    }
}
