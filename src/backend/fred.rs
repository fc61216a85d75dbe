//! Connections by the `fred` crate: one centralized client to each server, which never reconnects.
//!
//! A client without a reconnect policy ends with its connection. Commands in flight fail, later
//! commands are refused, and no command is sent twice. This matches the router's rule that a broken
//! connection is not used again.

mod connection;
mod reply;
mod subscription;

use std::sync::Arc;

use ::fred::clients::Client;
use ::fred::error::Error;
use ::fred::interfaces::ClientLike;
#[cfg(feature = "fred-tls")]
use ::fred::types::config::TlsHostMapping;
use ::fred::types::config::{Config, Server, ServerConfig};
use ::fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use rwlease_core::resp::{Address, Command, RespValue};

use crate::backend::in_turn::first_success;
use crate::backend::pipelining::PipeliningConnection;
use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    Resolver, ResponseFuture,
};
use crate::health::ClientHealth;
use connection::FredConnection;
use reply::{command_error, from_value};

/// How many events may wait for their reader: on a subscription's connection, and on one that
/// carries commands (why it could not be made, which is reported twice).
const MAX_PENDING_PUSHES: usize = 256;
const MAX_PENDING_EVENTS: usize = 4;

/// Opens connections.
#[derive(Clone)]
pub struct FredConnector {
    config: Config,
    health: ClientHealth,
    pub(crate) resolver: Resolver,
}

debug_fields!(|connector| FredConnector {
    tls: connector.config.uses_tls(),
    database: connector.config.database,
    ..
});

/// Refuses a configuration by which `fred` would connect as another user than it names: without a
/// password it does not authenticate. Refuses TLS whose `hostnames` this library could not read.
pub(crate) fn check(config: &Config) -> Result<(), &'static str> {
    // Another package can turn on TLS in `fred`, and its types exist here with `fred-tls` alone.
    if config.uses_tls() && !cfg!(feature = "fred-tls") {
        return Err("the configuration has TLS; enable the feature `fred-tls`");
    }
    let names_user = config.username.as_deref().is_some_and(|user| !user.is_empty());
    if names_user && config.password.is_none() {
        return Err(
            "the configuration has a user without a password; set an empty password if the user \
             needs none, or leave the user out if a provider has the credentials",
        );
    }
    Ok(())
}

/// The servers that a configuration names.
pub(crate) fn seeds(config: &Config) -> Result<Vec<Address>, &'static str> {
    if !config.server.is_clustered() && !config.server.is_centralized() {
        return Err(
            "the configuration is for Sentinel or a Unix socket, which are not supported; name servers or a cluster",
        );
    }
    let hosts = config.server.hosts();
    if hosts.is_empty() {
        return Err("no server is named; name at least one");
    }
    Ok(hosts.iter().map(address_of).collect())
}

fn address_of(server: &Server) -> Address {
    Address {
        host: server.host.trim_start_matches('[').trim_end_matches(']').into(),
        port: server.port,
    }
}

impl FredConnector {
    pub fn new(config: Config) -> Self {
        FredConnector { config, health: ClientHealth::default(), resolver: Resolver::default() }
    }

    /// The configuration for one server, with the same credentials and TLS.
    fn config(&self, address: &Address) -> Config {
        Config {
            server: ServerConfig::Centralized { server: self.server(address) },
            // RESP3 separates pushes from replies, and HELLO needs no right.
            version: RespVersion::RESP3,
            fail_fast: true,
            ..self.config.clone()
        }
    }

    /// As `config`, where the host name was resolved to this address before.
    fn config_at(&self, address: &Address, place: &str) -> Config {
        let host = if place.contains(':') { format!("[{place}]") } else { place.to_owned() };
        let mut server = self.server(address);
        #[cfg(feature = "fred-tls")]
        server.tls_server_name.get_or_insert_with(|| server.host.clone());
        server.host = host.into();
        Config { server: ServerConfig::Centralized { server }, ..self.config(address) }
    }

    /// The server as the configuration or the nodes name it, with the name for its certificate.
    fn server(&self, address: &Address) -> Server {
        let host = if address.host.contains(':') {
            format!("[{}]", address.host)
        } else {
            address.host.to_string()
        };
        let mut named = self.config.server.hosts().into_iter();
        let server = match named.find(|server| address_of(server) == *address) {
            Some(seed) => Server { host: host.into(), ..seed },
            None => Server::new(host, address.port),
        };
        #[cfg(feature = "fred-tls")]
        let server = self.with_tls_name(server, address);
        server
    }

    /// `fred` applies `TlsConfig::hostnames` only where it follows a cluster itself.
    #[cfg(feature = "fred-tls")]
    fn with_tls_name(&self, mut server: Server, address: &Address) -> Server {
        if let (None, Some(tls), Ok(ip)) =
            (&server.tls_server_name, &self.config.tls, address.host.parse())
        {
            let seeds = self.config.server.hosts();
            server.tls_server_name = match &tls.hostnames {
                TlsHostMapping::None => None,
                TlsHostMapping::DefaultHost => seeds.first().map(|seed| seed.host.clone()),
                TlsHostMapping::Custom(names) => {
                    let default = seeds.first().map_or("", |seed| &seed.host);
                    names.map(&ip, default).map(Into::into)
                }
            };
        }
        server
    }

    /// Connects at one of the addresses of the host name.
    pub async fn connect_to_any(
        &self,
        address: &Address,
        places: &[Arc<str>],
    ) -> Result<Arc<dyn CommandConnection>, ConnectionError> {
        let (connection, place) = self.open_any(address, places, MAX_PENDING_EVENTS).await?;
        Ok(self.commands(connection, place))
    }

    /// Dials the addresses in order, and keeps the first connection that authenticates the client.
    /// `fred` resolves names itself, but it keeps the first address that accepts a connection, and
    /// does not report it.
    async fn open_any(
        &self,
        address: &Address,
        places: &[Arc<str>],
        pushes: usize,
    ) -> Result<(FredConnection, Option<Arc<str>>), ConnectionError> {
        let open = async |config, place| Ok((FredConnection::open(config, pushes).await?, place));
        let dials = match places {
            [] => vec![open(self.config(address), None).boxed()],
            [place] => vec![open(self.config(address), Some(place.clone())).boxed()],
            places => {
                let at = |place: &Arc<str>| {
                    open(self.config_at(address, place), Some(place.clone())).boxed()
                };
                places.iter().map(at).collect()
            }
        };
        let no_address = || Err(ConnectionError::not_sent("the host name has no address"));
        first_success(dials, ConnectionError::weight).await.unwrap_or_else(no_address)
    }

    fn commands(
        &self,
        connection: FredConnection,
        place: Option<Arc<str>>,
    ) -> Arc<dyn CommandConnection> {
        let node = FredCommands { connection: Arc::new(connection), place };
        PipeliningConnection::wrap(Arc::new(node), &self.health)
    }
}

impl Connector for FredConnector {
    fn health(&self) -> ClientHealth {
        self.health.clone()
    }

    fn connect<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        async move {
            let Some(place) = place else {
                let places = self.resolver.places(address).await;
                return self.connect_to_any(address, &places).await;
            };
            let config = self.config_at(address, place);
            let connection = FredConnection::open(config, MAX_PENDING_EVENTS).await?;
            Ok(self.commands(connection, Some(place.into())))
        }
        .boxed()
    }

    fn resolve<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        self.resolver.places(address).boxed()
    }

    fn uses_tls(&self) -> bool {
        self.config.uses_tls()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        async move {
            let connection = match place {
                Some(place) => {
                    FredConnection::open(self.config_at(address, place), MAX_PENDING_PUSHES).await?
                }
                None => {
                    let places = self.resolver.places(address).await;
                    self.open_any(address, &places, MAX_PENDING_PUSHES).await?.0
                }
            };
            Ok(subscription::start(connection, &self.health))
        }
        .boxed()
    }
}

/// A connection that carries commands.
struct FredCommands {
    connection: Arc<FredConnection>,
    place: Option<Arc<str>>,
}

impl CommandConnection for FredCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let connection = self.connection.clone();
        async move { connection.call(&command).await }.boxed().into()
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        // With one command, the failure of the pipeline could not be told from an error reply.
        if let [command] = commands {
            return self.call(command.clone()).map_ok(|reply| vec![reply]).boxed().into();
        }
        let (connection, commands) = (self.connection.clone(), commands.to_vec());
        async move {
            let results = connection.run(|client| pipelined(client, &commands)).await?;
            if let (1, Some(Err(error))) = (results.len(), results.first()) {
                return Err(command_error(error));
            }
            Ok(results.into_iter().map(from_value).collect())
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    fn resolved_addr(&self) -> Option<Arc<str>> {
        self.place.clone()
    }
}

/// One result for each command, or a single one if all failed together.
async fn pipelined(
    client: &Client,
    commands: &[Command],
) -> Result<Vec<Result<Value, Error>>, Error> {
    let pipeline = client.pipeline();
    for command in commands {
        let (name, args) = split(command);
        let _: () = pipeline.custom(name, args).await?;
    }
    Ok(pipeline.try_all().await)
}

/// Converts a command for `fred`. All its words share one buffer.
fn split(command: &Command) -> (CustomCommand, Vec<Value>) {
    let mut buffer = BytesMut::with_capacity(command.iter().map(<[u8]>::len).sum());
    command.iter().for_each(|word| buffer.extend_from_slice(word));
    let mut rest = buffer.freeze();
    let mut words = command.iter().map(|word| rest.split_to(word.len()));
    let name = words.next().unwrap_or_default();
    let mut args = Vec::with_capacity(command.word_count());
    args.extend(words.map(Value::Bytes));
    (command_name(&name), args)
}

/// The router's own commands are ASCII. No server knows a name that is not text.
fn command_name(name: &Bytes) -> CustomCommand {
    let name = String::from_utf8_lossy(name).into_owned();
    CustomCommand::new(name, ClusterHash::Random, false)
}
