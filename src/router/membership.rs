//! Lets connections in that lead to the known servers, and no others.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::future::join_all;

use crate::clock::Clock;
use crate::node::{Address, Connector, NodeError};
use crate::router::belief::{Admission, Known, Process, Stranger};
use crate::router::connection::{Connection, Limits};
use crate::router::telemetry;
use crate::router::translation::Translation;
use crate::router::views::view;
use crate::router::{read, write};

/// What is known of the servers, for all who connect to them.
#[derive(Debug)]
pub(crate) struct Membership {
    known: RwLock<Known>,
    translation: Translation,
    response_timeout: Duration,
}

impl Membership {
    pub(crate) fn new(translation: Translation, response_timeout: Duration) -> Self {
        Membership { known: RwLock::default(), translation, response_timeout }
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

    /// Connects, and makes sure that the server is a known one.
    pub(crate) async fn open(
        &self,
        connector: &dyn Connector,
        clock: &Arc<dyn Clock>,
        address: &Address,
        limits: Limits,
    ) -> Result<Arc<Connection>, NodeError> {
        let connection =
            Arc::new(Connection::open(connector, clock.clone(), address, None, limits).await?);
        match self.admission(address, &connection) {
            Admission::Welcome => {
                self.note_place(&connection);
                Ok(connection)
            }
            Admission::AskItsMap => self.ask_its_map(&**clock, address, connection).await,
            Admission::FindTheFirst => {
                self.find_the_first(connector, clock, address, limits, connection).await
            }
            Admission::Refused(why) => Err(refused(address, why)),
        }
    }

    /// The first process has the say at the address where it was found last.
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

    /// A node that the known map does not have: it may have joined since, or be of another cluster.
    async fn ask_its_map(
        &self,
        clock: &dyn Clock,
        address: &Address,
        connection: Arc<Connection>,
    ) -> Result<Arc<Connection>, NodeError> {
        let view =
            view(&connection, address, clock, self.response_timeout, &self.translation).await?;
        match self.known().refusal(&view) {
            None => {
                connection.note_shown_map();
                Ok(connection)
            }
            Some(why) => Err(refused(address, why)),
        }
    }

    /// Another process than the first one that was met at this name. It counts when that one is
    /// gone: not while it answers at one of the addresses of the name, nor while the one where it
    /// was met neither answers nor refuses.
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

    /// By what is known at last: something else may have been learned during a search.
    fn judge(
        &self,
        address: &Address,
        connection: Arc<Connection>,
    ) -> Result<Arc<Connection>, NodeError> {
        match self.admission(address, &connection) {
            Admission::Welcome => Ok(connection),
            Admission::Refused(why) => Err(refused(address, why)),
            Admission::AskItsMap | Admission::FindTheFirst => {
                Err(refused(address, Stranger::OtherServer))
            }
        }
    }
}

/// What has been found out about the process that was met first.
enum Whereabouts {
    Found(Arc<Connection>),
    /// Another one takes its place.
    Gone(Arc<Connection>),
    /// It may come back.
    Unknown,
}

/// Judges by who answers at the addresses of the name, besides the process that was `found`.
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
            // Who is there now has what the first one kept on disk, if anybody has.
            Ok(connection) if home == Some(place) => heir = Arc::new(connection),
            Ok(_) => {}
            Err(failure) => may_be_there |= is_home && !failure.refused,
        }
    }
    if may_be_there { Whereabouts::Unknown } else { Whereabouts::Gone(heir) }
}

/// The addresses of the name, without the one where `found` was found. Where they cannot be told,
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

fn refused(address: &Address, why: Stranger) -> NodeError {
    telemetry::stranger(address, why.word(), &why);
    NodeError {
        source: Some(Arc::new(why)),
        ..NodeError::unsent(format!("at {address} there is {why}"))
    }
}
