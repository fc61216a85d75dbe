//! Finds out which servers reply at an address. Uses several connections, because an address can
//! lead to different servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::future::join_all;
use redis::aio::MultiplexedConnection as Connection;
use redis::{RedisResult, Value};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::probe::{Address, Mode, Prober, TIMEOUT, fields, is_alone, is_refused, mode, query};

/// How many connections are made to an address by its name. A load balancer with two servers hardly
/// sends them all to one.
const CONNECTIONS: usize = 4;

#[derive(Clone, Debug, Default)]
pub struct ServerIdentities {
    /// The run ids of all servers that replied. Empty if they do not report run ids.
    pub run_ids: BTreeSet<String>,
    /// Whether it is a node of a cluster, if that is known.
    pub in_cluster: Option<bool>,
    /// The id of the node in its cluster, and the ids of all nodes that it knows. `None` and empty
    /// if the node does not report them.
    pub id: Option<String>,
    pub known_nodes: BTreeSet<String>,
}

/// One of the URLs.
#[derive(Clone, Debug)]
pub struct UrlTarget {
    pub address: Address,
    /// The addresses to which the host name resolves now. Empty if the host is an IP address or
    /// does not resolve.
    pub resolved: BTreeSet<IpAddr>,
    /// An error says why it could not be queried.
    pub who: Result<ServerIdentities, String>,
}

impl Prober {
    pub async fn identify(&self, address: &Address) -> RedisResult<ServerIdentities> {
        let connection = &mut self.open(address).await?;
        let mut who = self.cluster_identity(connection).await?;
        who.run_ids.extend(run_id(connection).await);
        let mut others = vec![address.clone(); CONNECTIONS - 1];
        // A certificate is valid for the name, and hardly for its addresses.
        if !self.has_tls() {
            let addresses = resolve(address).await.into_iter();
            others.extend(
                addresses.map(|host| Address { host: host.to_string(), port: address.port }),
            );
        }
        let run_ids = others.iter().map(|other| async move {
            let connection = &mut self.open(other).await.ok()?;
            run_id(connection).await
        });
        who.run_ids.extend(join_all(run_ids).await.into_iter().flatten());
        Ok(who)
    }

    async fn cluster_identity(&self, connection: &mut Connection) -> RedisResult<ServerIdentities> {
        let in_cluster = match query::<Value>(connection, "CLUSTER SLOTS").await {
            Ok(_) => Some(true),
            // A node of a cluster can hide the command.
            Err(error) if is_alone(&error) => Some(mode(connection).await == Mode::Cluster),
            Err(error) if is_refused(&error) => None,
            Err(error) => return Err(error),
        };
        let (mut id, mut knows) = (None, BTreeSet::new());
        if in_cluster != Some(false) {
            id = query(connection, "CLUSTER MYID").await.ok();
            let nodes: String = query(connection, "CLUSTER NODES").await.unwrap_or_default();
            knows = nodes
                .lines()
                .filter_map(|line| line.split(' ').next())
                .map(str::to_owned)
                .collect();
        }
        Ok(ServerIdentities { run_ids: BTreeSet::new(), in_cluster, id, known_nodes: knows })
    }
}

async fn run_id(connection: &mut Connection) -> Option<String> {
    let info: String = query(connection, "INFO server").await.ok()?;
    fields(&info).remove("run_id")
}

/// Nothing for an address, or for a name that cannot be resolved.
pub async fn resolve(address: &Address) -> BTreeSet<IpAddr> {
    if address.host.parse::<IpAddr>().is_ok() {
        return BTreeSet::new();
    }
    let found = timeout(TIMEOUT, lookup_host((address.host.as_str(), address.port))).await;
    let found = found.ok().and_then(Result::ok);
    found.into_iter().flatten().map(|address| address.ip()).collect()
}
