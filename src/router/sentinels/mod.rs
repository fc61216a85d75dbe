//! Finds the master of a server that sentinels watch. Sentinels are queried when a connection is
//! made, when there is trouble, and when one of them reports a change ([`watch`]). [`belief`]
//! decides which of them is believed.

mod belief;
mod deployment;
mod report;
mod watch;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, Either};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::clock::Clock;
use crate::node::{Address, Connector, Node, NodeError};
use crate::router::bad_entries::BadEntries;
use crate::router::belief::Stranger;
use crate::router::connection::Limits;
use crate::router::lock;
use crate::router::telemetry;
use crate::router::tenure::Tenure;
use crate::router::time_limit::TimeLimit;
use crate::router::translation::Translation;
use crate::router::tried::{Failures, Tried};
use belief::{Belief, Learned, is_majority};
use deployment::contradiction;
use report::{Peer, Report, questions};

pub(crate) use watch::watch;

/// How long to wait for the others once most sentinels have answered: one of the others may know of
/// a failover that these have not heard of.
const STAGGER: Duration = Duration::from_millis(100);

/// The most sentinels that are learned from others, beside the configured ones.
const LEARNED: usize = 16;

/// Which sentinels to query, and for which master.
#[derive(Clone, Debug)]
pub(crate) struct SentinelSettings {
    /// The name by which they know the master.
    pub(crate) master: Arc<str>,
    pub(crate) nodes: Vec<Address>,
    /// Connects to sentinels.
    pub(crate) connector: Arc<dyn Connector>,
}

/// The sentinels of a master.
pub(crate) struct Sentinels {
    settings: SentinelSettings,
    clock: Arc<dyn Clock>,
    translation: Translation,
    limits: Limits,
    bad_entries: BadEntries,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    belief: Belief,
    /// The tenure of the current master.
    tenure: Arc<Tenure>,
    /// A process with the run id that sentinels report has been seen at the master's address.
    is_vouched: bool,
    /// The open connections.
    open: HashMap<Address, Arc<dyn Node>>,
    /// The ids of the sentinels that were queried, where they are known.
    ids: HashMap<Address, Box<str>>,
    learned: Vec<Peer>,
    is_closed: bool,
}

/// The master, as sentinels report it.
#[derive(Debug)]
pub(crate) struct Master {
    pub(crate) address: Address,
    pub(crate) tenure: Arc<Tenure>,
    /// The run ids of its process, from the sentinels that know it.
    processes: Vec<Box<str>>,
}

/// Why no sentinel names a master.
#[derive(Clone, Debug)]
pub(crate) enum Untold {
    /// The sentinels that answer know no master of that name, or are of several deployments.
    Invalid(String),
    /// None of these sentinels answers.
    Unheard(Tried, NodeError),
}

impl Sentinels {
    pub(crate) fn new(
        settings: SentinelSettings,
        clock: Arc<dyn Clock>,
        translation: Translation,
        limits: Limits,
    ) -> Self {
        Sentinels {
            settings,
            clock,
            translation,
            limits,
            bad_entries: BadEntries::default(),
            state: Mutex::default(),
        }
    }

    /// Queries all sentinels at once. Returns the master that is then believed in, once any of them
    /// has answered that it knows one and the others have had their time.
    pub(crate) async fn query(&self) -> Result<Master, Untold> {
        let begins = lock(&self.state).belief.master().is_none();
        let (reports, failures) = self.reports(begins).await;
        if reports.iter().all(|report| report.malformed.is_some()) {
            let (tried, failure) = failures.settle(&self.settings.nodes, None);
            return Err(Untold::Unheard(tried, failure));
        }
        match contradiction(&reports).filter(|_| begins) {
            Some(why) => Err(Untold::Invalid(why)),
            None => self.learn(&reports),
        }
    }

    /// Drops all connections and makes no more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.open.clear();
    }

    /// The sentinels to query: the configured ones first, then those that they know.
    pub(crate) fn nodes(&self) -> Vec<Address> {
        self.sentinels().into_iter().map(|(node, _)| node).collect()
    }

    /// The sentinels to query, each with its id if another one has told it.
    fn sentinels(&self) -> Vec<(Address, Option<Box<str>>)> {
        let state = lock(&self.state);
        let mut nodes: Vec<_> = self.settings.nodes.iter().map(|it| (it.clone(), None)).collect();
        for Peer { sentinel, address } in &state.learned {
            let is_named = state.ids.values().any(|id| id == sentinel);
            if !is_named && !nodes.iter().any(|(node, _)| node == address) {
                nodes.push((address.clone(), Some(sentinel.clone())));
            }
        }
        nodes
    }

    /// Returns true if that process may be the master: it has a run id that a sentinel reports, or
    /// no run id is known. Once the right process has been seen at the address, another one there
    /// is a restart, which sentinels notice a little later.
    pub(crate) fn vouch_for(&self, master: &Master, process: Option<&str>) -> bool {
        let Some(process) = process else {
            return true;
        };
        let is_told = master.processes.iter().any(|told| **told == *process);
        let mut state = lock(&self.state);
        state.is_vouched |= is_told;
        state.is_vouched || master.processes.is_empty()
    }

    /// The reports of all sentinels that answer in time, and the failures of the others. When
    /// nothing is known so far (`begins`), each configured sentinel has its time, unless another
    /// one knows it by its address: it may be of another deployment.
    async fn reports(&self, begins: bool) -> (Vec<Report>, Failures) {
        let mut reports: Vec<Report> = Vec::new();
        let mut failures = Failures::default();
        let sentinels = self.sentinels();
        let most = self.settings.nodes.len() + LEARNED;
        let mut queried: HashSet<Address> =
            sentinels.iter().map(|(node, _)| node.clone()).collect();
        let mut pending = queried.clone();
        let mut queries: FuturesUnordered<_> =
            sentinels.into_iter().map(|(node, id)| self.report(node, id).boxed()).collect();
        let mut until = None;
        let mut is_late = false;
        loop {
            let is_needed = |node: &Address| {
                let peers = reports.iter().flat_map(|report| &report.peers);
                self.settings.nodes.contains(node)
                    && !peers.into_iter().any(|it| it.address == *node)
            };
            if is_late && !(begins && pending.iter().any(is_needed)) {
                return (reports, failures);
            }
            let late = async {
                match until {
                    Some(until) if !is_late => self.clock.sleep_until(until).await,
                    _ => future::pending().await,
                }
            };
            let heard = tokio::select! {
                biased;
                heard = queries.next() => heard,
                () = late => {
                    is_late = true;
                    continue;
                }
            };
            let Some((node, outcome)) = heard else {
                return (reports, failures);
            };
            pending.remove(&node);
            match outcome {
                Ok(report) => {
                    if let Some(failure) = &report.malformed {
                        telemetry::sentinel_failed(&node, failure);
                        failures.note(node, failure.clone());
                    }
                    for Peer { sentinel, address } in &report.peers {
                        let is_heard = reports.iter().any(|it| it.id.as_ref() == Some(sentinel));
                        if !is_heard && queried.len() < most && queried.insert(address.clone()) {
                            let query = self.report(address.clone(), Some(sentinel.clone()));
                            queries.push(query.boxed());
                        }
                    }
                    reports.push(report);
                }
                Err(failure) => {
                    telemetry::sentinel_failed(&node, &failure);
                    failures.note(node, failure);
                }
            }
            if until.is_none() && is_majority(&reports, self.settings.nodes.len()) {
                until = Some(self.clock.now().after(STAGGER));
            }
        }
    }

    /// Weighs the reports, and notes the result.
    fn learn(&self, reports: &[Report]) -> Result<Master, Untold> {
        let mut state = lock(&self.state);
        let before = state.belief.master().cloned();
        let learned = state.belief.learn(reports, self.settings.nodes.len(), self.clock.now());
        let (own, foreign): (Vec<&Report>, Vec<&Report>) =
            reports.iter().partition(|report| state.belief.is_own(report));
        for report in foreign {
            let why = Stranger::OtherSentinel;
            telemetry::stranger(&report.source, why.word(), &why);
        }
        state.note_peers(&own);
        let (Some(address), Some(epoch)) = (state.belief.master().cloned(), state.belief.epoch())
        else {
            return Err(self.no_such_master());
        };
        match learned {
            Learned::Nothing => return Err(self.no_such_master()),
            Learned::Same => {}
            Learned::Outdated => telemetry::refresh_outdated(&address),
            Learned::Changed => {
                state.tenure.end();
                state.tenure = Arc::default();
                state.is_vouched = false;
                if let Some(before) = before {
                    telemetry::master_changed(&before, &address, epoch);
                }
            }
        }
        let naming = own.iter().filter_map(|report| report.master.as_ref());
        let processes = naming.filter(|named| named.address == address);
        let processes = processes.filter_map(|named| named.process.clone()).collect();
        Ok(Master { address, tenure: state.tenure.clone(), processes })
    }

    fn no_such_master(&self) -> Untold {
        Untold::Invalid(format!(
            "the sentinels know no master of the name `{}`",
            self.settings.master
        ))
    }

    /// Queries one sentinel, within the time limits. With `id`, another sentinel at this address is
    /// a failure: that id was told as the one that is there.
    async fn report(
        &self,
        node: Address,
        id: Option<Box<str>>,
    ) -> (Address, Result<Report, NodeError>) {
        let outcome = self.query_one(&node).await.and_then(|report| match (&report.id, &id) {
            (Some(found), Some(told)) if found != told => {
                let why = Stranger::OtherSentinel;
                telemetry::stranger(&node, why.word(), &why);
                Err(NodeError {
                    source: Some(Arc::new(why)),
                    ..NodeError::unsent(format!("at {node} there is {why}"))
                })
            }
            _ => Ok(report),
        });
        match &outcome {
            Ok(report) if self.settings.nodes.contains(&node) => {
                let sentinel = report.id.clone().unwrap_or_else(|| node.to_string().into());
                lock(&self.state).ids.insert(node.clone(), sentinel);
            }
            Ok(_) => {}
            Err(_) => drop(lock(&self.state).open.remove(&node)),
        }
        (node, outcome)
    }

    /// Uses the open connection if that still works, and a new one otherwise.
    async fn query_one(&self, node: &Address) -> Result<Report, NodeError> {
        let open = {
            let state = lock(&self.state);
            if state.is_closed {
                return Err(NodeError::unsent("the client is shut down"));
            }
            state.open.get(node).filter(|open| open.is_usable()).cloned()
        };
        if let Some(open) = open
            && let Ok(report) = self.question(node, &*open, self.limits.of_replies()).await
        {
            return Ok(report);
        }
        let dial = self.settings.connector.connect(node);
        let limit = self.limits.of_opening();
        let connection = self.within(limit, node, dial).await?;
        let report = self.question(node, &*connection, limit).await?;
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.open.insert(node.clone(), connection);
        }
        Ok(report)
    }

    async fn question(
        &self,
        node: &Address,
        connection: &dyn Node,
        limit: TimeLimit,
    ) -> Result<Report, NodeError> {
        let answering = connection.pipeline(&questions(&self.settings.master));
        let replies = self.within(limit, node, answering).await?;
        let skip = |entry| self.bad_entries.report(node, entry);
        Report::read(replies, node, &self.translation, skip)
    }

    async fn within<T>(
        &self,
        limit: TimeLimit,
        node: &Address,
        work: impl Future<Output = Result<T, NodeError>> + Unpin,
    ) -> Result<T, NodeError> {
        let until = self.clock.now().after(limit.length);
        match future::select(work, self.clock.sleep_until(until)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(limit.no_reply(node)),
        }
    }
}

impl State {
    /// Keeps the sentinels that answer now or that others know, and forgets the rest: sentinels
    /// forget what is gone. (No sentinel names itself.) A sentinel that was reset knows no other
    /// for a moment.
    fn note_peers(&mut self, reports: &[&Report]) {
        if reports.iter().all(|report| report.peers.is_empty()) {
            return;
        }
        let answers =
            |peer: &&Peer| reports.iter().any(|report| report.id.as_ref() == Some(&peer.sentinel));
        let peers = reports.iter().flat_map(|report| &report.peers);
        let mut learned: Vec<Peer> = Vec::new();
        for peer in self.learned.iter().filter(answers).chain(peers) {
            let is_new = learned.iter().all(|other| other.sentinel != peer.sentinel);
            if is_new && learned.len() < LEARNED {
                learned.push(peer.clone());
            }
        }
        self.learned = learned;
        let State { open, ids, learned, .. } = self;
        open.retain(|address, _| {
            ids.contains_key(address) || learned.iter().any(|peer| peer.address == *address)
        });
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl From<Untold> for NodeError {
    fn from(untold: Untold) -> NodeError {
        match untold {
            Untold::Invalid(why) => NodeError::unsent(why),
            Untold::Unheard(_, failure) => NodeError {
                permanent: failure.permanent,
                source: Some(Arc::new(failure)),
                ..NodeError::unsent("no sentinel tells where the master is")
            },
        }
    }
}
