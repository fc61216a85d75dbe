//! Admits connections that lead to the known servers, and no others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::TryFutureExt;
use futures::future::{join_all, try_join};
use rwlease_core::resp::{Address, Command, ReplyShape, RespValue};

use crate::backend::{ConnectionError, Connector};
use crate::clock::Clock;
use crate::locks::{lock, read, write};
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntries;
use crate::router::cluster::known_cluster::{Admission, DeploymentKind, KnownCluster};
use crate::router::cluster::node_view::{NodeView, query_node_view};
use crate::router::connections::limits::{ConnectionLimits, TimeLimit};
use crate::router::connections::server_connection::ServerConnection;
use crate::router::connections::server_info::{ServerIdentity, ServerProcess, field};
use crate::router::connections::unexpected_server::UnexpectedServer;
use crate::router::sentinel::SentinelGroup;
use crate::router::telemetry;

/// The known servers. All parts that open connections share it.
pub(crate) struct Membership {
    known: RwLock<KnownCluster>,
    /// Without a cluster: whether another process has replaced the one found first. The flag ends
    /// all connections to the replaced process.
    term_ended: Mutex<Arc<AtomicBool>>,
    translation: AddressTranslator,
    limits: ConnectionLimits,
    /// The sentinels that name the master, if there are any.
    sentinels: Option<Arc<SentinelGroup>>,
    bad_entries: BadEntries,
}

impl Membership {
    pub(crate) fn new(
        translation: AddressTranslator,
        limits: ConnectionLimits,
        sentinels: Option<Arc<SentinelGroup>>,
    ) -> Self {
        Membership {
            known: RwLock::default(),
            term_ended: Mutex::default(),
            translation,
            limits,
            sentinels,
            bad_entries: BadEntries::default(),
        }
    }

    pub(crate) fn sentinels(&self) -> Option<&Arc<SentinelGroup>> {
        self.sentinels.as_ref()
    }

    pub(crate) fn translation(&self) -> &AddressTranslator {
        &self.translation
    }

    pub(crate) fn known(&self) -> RwLockReadGuard<'_, KnownCluster> {
        read(&self.known)
    }

    pub(crate) fn known_mut(&self) -> RwLockWriteGuard<'_, KnownCluster> {
        write(&self.known)
    }

    /// Queries a node for its view of the cluster. The first query belongs to the opening of the
    /// connection.
    pub(crate) async fn view(
        &self,
        connection: &Arc<ServerConnection>,
        node: &Address,
    ) -> Result<NodeView, ConnectionError> {
        let is_first = self.known().kind == DeploymentKind::Unknown;
        let limit = if is_first { self.limits.of_opening() } else { self.limits.of_replies() };
        self.view_within(connection, node, limit).await
    }

    async fn view_within(
        &self,
        connection: &Arc<ServerConnection>,
        node: &Address,
        limit: TimeLimit,
    ) -> Result<NodeView, ConnectionError> {
        let skip = |entry| self.bad_entries.report(node, entry);
        query_node_view(connection, node, limit, &self.translation, skip).await
    }

    /// Connects, and checks that the server is a known one.
    pub(crate) async fn open(
        &self,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: ConnectionLimits,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        if let Some(sentinels) = &self.sentinels {
            return self.open_master(sentinels, connector, clock, address, limits).await;
        }
        let connection = Arc::new(
            ServerConnection::open(connector, clock.clone(), address, None, limits).await?,
        );
        // Before it is judged: a replacement after that ends the term.
        let term_ended = lock(&self.term_ended).clone();
        match self.admission(address, &connection) {
            Admission::Admitted => {
                connection.bind_to_term(term_ended);
                self.record_address(&connection);
                Ok(connection)
            }
            Admission::CheckSlotMap => self.check_slot_map(address, connection).await,
            Admission::FindOriginal => {
                self.find_original_process(connector, clock, address, limits, connection).await
            }
            Admission::Rejected(why) => Err(rejection_error(address, why)),
        }
    }

    /// Connects to the master that sentinels name. They are queried each time, because the address
    /// may have led to the master before and not now. What the server says about itself is not
    /// enough.
    async fn open_master(
        &self,
        sentinels: &SentinelGroup,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: ConnectionLimits,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        let opening = ServerConnection::open(connector, clock.clone(), address, None, limits);
        let (connection, master) =
            try_join(opening, sentinels.query().map_err(ConnectionError::from)).await?;
        if master.address != *address {
            return Err(rejection_error(address, UnexpectedServer::Replaced));
        }
        if matches!(connection.identity, ServerIdentity::ClusterNode(_)) {
            return Err(rejection_error(address, UnexpectedServer::ClusterNode));
        }
        if !sentinels.accepts_process(&master, connection.process_name.as_deref()) {
            return Err(rejection_error(address, UnexpectedServer::OtherProcess));
        }
        let connection = Arc::new(connection);
        if self.is_replica(&connection, address).await? {
            return Err(rejection_error(address, UnexpectedServer::Replica));
        }
        connection.bind_to_term(master.term_ended);
        Ok(connection)
    }

    /// Queries the server itself. A server that does not report its role refuses what it cannot do.
    async fn is_replica(
        &self,
        connection: &Arc<ServerConnection>,
        address: &Address,
    ) -> Result<bool, ConnectionError> {
        let question = Command::new().arg("INFO").arg("replication").expecting(ReplyShape::Text);
        let replies = connection.query(address, &[question], self.limits.of_opening()).await?;
        Ok(
            matches!(&*replies, [RespValue::String(info)] if field(info, "role:").as_deref() == Some("slave")),
        )
    }

    /// The process that was found first is remembered at the address where it was found last.
    fn record_address(&self, connection: &ServerConnection) {
        let Some(met) = connection.observed_process().filter(|met| met.resolved_addr.is_some())
        else {
            return;
        };
        let first = self.known().original_process();
        if let Some(first) =
            first.filter(|first| first.name == met.name && first.resolved_addr != met.resolved_addr)
        {
            let _ = self.known_mut().replace_process(&first, met);
        }
    }

    pub(crate) fn admission(&self, address: &Address, connection: &ServerConnection) -> Admission {
        let process = connection.process_name.as_deref();
        self.known().admission(address, &connection.identity, process)
    }

    /// Checks a node that is not in the known map: it may have joined since, or belong to another
    /// cluster.
    async fn check_slot_map(
        &self,
        address: &Address,
        connection: Arc<ServerConnection>,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        let view = self.view_within(&connection, address, self.limits.of_opening()).await?;
        // The caller's subscriber may run after this, so nothing stays locked.
        let reason = self.known().reject_reason(&view);
        match reason {
            None => {
                connection.mark_map_verified();
                Ok(connection)
            }
            Some(why) => Err(rejection_error(address, why)),
        }
    }

    /// Checks a process other than the original one at this name. Accepts the new process only if
    /// the original one is gone. The original is gone if no resolved address reaches it and its
    /// last address refuses connections.
    async fn find_original_process(
        &self,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: ConnectionLimits,
        found: Arc<ServerConnection>,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        let Some(first) = self.known().original_process() else {
            return self.admit(address, found);
        };
        let until = clock.now().saturating_add(limits.connect_timeout);
        let addrs = tokio::select! {
            biased;
            addrs = other_addresses(connector, address, &found, first.resolved_addr.as_ref()) => addrs,
            () = clock.sleep_until(until) => {
                let message = format!("{address}: the host name did not resolve in time");
                return Err(ConnectionError::not_sent(message));
            }
        };
        let dials = addrs.iter().map(|addr| {
            ServerConnection::open(connector, clock.clone(), address, Some(addr), limits)
        });
        let dialled = join_all(dials).await;
        match search_result(&first, found, addrs.iter().zip(dialled)) {
            ProcessSearch::Alive(connection) => {
                self.record_address(&connection);
                self.admit(address, connection)
            }
            ProcessSearch::Unknown => Err(rejection_error(address, UnexpectedServer::OtherServer)),
            ProcessSearch::Replaced(successor) => {
                if let Some(successor) = successor.observed_process()
                    && self.known_mut().replace_process(&first, successor)
                {
                    std::mem::take(&mut *lock(&self.term_ended)).store(true, Ordering::Release);
                }
                self.admit(address, successor)
            }
        }
    }

    /// Decides by what is known now: more may have been learned during a search.
    fn admit(
        &self,
        address: &Address,
        connection: Arc<ServerConnection>,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        let term_ended = lock(&self.term_ended).clone();
        match self.admission(address, &connection) {
            Admission::Admitted => {
                connection.bind_to_term(term_ended);
                Ok(connection)
            }
            Admission::Rejected(why) => Err(rejection_error(address, why)),
            Admission::CheckSlotMap | Admission::FindOriginal => {
                Err(rejection_error(address, UnexpectedServer::OtherServer))
            }
        }
    }
}

/// What a search found out about the process that was found first.
enum ProcessSearch {
    Alive(Arc<ServerConnection>),
    /// It is gone, and the process of this connection replaces it.
    Replaced(Arc<ServerConnection>),
    /// It may come back.
    Unknown,
}

/// Decides by the processes that answer at the addresses of the name, beside the `found` one.
fn search_result<'a>(
    first: &ServerProcess,
    found: Arc<ServerConnection>,
    dialled: impl Iterator<Item = (&'a Arc<str>, Result<ServerConnection, ConnectionError>)>,
) -> ProcessSearch {
    let original_addr = first.resolved_addr.as_ref();
    let mut successor = found;
    let mut may_be_there = false;
    for (addr, dialled) in dialled {
        let is_original_addr = original_addr.is_none_or(|original_addr| original_addr == addr);
        match dialled {
            Ok(connection) if connection.process_name.as_deref() == Some(&*first.name) => {
                return ProcessSearch::Alive(Arc::new(connection));
            }
            // The process that is there now has the data that the first one kept on disk, if any
            // process has.
            Ok(connection) if original_addr == Some(addr) => successor = Arc::new(connection),
            Ok(_) => {}
            Err(failure) => may_be_there |= is_original_addr && !failure.is_connection_refused,
        }
    }
    if may_be_there { ProcessSearch::Unknown } else { ProcessSearch::Replaced(successor) }
}

/// The addresses of the name, without the one where `found` was found. If they cannot be resolved,
/// `original_addr` may be one.
async fn other_addresses(
    connector: &dyn Connector,
    address: &Address,
    found: &ServerConnection,
    original_addr: Option<&Arc<str>>,
) -> Vec<Arc<str>> {
    let mut addrs = connector.resolve(address).await;
    if addrs.is_empty() {
        addrs.extend(original_addr.cloned());
    }
    match found.resolved_addr() {
        Some(here) => addrs.retain(|addr| *addr != here),
        None if addrs.len() < 2 => addrs.clear(),
        None => {}
    }
    addrs
}

fn rejection_error(address: &Address, why: UnexpectedServer) -> ConnectionError {
    telemetry::emit_unexpected_server(address, why.label(), &why);
    why.at(address)
}
