//! Reads the state of the servers, and finds the changes that no nemesis ordered. A run with such a
//! change shows nothing, and is void.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::history::now;
use testkit::{Cluster, ClusterNodes, PollLimit, Result, Server};

/// The log lines of a server that becomes a master by an election or by
/// `CLUSTER FAILOVER TAKEOVER`. They end differently in Redis and Valkey.
const PROMOTED: [&str; 2] = ["Failover election won", "Taking over the "];

/// A change that a nemesis orders. Servers are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A replica takes over from its master. The old master and its other replicas become replicas
    /// of the new one.
    TakesOver {
        from: usize,
        to: usize,
    },
    /// A master is given a slot, and may take a new epoch for it.
    TakesSlot(usize),
    Restarts(usize),
    /// A master without slots.
    Joins(usize),
    Leaves(usize),
    Follows {
        replica: usize,
        master: usize,
    },
}

/// How the time since the last look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// All that was ordered has happened.
    Done,
    /// An error interrupted it: the ordered change may or may not have happened.
    CutShort,
}

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    ReplicaOf(usize),
    /// A server outside of this cluster.
    ReplicaOfStranger,
}

/// The state that one server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Changes with each start of its process.
    pub run_id: String,
    pub role: Role,
    /// Its configuration epoch; that of its master, if it is a replica.
    pub epoch: u64,
    /// The highest epoch that it knows.
    pub current_epoch: u64,
    /// How often it has become a master, by its log. The log of a server in a container is not
    /// read.
    pub promotions: usize,
}

/// The states of all servers that answer, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census(pub BTreeMap<usize, NodeState>);

impl Census {
    /// Queries all servers that no nemesis has killed or stopped. A server that ended by itself is
    /// missing.
    pub async fn take(cluster: &Cluster) -> Result<Census> {
        let mut all = BTreeMap::new();
        for number in cluster.running() {
            all.extend(query(cluster, number).await?.map(|told| (number, told)));
        }
        Ok(Census(all))
    }

    /// The highest epoch that any server knows.
    pub fn current_epoch(&self) -> u64 {
        self.0.values().map(|told| told.current_epoch).max().unwrap_or(0)
    }

    /// Describes what has changed since an earlier look and was not ordered.
    pub fn unordered(&self, before: &Census, ordered: &[Change], ended: Completion) -> Vec<String> {
        let allowed = Expectation::of(before, ordered, ended);
        let numbers = before.0.keys().chain(self.0.keys()).copied();
        let mut numbers: Vec<usize> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut found = Vec::new();
        for number in numbers {
            let (was, is) = (before.0.get(&number), self.0.get(&number));
            found.extend(allowed.of_node(number, was, is));
        }
        found.extend(allowed.of_epoch(before.current_epoch(), self.current_epoch()));
        found
    }
}

/// Returns nothing if its process has ended.
async fn query(cluster: &Cluster, number: usize) -> Result<Option<NodeState>> {
    let node = cluster.node(number);
    let wait_limit = PollLimit::new(format!("node {number} to say what it is"));
    while !node.has_ended()? {
        match NodeState::by(cluster, number, node).await {
            Ok(told) => return Ok(Some(told)),
            Err(error) => wait_limit.pause(error).await?,
        }
    }
    Ok(None)
}

impl NodeState {
    async fn by(cluster: &Cluster, number: usize, node: &Server) -> Result<NodeState> {
        let server = node.info("server").await?;
        let view = ClusterNodes::of(node).await?;
        let entry = view.0.get(cluster.id(number));
        let role = match entry.and_then(|entry| entry.master.as_ref()) {
            None => Role::Master,
            Some(id) => cluster.number(id).map_or(Role::ReplicaOfStranger, Role::ReplicaOf),
        };
        let info: String = node.run_words("CLUSTER INFO").await?;
        let current = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        Ok(NodeState {
            run_id: server.get("run_id").cloned().unwrap_or_default(),
            role,
            epoch: entry.map_or(0, |entry| entry.epoch),
            current_epoch: current.unwrap_or_default().trim().parse()?,
            promotions: promotions(node),
        })
    }
}

fn promotions(node: &Server) -> usize {
    if node.container().is_some() {
        return 0; // its log is not here
    }
    let log = std::fs::read(node.folder().join("server.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    log.lines().filter(|line| PROMOTED.iter().any(|words| line.contains(words))).count()
}

/// The states that the orders lead to.
struct Expectation<'a> {
    ordered: &'a [Change],
    ended: Completion,
    /// The role of each server after each order.
    roles: Vec<BTreeMap<usize, Role>>,
}

impl<'a> Expectation<'a> {
    fn of(before: &Census, ordered: &'a [Change], ended: Completion) -> Expectation<'a> {
        let mut roles: BTreeMap<usize, Role> =
            before.0.iter().map(|(&number, told)| (number, told.role)).collect();
        let mut all = vec![roles.clone()];
        for change in ordered {
            change.apply(&mut roles);
            all.push(roles.clone());
        }
        Expectation { ordered, ended, roles: all }
    }

    fn has(&self, change: Change) -> bool {
        self.ordered.contains(&change)
    }

    fn of_node(
        &self,
        number: usize,
        was: Option<&NodeState>,
        is: Option<&NodeState>,
    ) -> Vec<String> {
        let restarts = self.has(Change::Restarts(number));
        match (was, is) {
            (None, None) => Vec::new(),
            (None, Some(_)) if self.has(Change::Joins(number)) => Vec::new(),
            (None, Some(_)) => vec![format!("node {number} has come")],
            (Some(_), None) if self.has(Change::Leaves(number)) => Vec::new(),
            (Some(_), None) if restarts && self.ended == Completion::CutShort => Vec::new(),
            (Some(was), None) => vec![format!("node {number}, {}, has ended", was.role)],
            (Some(_), Some(_)) if self.has(Change::Leaves(number)) => Vec::new(),
            (Some(was), Some(is)) => {
                let mut found = Vec::new();
                if was.run_id != is.run_id && !restarts {
                    found.push(format!(
                        "node {number}, {}, was started again: run id {} to {}",
                        was.role, was.run_id, is.run_id
                    ));
                }
                found.extend(self.of_role(number, was, is));
                found.extend(self.of_promotions(number, was, is));
                found
            }
        }
    }

    fn of_role(&self, number: usize, was: &NodeState, is: &NodeState) -> Option<String> {
        let role_after = |roles: &BTreeMap<usize, Role>| roles.get(&number).copied();
        let may_be = match self.ended {
            Completion::Done => self.roles.last().and_then(role_after) == Some(is.role),
            Completion::CutShort => {
                self.roles.iter().any(|roles| role_after(roles) == Some(is.role))
            }
        };
        if !may_be {
            return Some(format!(
                "node {number} is {} at epoch {}, and was {} at epoch {}",
                is.role, is.epoch, was.role, was.epoch
            ));
        }
        let is_new = |change: &Change| match *change {
            Change::TakesOver { to, .. } | Change::TakesSlot(to) => to == number,
            _ => false,
        };
        let stays =
            is.role == Role::Master && was.role == Role::Master && !self.ordered.iter().any(is_new);
        (stays && was.epoch != is.epoch).then(|| {
            format!(
                "node {number}, a master all the time, went from epoch {} to {}",
                was.epoch, is.epoch
            )
        })
    }

    /// Includes takeovers that a later one undid, which left no other trace.
    fn of_promotions(&self, number: usize, was: &NodeState, is: &NodeState) -> Option<String> {
        let to_it =
            |change: &&Change| matches!(change, Change::TakesOver { to, .. } if *to == number);
        let ordered = self.ordered.iter().filter(to_it).count();
        let seen = is.promotions.saturating_sub(was.promotions);
        let has_log = is.promotions > 0;
        let may_be = match self.ended {
            Completion::Done => seen == ordered || !has_log,
            Completion::CutShort => seen <= ordered,
        };
        (!may_be)
            .then(|| format!("node {number} made itself a master; promotions in its log: {seen}, ordered: {ordered}"))
    }

    /// Each vote raises the epoch, even a lost one, and each slot raises it by at most one.
    fn of_epoch(&self, was: u64, is: u64) -> Option<String> {
        let count =
            |is_it: fn(&Change) -> bool| self.ordered.iter().filter(|change| is_it(change)).count();
        let slots = count(|change| matches!(change, Change::TakesSlot(_)));
        let votes = count(|change| matches!(change, Change::TakesOver { .. }));
        let most = if votes > 0 { u64::MAX } else { was + slots as u64 };
        (!(was..=most).contains(&is)).then(|| {
            format!("the epoch of the cluster went from {was} to {is}, with {slots} slots ordered to another master")
        })
    }
}

impl Change {
    fn apply(self, roles: &mut BTreeMap<usize, Role>) {
        match self {
            Change::TakesOver { from, to } => {
                for role in roles.values_mut().filter(|role| **role == Role::ReplicaOf(from)) {
                    *role = Role::ReplicaOf(to);
                }
                roles.insert(to, Role::Master);
                roles.insert(from, Role::ReplicaOf(to));
            }
            Change::Joins(number) => {
                roles.insert(number, Role::Master);
            }
            Change::Leaves(number) => {
                roles.remove(&number);
            }
            Change::Follows { replica, master } => {
                roles.insert(replica, Role::ReplicaOf(master));
            }
            Change::TakesSlot(_) | Change::Restarts(_) => {}
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Master => f.write_str("a master"),
            Role::ReplicaOf(master) => write!(f, "a replica of node {master}"),
            Role::ReplicaOfStranger => {
                f.write_str("a replica of a server that is not of this cluster")
            }
        }
    }
}

/// The orders of a run, and the changes that no order explains.
#[derive(Debug)]
pub struct Ledger {
    last: Census,
    /// Since the last look.
    ordered: Vec<Change>,
    unordered: Vec<String>,
    /// All looks, for the report.
    log: File,
}

impl Ledger {
    /// Starts from the present state of the servers.
    pub async fn open(cluster: &Cluster, log: &Path) -> Result<Ledger> {
        let last = Census::take(cluster).await?;
        let mut log = File::create(log)?;
        writeln!(log, "{} at the start: {last:?}", now())?;
        Ok(Ledger { last, ordered: Vec::new(), unordered: Vec::new(), log })
    }

    /// Must be called before the change.
    pub fn order(&mut self, change: Change) {
        self.ordered.push(change);
    }

    /// Compares the present state with the last one and the orders since then.
    pub async fn settle(&mut self, cluster: &Cluster, ended: Completion) -> Result {
        let census = Census::take(cluster).await?;
        let ordered = std::mem::take(&mut self.ordered);
        let found = census.unordered(&self.last, &ordered, ended);
        writeln!(
            self.log,
            "{} {ended:?}, ordered {ordered:?}, beside it {found:?}: {census:?}",
            now()
        )?;
        self.unordered.extend(found);
        self.last = census;
        Ok(())
    }

    /// The changes that no nemesis ordered, in words.
    pub fn unordered(&self) -> &[String] {
        &self.unordered
    }
}
