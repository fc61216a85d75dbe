//! Queries the servers about themselves by the `redis` crate, because a client of locks has no use
//! for these queries.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::aio::MultiplexedConnection as Connection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    FromRedisValue, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, TlsCertificates, Value,
};

use super::access_error::access_error;
use super::clock_offset::ClockOffset;
use super::rights::CONFIG_GET;
use super::sentinels::SentinelFacts;
use super::server_identity::{ServerIdentities, UrlTarget, resolve};
use crate::args::ServerArgs;
use crate::connect::{Certificates, LIB_NAME};
use crate::exit::{CliError, REFUSED, UNAVAILABLE};

/// The longest wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// A cluster without TLS reports port 0 for a node that serves TLS only, and the other way round.
const NO_PORT: &str = "the cluster reports no port of this node for connections of this kind; \
                       check whether all nodes serve TLS, and use redis:// or rediss:// as they do";

/// Round trips to read a clock.
const CLOCK_SAMPLES: usize = 5;

pub struct Deployment {
    /// Not a single server.
    pub is_cluster: bool,
    pub nodes: Vec<Node>,
    /// The URLs, in order.
    pub named: Vec<UrlTarget>,
    /// The sentinels, if the URL names them.
    pub sentinels: Option<SentinelFacts>,
}

pub struct Node {
    pub address: Address,
    pub role: Role,
    /// An error says why it could not be queried.
    pub facts: Result<NodeFacts, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Single,
    /// Holds the ranges of slots that it serves.
    Master(Vec<(u16, u16)>),
    Replica,
}

#[derive(Default)]
pub struct NodeFacts {
    pub info: BTreeMap<String, String>,
    pub cluster_info: BTreeMap<String, String>,
    /// The slot map, as this node reports it.
    pub map: Vec<SlotRange>,
    /// The number of slots that are moving from this node or to it.
    pub moving: Option<usize>,
    /// The number of replicas of this master that never take over.
    pub barred_replicas: usize,
    pub clock: Option<ClockOffset>,
    /// After how much silence a node is considered dead.
    pub node_timeout: Option<Duration>,
    /// Whether the node serves no slot while one has no master.
    pub requires_coverage: Option<bool>,
    /// Whether the server deletes expired keys while it serves calls.
    pub frees_lazily: Option<bool>,
    /// Rights that every lock needs, and the user lacks.
    pub missing_rights: Vec<String>,
    /// Commands that the user may not use, and can do without.
    pub denied_commands: Vec<&'static str>,
    /// Commands that the server does not serve.
    pub unsupported_commands: Vec<&'static str>,
    pub lua: LuaSupport,
    pub identity: ServerIdentities,
}

/// Whether a server runs scripts as locks need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LuaSupport {
    /// The user may not query it.
    #[default]
    Unknown,
    Fine,
    /// The server has no scripts, for any user.
    Missing,
    /// Scripts cannot read the time.
    NoTime,
}

/// A range of slots and its nodes, the master first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    pub first: u16,
    pub last: u16,
    /// The id of the master. All maps have the same id, even if they list different addresses.
    pub master: String,
    pub nodes: Vec<Address>,
}

/// Queries every node that the first server knows, and every replica that the masters know. The
/// slot map omits replicas that have not received data yet.
pub async fn probe_deployment(servers: &ServerArgs) -> Result<Deployment, CliError> {
    let sentinels = match servers.sentinels()? {
        Some(url) => Some(SentinelFacts::probe(servers, &url).await?),
        None => None,
    };
    let urls = match &sentinels {
        Some(sentinels) => vec![sentinels.master_url()],
        None => servers.urls()?,
    };
    let entrance = Prober::new(servers, urls)?;
    let (is_cluster, known) = entrance.nodes(servers).await?;
    let origin = Instant::now();
    let mut nodes = entrance.query(known, is_cluster, origin).await;
    let more = nodes
        .iter()
        .flat_map(replicas_of)
        .filter(|replica| nodes.iter().all(|node| node.address != *replica));
    let more = more.map(|address| (address, Role::Replica)).collect();
    nodes.extend(entrance.query(more, is_cluster, origin).await);
    let named = join_all(entrance.seeds.iter().map(|seed| entrance.named(seed, &nodes))).await;
    Ok(Deployment { is_cluster, nodes, named, sentinels })
}

/// The replicas that the node itself reports.
fn replicas_of(node: &Node) -> Vec<Address> {
    let info = node.facts.iter().flat_map(|facts| &facts.info);
    let replicas = info.filter(|(name, _)| name.starts_with("slave")).filter_map(|(_, state)| {
        let part = |name| state.split(',').find_map(|part| part.strip_prefix(name));
        let host = part("ip=")?.to_owned();
        let port = part("port=")?.parse().ok()?;
        Some(Address { host, port })
    });
    replicas.collect()
}

/// The part of a URL after the user and the password. The library has accepted the URL, so nothing
/// secret is left in it.
fn url_without_credentials(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').map_or(rest, |(_, place)| place)
}

/// How to connect.
pub struct Prober {
    seeds: Vec<Address>,
    session: RedisConnectionInfo,
    /// Set with TLS.
    certificates: Option<Certificates>,
    /// Of the keys of locks.
    prefix: String,
}

impl Prober {
    pub fn new(servers: &ServerArgs, urls: Vec<String>) -> Result<Prober, CliError> {
        let mut seeds = Vec::new();
        let mut session = RedisConnectionInfo::default();
        let mut tls = false;
        for url in urls {
            let wrong = |error: RedisError| {
                let place = url_without_credentials(&url);
                CliError::usage(format!("invalid URL of `{place}`: {error}; use redis://HOST:PORT"))
            };
            let info = url.as_str().into_connection_info().map_err(wrong)?;
            let (host, port) = match info.addr() {
                ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
                ConnectionAddr::TcpTls { host, port, .. } => {
                    tls = true;
                    (host.clone(), *port)
                }
                _ => {
                    return Err(CliError::usage("only TCP is supported; use redis://HOST:PORT"));
                }
            };
            if seeds.is_empty() {
                session = info.redis_settings().clone();
                // `user:@` in the URL, which the crate takes for no password.
                if session.username().is_some() && session.password().is_none() {
                    session = session.set_password("");
                }
            }
            seeds.push(Address { host, port });
        }
        if let Some((user, password)) = servers.credentials()? {
            session = session.set_username(user).set_password(password);
        }
        let session = session
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name(LIB_NAME, env!("CARGO_PKG_VERSION"));
        let certificates = tls.then(|| servers.certificates()).transpose()?;
        if tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let prefix = servers.prefix.clone();
        Ok(Prober { seeds, session, certificates, prefix })
    }

    /// Connects as another user.
    pub fn with_credentials(mut self, user: Option<String>, password: Option<String>) -> Self {
        self.session = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = user {
            self.session = self.session.set_username(user);
        }
        if let Some(password) = password {
            self.session = self.session.set_password(password);
        }
        self
    }

    pub fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    async fn query(
        &self,
        nodes: Vec<(Address, Role)>,
        is_cluster: bool,
        origin: Instant,
    ) -> Vec<Node> {
        let queries = nodes.into_iter().map(|(address, role)| async move {
            let facts = self.facts(&address, &role, is_cluster, origin).await;
            Node { address, role, facts: facts.map_err(|error| error.to_string()) }
        });
        join_all(queries).await
    }

    pub fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// What one of the URLs leads to.
    async fn named(&self, seed: &Address, nodes: &[Node]) -> UrlTarget {
        let who = match nodes.iter().find(|node| node.address == *seed) {
            Some(node) => {
                node.facts.as_ref().map(|facts| facts.identity.clone()).map_err(String::clone)
            }
            None => self.identify(seed).await.map_err(|error| error.to_string()),
        };
        UrlTarget { address: seed.clone(), resolved: resolve(seed).await, who }
    }

    pub async fn open(&self, address: &Address) -> RedisResult<Connection> {
        let Address { host, port } = address.clone();
        if port == 0 {
            return Err((ErrorKind::InvalidClientConfig, NO_PORT).into());
        }
        let info = |address: ConnectionAddr| -> RedisResult<ConnectionInfo> {
            Ok(address.into_connection_info()?.set_redis_settings(self.session.clone()))
        };
        let client = match &self.certificates {
            None => Client::open(info(ConnectionAddr::Tcp(host, port))?)?,
            Some(files) => {
                let tls_params = None;
                let address = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params };
                let certificates = TlsCertificates {
                    client_tls: files.client.clone().map(|(client_cert, client_key)| {
                        ClientTlsConfig { client_cert, client_key }
                    }),
                    root_cert: files.roots.clone(),
                };
                Client::build_with_tls(info(address)?, certificates)?
            }
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_push_sender(|_| -> Result<(), ()> { Ok(()) });
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| match error.to_string().contains(", with args beginning with") {
            // It repeats the arguments, among them the password.
            true => (ErrorKind::RESP3NotSupported, "the server does not speak RESP3").into(),
            false => error,
        })
    }

    /// All nodes, as the first server that answers reports them.
    async fn nodes(&self, servers: &ServerArgs) -> Result<(bool, Vec<(Address, Role)>), CliError> {
        let mut last = None;
        for seed in &self.seeds {
            let mut connection = match self.open(seed).await {
                Ok(connection) => connection,
                Err(error) => {
                    last = Some((seed, error));
                    continue;
                }
            };
            return match query(&mut connection, "CLUSTER SLOTS").await {
                Ok(answer) => Ok((true, nodes(&map(answer, seed)))),
                Err(error) if is_alone(&error) => match mode(&mut connection).await {
                    Mode::Sentinel => Err(CliError::usage(format!(
                        "{seed} is a sentinel; use redis+sentinel://{seed}/MASTER with the name of its master"
                    ))),
                    _ => Ok((false, vec![(seed.clone(), Role::Single)])),
                },
                Err(error) if is_refused(&error) => {
                    let message =
                        "the user lacks the right to read the slot map; give it +cluster|slots";
                    Err(CliError::new(REFUSED, message))
                }
                Err(error) => Err(CliError::new(
                    UNAVAILABLE,
                    format!(
                        "{seed} did not report the slot map: {error}; try again, or name another server"
                    ),
                )),
            };
        }
        let why = last.map(|(seed, error)| format!("{seed}: {error}")).unwrap_or_default();
        Err(access_error(servers, format!("no server can be reached: {why}")).await)
    }

    async fn facts(
        &self,
        address: &Address,
        role: &Role,
        is_cluster: bool,
        origin: Instant,
    ) -> RedisResult<NodeFacts> {
        let connection = &mut self.open(address).await?;
        let mut facts =
            NodeFacts { clock: clock(connection, origin).await?, ..NodeFacts::default() };
        let info: Option<String> = facts.try_query(connection, "INFO").await?;
        facts.info = fields(&info.unwrap_or_default());
        facts.identity = self.identify(address).await?;
        facts.lua = lua(connection).await;
        if is_cluster {
            facts.probe_cluster(connection, address).await?;
        }
        let frees_lazily = facts.setting(connection, "lazyfree-lazy-expire").await?;
        facts.frees_lazily = frees_lazily.map(|value| value == "yes");
        facts.try_needed(connection, is_cluster, &self.prefix).await?;
        facts.try_optional(connection, role, &self.prefix).await?;
        Ok(facts)
    }
}

impl NodeFacts {
    async fn probe_cluster(
        &mut self,
        connection: &mut Connection,
        address: &Address,
    ) -> RedisResult<()> {
        self.map = match query(connection, "CLUSTER SLOTS").await {
            // The user lacks a right, which `try_needed` finds.
            Err(error) if is_refused(&error) => Vec::new(),
            slots => map(slots?, address),
        };
        self.try_query::<Value>(connection, "CLUSTER MYID").await?;
        let info: Option<String> = self.try_query(connection, "CLUSTER INFO").await?;
        self.cluster_info = fields(&info.unwrap_or_default());
        let nodes: Option<String> = self.try_query(connection, "CLUSTER NODES").await?;
        self.moving = nodes.as_ref().map(|nodes| nodes.matches(" [").count());
        self.barred_replicas = nodes.map_or(0, |nodes| barred_replicas(&nodes));
        let timeout = self.setting(connection, "cluster-node-timeout").await?;
        self.node_timeout =
            timeout.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        let coverage = self.setting(connection, "cluster-require-full-coverage").await?;
        self.requires_coverage = coverage.map(|value| value == "yes");
        Ok(())
    }

    /// Returns a setting of the server. `None` if the server does not report it.
    async fn setting(
        &mut self,
        connection: &mut Connection,
        name: &str,
    ) -> RedisResult<Option<String>> {
        let words = format!("{CONFIG_GET} {name}");
        let pairs: Option<BTreeMap<String, String>> =
            self.try_query_as(CONFIG_GET, connection, &words).await?;
        Ok(pairs.and_then(|pairs| pairs.into_values().next()))
    }
}

/// The user lacks a right.
pub fn is_refused(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// The server has no such command: it is too old, was built without it, or hides it, as managed
/// servers do.
fn is_unknown(error: &RedisError) -> bool {
    error.to_string().contains("unknown command")
}

/// The mode that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Single,
    Cluster,
    Sentinel,
    Unknown,
}

pub async fn mode(connection: &mut Connection) -> Mode {
    let info: Option<String> = query(connection, "INFO").await.ok();
    info.map_or(Mode::Unknown, |info| Mode::of(&fields(&info)))
}

impl Mode {
    pub fn of(info: &BTreeMap<String, String>) -> Mode {
        let named = info.get("redis_mode").or_else(|| info.get("server_mode"));
        match named.map(String::as_str) {
            Some("cluster") => Mode::Cluster,
            Some("sentinel") => Mode::Sentinel,
            Some(_) => Mode::Single,
            None => Mode::Unknown,
        }
    }
}

/// Returns true if the error means that the server is no node of a cluster. The client of locks
/// reads it the same way.
pub fn is_alone(error: &RedisError) -> bool {
    is_unknown(error) || error.to_string().contains("cluster support disabled")
}

pub async fn query<T: FromRedisValue>(connection: &mut Connection, words: &str) -> RedisResult<T> {
    query_value(connection, words.split(' ')).await
}

pub async fn query_value<'a, T: FromRedisValue>(
    connection: &mut Connection,
    words: impl IntoIterator<Item = &'a str>,
) -> RedisResult<T> {
    let mut command = Cmd::new();
    command.arg(words.into_iter().collect::<Vec<_>>());
    command.query_async(connection).await
}

async fn lua(connection: &mut Connection) -> LuaSupport {
    match query::<i64>(connection, "EVAL return(redis.call('TIME')[1]) 0").await {
        Ok(seconds) if seconds > 0 => LuaSupport::Fine,
        Ok(_) => LuaSupport::NoTime,
        Err(error) if is_unknown(&error) || error.to_string().contains("scripting engine") => {
            LuaSupport::Missing
        }
        Err(_) => LuaSupport::Unknown,
    }
}

async fn clock(connection: &mut Connection, origin: Instant) -> RedisResult<Option<ClockOffset>> {
    let now = || origin.elapsed().as_micros() as i64;
    let mut ahead: Option<ClockOffset> = None;
    for _ in 0..CLOCK_SAMPLES {
        let sent = now();
        let (seconds, micros): (i64, i64) = match query(connection, "TIME").await {
            Err(error) if is_refused(&error) => return Ok(None),
            told => told?,
        };
        let look = ClockOffset::new(seconds * 1_000_000 + micros, sent, now());
        ahead = Some(ahead.map_or(look, |ahead| ahead.intersect(look)));
    }
    Ok(ahead)
}

/// Reads the answer to `CLUSTER SLOTS`. A node without a known address is the one that was queried.
fn map(answer: Value, source: &Address) -> Vec<SlotRange> {
    let Ok(ranges) = Vec::<Vec<Value>>::from_redis_value(answer) else {
        return Vec::new();
    };
    let mut map: Vec<SlotRange> =
        ranges.into_iter().filter_map(|range| read_range(range, source)).collect();
    map.sort();
    map
}

fn read_range(range: Vec<Value>, source: &Address) -> Option<SlotRange> {
    let mut parts = range.into_iter();
    let first = u16::from_redis_value(parts.next()?).ok()?;
    let last = u16::from_redis_value(parts.next()?).ok()?;
    let mut master = None;
    let nodes = parts.filter_map(|node| {
        let mut parts = Vec::<Value>::from_redis_value(node).ok()?.into_iter();
        let host = Option::<String>::from_redis_value(parts.next()?).ok()?.unwrap_or_default();
        let port = u16::from_redis_value(parts.next()?).ok()?;
        let host = if host.is_empty() { source.host.clone() } else { host };
        let id = parts.next().and_then(|id| String::from_redis_value(id).ok());
        master.get_or_insert(id.unwrap_or_default());
        Some(Address { host, port })
    });
    let nodes = nodes.collect();
    Some(SlotRange { first, last, master: master.unwrap_or_default(), nodes })
}

/// The number of replicas that never take over from the node that reported this. Reads lines like
/// `ID ADDRESS slave,nofailover MASTER-ID ...`.
fn barred_replicas(nodes: &str) -> usize {
    let node = |line: &'_ str| {
        let mut words = line.split(' ');
        let (id, flags) = (words.next()?, words.nth(1)?);
        Some([id, flags, words.next()?].map(str::to_owned))
    };
    let nodes: Vec<[String; 3]> = nodes.lines().filter_map(node).collect();
    let has = |flags: &str, flag| flags.split(',').any(|own| own == flag);
    let Some([myself, ..]) = nodes.iter().find(|[_, flags, _]| has(flags, "myself")) else {
        return 0;
    };
    let is_barred =
        |[_, flags, master]: &&[String; 3]| master == myself && has(flags, "nofailover");
    nodes.iter().filter(is_barred).count()
}

/// Each node once, the masters first.
fn nodes(map: &[SlotRange]) -> Vec<(Address, Role)> {
    let mut masters: BTreeMap<&Address, Vec<(u16, u16)>> = BTreeMap::new();
    for range in map {
        if let Some(master) = range.nodes.first() {
            masters.entry(master).or_default().push((range.first, range.last));
        }
    }
    let mut replicas: Vec<&Address> =
        map.iter().flat_map(|range| range.nodes.iter().skip(1)).collect();
    replicas.sort();
    replicas.dedup();
    let masters =
        masters.into_iter().map(|(address, ranges)| (address.clone(), Role::Master(ranges)));
    masters.chain(replicas.into_iter().map(|address| (address.clone(), Role::Replica))).collect()
}

pub fn fields(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port), // IPv6
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
