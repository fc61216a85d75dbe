//! Finds the master of a server that sentinels watch. Sentinels are queried when a connection is
//! made, when there is trouble, and when one of them reports a change ([`subscription`]).
//! [`master_view`] decides which report counts.

mod deployment;
mod master_view;
mod report;
mod subscription;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, TryFutureExt};
use rwlease_core::resp::Address;

use crate::backend::{CommandConnection, ConnectionError, Connector};
use crate::clock::Clock;
use crate::locks::lock;
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntries;
use crate::router::connections::connect_error::connect_error;
use crate::router::connections::limits::{ConnectionLimits, TimeLimit};
use crate::router::connections::unexpected_server::UnexpectedServer;
use crate::router::server_list::{Failures, ServerList};
use crate::router::telemetry;
use deployment::contradiction;
use master_view::{MasterUpdate, MasterView, is_majority};
use report::{SentinelPeer, SentinelReport, report_commands};

#[cfg(feature = "__testing")]
pub(crate) use report::SentinelReport as ReportForTests;
pub(crate) use subscription::run_subscriptions;

/// How long to wait for the remaining sentinels once most have replied. A remaining sentinel may
/// know of a failover before the others.
const STRAGGLER_WAIT: Duration = Duration::from_millis(100);

/// The maximum number of sentinels that are learned from other sentinels.
const MAX_DISCOVERED: usize = 16;

/// The sentinels to query, and the master to query them for.
#[derive(Clone)]
pub(crate) struct SentinelTargets {
    /// The name of the master in the configuration of the sentinels.
    pub(crate) master: Arc<str>,
    pub(crate) nodes: Vec<Address>,
    /// Connects to sentinels.
    pub(crate) connector: Arc<dyn Connector>,
}

/// The sentinels of a master.
pub(crate) struct SentinelGroup {
    settings: SentinelTargets,
    clock: Arc<dyn Clock>,
    translation: AddressTranslator,
    limits: ConnectionLimits,
    bad_entries: BadEntries,
    state: Mutex<SentinelState>,
}

#[derive(Default)]
struct SentinelState {
    view: MasterView,
    /// Whether the term of the current master has ended. Its connections share the flag.
    term_ended: Arc<AtomicBool>,
    /// A process with the run id that sentinels report has been seen at the master's address.
    run_id_confirmed: bool,
    /// The open connections.
    connections: HashMap<Address, Arc<dyn CommandConnection>>,
    /// The ids of the sentinels that were queried, where they are known.
    ids: HashMap<Address, Box<str>>,
    discovered: Vec<SentinelPeer>,
    is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct SentinelMaster {
    pub(crate) address: Address,
    /// Set when another server is the master.
    pub(crate) term_ended: Arc<AtomicBool>,
    /// The run ids of its process, from the sentinels that know it.
    processes: Vec<Box<str>>,
}

/// Why no sentinel names a master.
#[derive(Clone, Debug)]
pub(crate) enum SentinelError {
    /// The sentinels that answer know no master of that name, or are of several deployments.
    Invalid(String),
    /// None of these sentinels answers.
    NoReply(ServerList, ConnectionError),
}

impl SentinelError {
    /// Whether no later start of a sentinel can mend it.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            SentinelError::Invalid(_) => true,
            SentinelError::NoReply(_, failure) => failure.is_permanent,
        }
    }
}

impl SentinelGroup {
    pub(crate) fn new(
        settings: SentinelTargets,
        clock: Arc<dyn Clock>,
        translation: AddressTranslator,
        limits: ConnectionLimits,
    ) -> Self {
        SentinelGroup {
            settings,
            clock,
            translation,
            limits,
            bad_entries: BadEntries::default(),
            state: Mutex::default(),
        }
    }

    /// Queries all sentinels at once. Returns the known master after the reports are applied, when
    /// a sentinel has reported a master and the others have replied or timed out.
    pub(crate) async fn query(&self) -> Result<SentinelMaster, SentinelError> {
        let begins = lock(&self.state).view.master().is_none();
        let (reports, failures) = self.reports(begins).await;
        if reports.iter().all(|report| report.malformed.is_some()) {
            // Once a master is known, the sentinels that are silent now may name it later.
            let is_final = begins || failures.are_permanent();
            let (tried, failure) = failures.settle(&self.settings.nodes, None);
            let is_permanent = is_final && failure.is_permanent;
            return Err(SentinelError::NoReply(tried, ConnectionError { is_permanent, ..failure }));
        }
        match contradiction(&reports).filter(|_| begins) {
            Some(why) => Err(SentinelError::Invalid(why)),
            None => self.apply_reports(&reports),
        }
    }

    /// Drops all connections and opens no more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.connections.clear();
    }

    /// The sentinels to query: the configured ones first, then those that they know.
    pub(crate) fn nodes(&self) -> Vec<Address> {
        self.sentinels().into_iter().map(|(node, _)| node).collect()
    }

    /// The sentinels to query, each with its id if another one has told it.
    fn sentinels(&self) -> Vec<(Address, Option<Box<str>>)> {
        let state = lock(&self.state);
        let mut nodes: Vec<_> = self.settings.nodes.iter().map(|it| (it.clone(), None)).collect();
        for SentinelPeer { sentinel, address } in &state.discovered {
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
    pub(crate) fn accepts_process(&self, master: &SentinelMaster, process: Option<&str>) -> bool {
        let Some(process) = process else {
            return true;
        };
        let is_reported = master.processes.iter().any(|reported| **reported == *process);
        let mut state = lock(&self.state);
        state.run_id_confirmed |= is_reported;
        state.run_id_confirmed || master.processes.is_empty()
    }

    /// The reports of all sentinels that answer in time, and the failures of the others. When
    /// nothing is known so far (`begins`), each configured sentinel has its time, unless another
    /// one knows it by its address: it may be of another deployment.
    async fn reports(&self, begins: bool) -> (Vec<SentinelReport>, Failures) {
        let mut reports: Vec<SentinelReport> = Vec::new();
        let mut failures = Failures::default();
        let sentinels = self.sentinels();
        let most = self.settings.nodes.len() + MAX_DISCOVERED;
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
            let reply = tokio::select! {
                biased;
                reply = queries.next() => reply,
                () = late => {
                    is_late = true;
                    continue;
                }
            };
            let Some((node, outcome)) = reply else {
                return (reports, failures);
            };
            pending.remove(&node);
            match outcome {
                Ok(report) => {
                    if let Some(failure) = &report.malformed {
                        telemetry::emit_sentinel_failed(&node, &failure.chain());
                        failures.note(node, failure.clone());
                    }
                    for SentinelPeer { sentinel, address } in &report.peers {
                        let is_heard = reports.iter().any(|it| it.id.as_ref() == Some(sentinel));
                        if !is_heard && queried.len() < most && queried.insert(address.clone()) {
                            let query = self.report(address.clone(), Some(sentinel.clone()));
                            queries.push(query.boxed());
                        }
                    }
                    reports.push(report);
                }
                Err(failure) => {
                    telemetry::emit_sentinel_failed(&node, &failure.chain());
                    failures.note(node, failure);
                }
            }
            if until.is_none() && is_majority(&reports, self.settings.nodes.len()) {
                until = Some(self.clock.now().saturating_add(STRAGGLER_WAIT));
            }
        }
    }

    /// Weighs the reports, and notes the result.
    fn apply_reports(&self, reports: &[SentinelReport]) -> Result<SentinelMaster, SentinelError> {
        let mut state = lock(&self.state);
        let before = state.view.master().cloned();
        let learned = state.view.update(reports, self.settings.nodes.len(), self.clock.now());
        let (own, foreign): (Vec<&SentinelReport>, Vec<&SentinelReport>) =
            reports.iter().partition(|report| state.view.is_own(report));
        state.update_peers(&own);
        let known = state.view.master().cloned().zip(state.view.epoch());
        if learned == MasterUpdate::Changed {
            std::mem::take(&mut state.term_ended).store(true, Ordering::Release);
            state.run_id_confirmed = false;
        }
        let term_ended = state.term_ended.clone();
        drop(state);
        // The caller's subscriber runs from here on, so nothing is locked.
        for report in foreign {
            let why = UnexpectedServer::OtherSentinel;
            telemetry::emit_unexpected_server(&report.source, why.label(), &why);
        }
        let Some((address, epoch)) = known else {
            return Err(self.no_such_master());
        };
        match learned {
            MasterUpdate::NoMaster => return Err(self.no_such_master()),
            MasterUpdate::Unchanged => {}
            MasterUpdate::Outdated => telemetry::emit_refresh_outdated(&address),
            MasterUpdate::Changed => {
                if let Some(before) = before {
                    telemetry::record_master_change(&before, &address, epoch);
                }
            }
        }
        let naming = own.iter().filter_map(|report| report.master.as_ref());
        let processes = naming.filter(|named| named.address == address);
        let processes = processes.filter_map(|named| named.run_id.clone()).collect();
        Ok(SentinelMaster { address, term_ended, processes })
    }

    fn no_such_master(&self) -> SentinelError {
        SentinelError::Invalid(format!(
            "the sentinels do not know the master `{}`; check its name",
            self.settings.master
        ))
    }

    /// Queries one sentinel, within the time limits. With `id`, another sentinel at this address is
    /// a failure: that id was told as the one that is there.
    async fn report(
        &self,
        node: Address,
        id: Option<Box<str>>,
    ) -> (Address, Result<SentinelReport, ConnectionError>) {
        let outcome = self.query_one(&node).await.and_then(|report| match (&report.id, &id) {
            (Some(found), Some(reported)) if found != reported => {
                let why = UnexpectedServer::OtherSentinel;
                telemetry::emit_unexpected_server(&node, why.label(), &why);
                Err(why.at(&node))
            }
            _ => Ok(report),
        });
        match &outcome {
            Ok(report) if self.settings.nodes.contains(&node) => {
                let sentinel = report.id.clone().unwrap_or_else(|| node.to_string().into());
                lock(&self.state).ids.insert(node.clone(), sentinel);
            }
            Ok(_) => {}
            Err(_) => {
                let mut state = lock(&self.state);
                state.connections.remove(&node);
                // The sentinel may have another address now, where it is asked only if it is not
                // known to be here.
                state.ids.remove(&node);
            }
        }
        (node, outcome)
    }

    /// Uses the open connection if that still works, and a new one otherwise.
    async fn query_one(&self, node: &Address) -> Result<SentinelReport, ConnectionError> {
        let open = {
            let state = lock(&self.state);
            if state.is_closed {
                return Err(ConnectionError::not_sent("the client is shut down"));
            }
            state.connections.get(node).filter(|open| open.is_usable()).cloned()
        };
        if let Some(open) = open
            && let Ok(report) = self.send_queries(node, &*open, self.limits.of_replies()).await
        {
            return Ok(report);
        }
        let connector = &self.settings.connector;
        let failed = |failure| connect_error(failure, node, connector.uses_tls());
        let dial = connector.connect(node, None).map_err(failed);
        let limit = self.limits.of_opening();
        let connection = limit.apply(&*self.clock, node, dial).await?;
        let report = self.send_queries(node, &*connection, limit).await?;
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.connections.insert(node.clone(), connection);
        }
        Ok(report)
    }

    async fn send_queries(
        &self,
        node: &Address,
        connection: &dyn CommandConnection,
        limit: TimeLimit,
    ) -> Result<SentinelReport, ConnectionError> {
        let answering = connection
            .pipeline(&report_commands(&self.settings.master))
            .map_err(|failure: ConnectionError| failure.at(node));
        let replies = limit.apply(&*self.clock, node, answering).await?;
        let skip = |entry| self.bad_entries.report(node, entry);
        SentinelReport::read(replies, node, &self.translation, skip)
    }
}

impl SentinelState {
    /// Keeps the sentinels that answer now or that others know, and forgets the rest: sentinels
    /// forget what is gone. (No sentinel names itself.) A sentinel that was reset knows no other
    /// for a moment.
    fn update_peers(&mut self, reports: &[&SentinelReport]) {
        if reports.iter().all(|report| report.peers.is_empty()) {
            return;
        }
        let is_of = |report: &SentinelReport, peer: &SentinelPeer| {
            report.id.as_ref() == Some(&peer.sentinel)
        };
        let answering =
            self.discovered.iter().filter(|peer| reports.iter().any(|report| is_of(report, peer)));
        let reported = reports.iter().flat_map(|report| &report.peers);
        let mut peers: Vec<&SentinelPeer> = reported.chain(answering).collect();
        // A sentinel may have moved. The address at which it answered is the best one, then those
        // that others report now.
        peers.sort_by_key(|peer| {
            !reports.iter().any(|report| is_of(report, peer) && report.source == peer.address)
        });
        let mut learned: Vec<SentinelPeer> = Vec::new();
        for peer in peers {
            let is_new = learned.iter().all(|other| other.sentinel != peer.sentinel);
            if is_new && learned.len() < MAX_DISCOVERED {
                learned.push(peer.clone());
            }
        }
        self.discovered = learned;
        let SentinelState { connections: open, ids, discovered: learned, .. } = self;
        open.retain(|address, _| {
            ids.contains_key(address) || learned.iter().any(|peer| peer.address == *address)
        });
    }
}

impl From<SentinelError> for ConnectionError {
    fn from(error: SentinelError) -> ConnectionError {
        match error {
            SentinelError::Invalid(why) => ConnectionError::not_sent(why),
            SentinelError::NoReply(_, failure) => ConnectionError {
                is_permanent: failure.is_permanent,
                ..ConnectionError::not_sent("no sentinel names the master").with_source(failure)
            },
        }
    }
}
