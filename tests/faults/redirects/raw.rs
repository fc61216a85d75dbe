//! A lock's hash, read from the servers without the library.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd, pipe};
use rwlease::LockMode;
use tokio::sync::Mutex;

use super::key;
pub use crate::support::Fields;
use crate::support::{Cluster, Error, PollLimit, Result, expand_fields};

/// The lock's hash at one node, and its time to live in ms. The node may be importing the slot.
pub async fn state_at(cluster: &Cluster, node: usize, name: &str) -> Result<(Fields, i64)> {
    let mut connection = cluster.node(node).connect().await?;
    let (read, left) = pipe()
        .cmd("ASKING")
        .ignore()
        .cmd("HGETALL")
        .arg(key(name))
        .cmd("ASKING")
        .ignore()
        .cmd("PTTL")
        .arg(key(name))
        .query_async(&mut connection)
        .await?;
    Ok((expand_fields(&read)?, left))
}

/// The lock's hash, at the master of its slot.
pub async fn state(cluster: &Cluster, name: &str) -> Result<Fields> {
    let slot = cluster.slot_of(key(name)).await?;
    Ok(state_at(cluster, cluster.master_of(slot).await?, name).await?.0)
}

/// The ids and modes of the waiters, by their tickets.
pub fn queue(fields: &Fields) -> BTreeMap<u64, (String, String)> {
    let waiter = |(field, entry): (&String, &String)| {
        let master = field.strip_prefix("q:")?;
        let words: Vec<&str> = entry.split(' ').collect();
        Some((words[3].parse().ok()?, (master.into(), words[0].into())))
    };
    fields.iter().filter_map(waiter).collect()
}

/// The fields of holders and waiters.
pub fn occupants(fields: &Fields) -> Vec<&str> {
    let is_one =
        |field: &&str| *field == "writer" || field.starts_with("r:") || field.starts_with("q:");
    fields.keys().map(String::as_str).filter(is_one).collect()
}

/// Waits until the servers have no holder of these locks and no waiter.
pub async fn vacant(cluster: &Cluster, names: &[String]) -> Result {
    for name in names {
        let wait_limit = PollLimit::limited(format!("{name} to be vacant"), super::PATIENCE / 2);
        loop {
            let fields = state(cluster, name).await?;
            match occupants(&fields)[..] {
                [] => break,
                ref left => wait_limit.pause(format!("{left:?}")).await?,
            }
        }
    }
    Ok(())
}

/// The number of errors of this kind that the nodes have returned since the last reset.
pub async fn errors(cluster: &Cluster, code: &str) -> Result<u64> {
    let mut total = 0;
    for number in cluster.running() {
        let stats = cluster.node(number).info("errorstats").await?;
        let count = stats.get(&format!("errorstat_{code}"));
        total +=
            count.and_then(|count| count.strip_prefix("count=")?.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

pub async fn reset_errors(cluster: &Cluster) -> Result {
    for number in cluster.running() {
        cluster.node(number).reset_stats().await?;
    }
    Ok(())
}

/// Confirms grants by the records on the servers. If a reply reaches the wrong caller, no record
/// has its token.
#[derive(Debug)]
pub struct Witness {
    cluster: Arc<Cluster>,
    connections: Vec<Mutex<Option<MultiplexedConnection>>>,
}

impl Witness {
    pub fn new(cluster: Arc<Cluster>) -> Arc<Witness> {
        let connections = cluster.nodes().iter().map(|_| Mutex::default()).collect();
        Arc::new(Witness { cluster, connections })
    }

    /// Finds the record with this token at one of the nodes. While the key is moved, both nodes can
    /// lack it for a moment.
    pub async fn confirm(&self, name: &str, mode: LockMode, token: u64) -> Result {
        let digits = format!("{token:016}");
        let wait_limit = PollLimit::limited(
            format!("the record of token {token} of {name}"),
            super::PATIENCE / 2,
        );
        loop {
            let mut seen = Vec::new();
            for number in self.cluster.running() {
                match self.look(number, name).await {
                    Ok(fields) if is_recorded(&fields, mode, &digits) => return Ok(()),
                    Ok(fields) => seen.push(format!("{number}: {fields:?}")),
                    Err(error) => seen.push(format!("{number}: {error}")),
                }
            }
            wait_limit.pause(seen.join("; ")).await?;
        }
    }

    async fn look(&self, number: usize, name: &str) -> Result<Fields> {
        let mut place = self.connections[number].lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.cluster.node(number).connect().await?,
        };
        let answer: RedisResult<(Fields,)> = pipe()
            .add_command(cmd("ASKING"))
            .ignore()
            .cmd("HGETALL")
            .arg(key(name))
            .query_async(&mut connection)
            .await;
        let is_broken = answer.as_ref().is_err_and(|error| error.is_unrecoverable_error());
        *place = (!is_broken).then_some(connection);
        let (read,) = answer.map_err(|error| Error::new(error.to_string()))?;
        expand_fields(&read)
    }
}

fn is_recorded(fields: &Fields, mode: LockMode, digits: &str) -> bool {
    fields.iter().any(|(field, record)| {
        let is_of_mode = match mode {
            LockMode::Write => field == "writer",
            LockMode::Read => field.starts_with("r:"),
        };
        is_of_mode && record.get(14..30) == Some(digits)
    })
}
