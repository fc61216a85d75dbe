//! Admits connections that lead to the known servers, and no others.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::TryFutureExt;
use futures::future::{join_all, try_join};

use crate::clock::Clock;
use crate::node::{Address, Command, Connector, NodeError, Reply, ReplyShape};
use crate::router::bad_entries::BadEntries;
use crate::router::belief::{Admission, Identity, Kind, Known, Process, Stranger, View};
use crate::router::connection::{Connection, Limits};
use crate::router::sentinels::Sentinels;
use crate::router::telemetry;
use crate::router::time_limit::TimeLimit;
use crate::router::translation::Translation;
use crate::router::{read, views, write};

/// What is known about the servers, shared by all that connect to them.
#[derive(Debug)]
pub(crate) struct Membership {
    known: RwLock<Known>,
    translation: Translation,
    limits: Limits,
    /// The sentinels that name the master, if there are any.
    sentinels: Option<Arc<Sentinels>>,
    bad_entries: BadEntries,
}

impl Membership {
    pub(crate) fn new(translation: Translation, limits: Limits) -> Self {
        Membership {
            known: RwLock::default(),
            translation,
            limits,
            sentinels: None,
            bad_entries: BadEntries::default(),
        }
    }

    /// Sets the sentinels that name the master.
    pub(crate) fn with_sentinels(self, sentinels: Option<Arc<Sentinels>>) -> Self {
        Membership { sentinels, ..self }
    }

    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        self.sentinels.as_ref()
    }

    pub(crate) fn translation(&self) -> &Translation {
        &self.translation
    }

    pub(crate) fn known(&self) -> RwLockReadGuard<'_, Known> {
        read(&self.known)
    }

    pub(crate) fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        write(&self.known)
    }

    /// Queries a node for its view of the cluster. The first query belongs to the opening of the
    /// connection.
    pub(crate) async fn view(
        &self,
        connection: &Arc<Connection>,
        node: &Address,
    ) -> Result<View, NodeError> {
        let is_first = self.known().kind == Kind::Nothing;
        let limit = if is_first { self.limits.of_opening() } else { self.limits.of_replies() };
        self.view_within(connection, node, limit).await
    }

    async fn view_within(
        &self,
        connection: &Arc<Connection>,
        node: &Address,
        limit: TimeLimit,
    ) -> Result<View, NodeError> {
        let skip = |entry| self.bad_entries.report(node, entry);
        views::view(connection, node, limit, &self.translation, skip).await
    }

    /// Connects, and checks that the server is a known one.
    pub(crate) async fn open(
        &self,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: Limits,
    ) -> Result<Arc<Connection>, NodeError> {
        if let Some(sentinels) = &self.sentinels {
            return self.open_master(sentinels, connector, clock, address, limits).await;
        }
        let connection =
            Arc::new(Connection::open(connector, clock.clone(), address, None, limits).await?);
        match self.admission(address, &connection) {
            Admission::Welcome => {
                self.note_place(&connection);
                Ok(connection)
            }
            Admission::QueryItsMap => self.query_its_map(address, connection).await,
            Admission::FindTheFirst => {
                self.find_the_first(connector, clock, address, limits, connection).await
            }
            Admission::Refused(why) => Err(refused(address, why)),
        }
    }

    /// Connects to the master that sentinels name. They are queried each time, because the address
    /// may have led to the master before and not now. What the server says about itself is not
    /// enough.
    async fn open_master(
        &self,
        sentinels: &Sentinels,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: Limits,
    ) -> Result<Arc<Connection>, NodeError> {
        let opening = Connection::open(connector, clock.clone(), address, None, limits);
        let (connection, master) =
            try_join(opening, sentinels.query().map_err(NodeError::from)).await?;
        if master.address != *address {
            return Err(refused(address, Stranger::Replaced));
        }
        if matches!(connection.identity(), Identity::Node(_)) {
            return Err(refused(address, Stranger::ClusterNode));
        }
        if !sentinels.vouch_for(&master, connection.process()) {
            return Err(refused(address, Stranger::OtherProcess));
        }
        let connection = Arc::new(connection);
        if self.is_replica(&connection, address).await? {
            return Err(refused(address, Stranger::Replica));
        }
        connection.serve_for(master.tenure);
        Ok(connection)
    }

    /// Queries the server itself. A server that does not report its role refuses what it cannot do.
    async fn is_replica(
        &self,
        connection: &Arc<Connection>,
        address: &Address,
    ) -> Result<bool, NodeError> {
        let question = Command::new().word("INFO").word("replication").expecting(ReplyShape::Text);
        let replies = connection.query(address, &[question], self.limits.of_opening()).await?;
        Ok(matches!(&*replies, [Reply::Text(info)] if is_of_replica(info)))
    }

    /// The process that was found first is remembered at the address where it was found last.
    fn note_place(&self, connection: &Connection) {
        let Some(met) = connection.met().filter(|met| met.place.is_some()) else {
            return;
        };
        let first = self.known().first();
        if let Some(first) =
            first.filter(|first| first.name == met.name && first.place != met.place)
        {
            self.known_mut().succeed(&first, met);
        }
    }

    pub(crate) fn admission(&self, address: &Address, connection: &Connection) -> Admission {
        self.known().admission(address, connection.identity(), connection.process())
    }

    /// Checks a node that is not in the known map: it may have joined since, or belong to another
    /// cluster.
    async fn query_its_map(
        &self,
        address: &Address,
        connection: Arc<Connection>,
    ) -> Result<Arc<Connection>, NodeError> {
        let view = self.view_within(&connection, address, self.limits.of_opening()).await?;
        match self.known().refusal(&view) {
            None => {
                connection.note_shown_map();
                Ok(connection)
            }
            Some(why) => Err(refused(address, why)),
        }
    }

    /// Checks a process other than the first one that was found at this name. It is accepted if the
    /// first one is gone: not while that answers at one of the addresses of the name, nor while its
    /// own address neither answers nor refuses.
    async fn find_the_first(
        &self,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: Limits,
        found: Arc<Connection>,
    ) -> Result<Arc<Connection>, NodeError> {
        let Some(first) = self.known().first() else {
            return self.judge(address, found);
        };
        let until = clock.now().after(limits.connect_timeout);
        let places = tokio::select! {
            biased;
            places = places_besides(connector, address, &found, first.place.as_ref()) => places,
            () = clock.sleep_until(until) => {
                let message = format!("the addresses of {address} were not told in time");
                return Err(NodeError::unsent(message));
            }
        };
        let dials = places
            .iter()
            .map(|place| Connection::open(connector, clock.clone(), address, Some(place), limits));
        let dialled = join_all(dials).await;
        match weigh(&first, found, places.iter().zip(dialled)) {
            Whereabouts::Found(connection) => {
                self.note_place(&connection);
                self.judge(address, connection)
            }
            Whereabouts::Unknown => Err(refused(address, Stranger::OtherServer)),
            Whereabouts::Gone(heir) => {
                if let Some(heir) = heir.met() {
                    self.known_mut().succeed(&first, heir);
                }
                self.judge(address, heir)
            }
        }
    }

    /// Decides by what is known now: more may have been learned during a search.
    fn judge(
        &self,
        address: &Address,
        connection: Arc<Connection>,
    ) -> Result<Arc<Connection>, NodeError> {
        match self.admission(address, &connection) {
            Admission::Welcome => Ok(connection),
            Admission::Refused(why) => Err(refused(address, why)),
            Admission::QueryItsMap | Admission::FindTheFirst => {
                Err(refused(address, Stranger::OtherServer))
            }
        }
    }
}

/// What a search found out about the process that was found first.
enum Whereabouts {
    Found(Arc<Connection>),
    /// It is gone, and the process of this connection replaces it.
    Gone(Arc<Connection>),
    /// It may come back.
    Unknown,
}

/// Decides by the processes that answer at the addresses of the name, beside the `found` one.
fn weigh<'a>(
    first: &Process,
    found: Arc<Connection>,
    dialled: impl Iterator<Item = (&'a Arc<str>, Result<Connection, NodeError>)>,
) -> Whereabouts {
    let home = first.place.as_ref();
    let mut heir = found;
    let mut may_be_there = false;
    for (place, dialled) in dialled {
        let is_home = home.is_none_or(|home| home == place);
        match dialled {
            Ok(connection) if connection.process() == Some(&*first.name) => {
                return Whereabouts::Found(Arc::new(connection));
            }
            // The process that is there now has the data that the first one kept on disk, if any
            // process has.
            Ok(connection) if home == Some(place) => heir = Arc::new(connection),
            Ok(_) => {}
            Err(failure) => may_be_there |= is_home && !failure.refused,
        }
    }
    if may_be_there { Whereabouts::Unknown } else { Whereabouts::Gone(heir) }
}

/// The addresses of the name, without the one where `found` was found. If they cannot be resolved,
/// `home` may be one.
async fn places_besides(
    connector: &dyn Connector,
    address: &Address,
    found: &Connection,
    home: Option<&Arc<str>>,
) -> Vec<Arc<str>> {
    let mut places = connector.places(address).await;
    if places.is_empty() {
        places.extend(home.cloned());
    }
    match found.place() {
        Some(here) => places.retain(|place| *place != here),
        None if places.len() < 2 => places.clear(),
        None => {}
    }
    places
}

/// Returns true if this is a replica's answer to `INFO replication`.
fn is_of_replica(info: &[u8]) -> bool {
    info.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"role:slave")
}

fn refused(address: &Address, why: Stranger) -> NodeError {
    telemetry::stranger(address, why.word(), &why);
    NodeError {
        source: Some(Arc::new(why)),
        ..NodeError::unsent(format!("at {address} there is {why}"))
    }
}
