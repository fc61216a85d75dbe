//! A cluster of local processes, and a wait until all its nodes agree.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::try_join_all;
use redis::cmd;
use tokio::time::Instant;

use super::server_limit::acquire_server_slots;
use super::{
    ClusterNodeEntry, ClusterNodes, Error, PollLimit, Result, Server, ServerSettings, Version,
};

const SLOTS: usize = 16_384;

/// The size of a cluster, and the settings of its nodes.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub masters: usize,
    pub replicas_of_each: usize,
    /// `cluster-node-timeout`, in milliseconds.
    pub node_timeout: u32,
    pub settings: ServerSettings,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        ClusterConfig {
            masters: 3,
            replicas_of_each: 1,
            node_timeout: 2_000,
            settings: ServerSettings::default(),
        }
    }
}

impl ClusterConfig {
    pub fn of(masters: usize, replicas_of_each: usize) -> ClusterConfig {
        ClusterConfig { masters, replicas_of_each, ..ClusterConfig::default() }
    }

    /// One more line for every node's configuration.
    pub fn line(mut self, line: impl Into<String>) -> ClusterConfig {
        self.settings = self.settings.line(line);
        self
    }
}

/// Nodes have fixed numbers: first the initial masters, then a replica of each, then a second
/// replica of each.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    /// When each node was last promoted by order.
    elections: Mutex<BTreeMap<usize, Instant>>,
}

impl Cluster {
    /// Three masters and three replicas.
    pub async fn start() -> Result<Cluster> {
        Self::start_with(ClusterConfig::default()).await
    }

    /// Starts the nodes, joins them, and waits until they agree.
    pub async fn start_with(shape: ClusterConfig) -> Result<Cluster> {
        let mut settings = ServerSettings { cluster: true, ..shape.settings.clone() };
        settings.lines.insert(0, format!("cluster-node-timeout {}", shape.node_timeout));
        let count = shape.masters * (1 + shape.replicas_of_each);
        acquire_server_slots(count).await;
        let nodes = try_join_all((0..count).map(|_| Server::start(&settings))).await?;
        Cluster::join(nodes, shape.masters).await
    }

    /// Joins running nodes, and waits until they agree. The first `masters` of them become masters,
    /// the rest their replicas.
    pub async fn join(nodes: Vec<Server>, masters: usize) -> Result<Cluster> {
        let cluster = Cluster::of(nodes).await?;
        cluster.form(masters).await?;
        cluster.wait_for_agreement().await?;
        Ok(cluster)
    }

    /// A cluster of running nodes.
    pub async fn of(nodes: Vec<Server>) -> Result<Cluster> {
        let ids = try_join_all(nodes.iter().map(|node| node.run_words("CLUSTER MYID"))).await?;
        Ok(Cluster { nodes, ids, elections: Mutex::default() })
    }

    /// Starts one more node, which is not in the cluster, and returns its number.
    pub async fn add(&mut self, settings: ServerSettings) -> Result<usize> {
        let node = Server::start(&settings).await?;
        self.ids.push(node.run_words("CLUSTER MYID").await?);
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    pub fn version(&self) -> &Version {
        self.nodes[0].version()
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub fn node(&self, number: usize) -> &Server {
        &self.nodes[number]
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The node's id in the cluster.
    pub fn id(&self, number: usize) -> &str {
        &self.ids[number]
    }

    /// The numbers of the nodes that were neither killed nor frozen.
    pub fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&number| self.nodes[number].is_running()).collect()
    }

    /// The numbers of the masters that have slots and run.
    pub async fn masters(&self) -> Result<Vec<usize>> {
        let view = self.view().await?;
        let has_slots = |&number: &usize| {
            view.0.get(&self.ids[number]).is_some_and(|entry| !entry.slots.is_empty())
        };
        Ok(self.running().into_iter().filter(has_slots).collect())
    }

    /// The numbers of the replicas of a node that run.
    pub async fn replicas_of(&self, master: usize) -> Result<Vec<usize>> {
        let view = self.view().await?;
        let is_its = |&number: &usize| {
            view.0.get(&self.ids[number]).and_then(|entry| entry.master.as_ref())
                == Some(&self.ids[master])
        };
        Ok(self.running().into_iter().filter(is_its).collect())
    }

    /// The number of the node that has the slot, once the nodes agree.
    pub async fn master_of(&self, slot: u16) -> Result<usize> {
        let view = self.view().await?;
        let id =
            view.master_of(slot).ok_or_else(|| Error::new(format!("nobody has slot {slot}")))?;
        self.number(id)
            .ok_or_else(|| Error::new(format!("slot {slot} belongs to the unknown node {id}")))
    }

    /// The slots of a node.
    pub async fn slots_of(&self, number: usize) -> Result<Vec<u16>> {
        let view = self.view().await?;
        let entry = view.0.get(self.id(number));
        Ok(entry.into_iter().flat_map(|entry| entry.slots.iter().cloned().flatten()).collect())
    }

    /// The slot of a key, as a server computes it.
    pub async fn slot_of(&self, key: impl AsRef<[u8]>) -> Result<u16> {
        self.first()?.run(cmd("CLUSTER").arg("KEYSLOT").arg(key.as_ref())).await
    }

    /// The view of the first running node. On a busy machine that may take more than one try.
    pub async fn view(&self) -> Result<ClusterNodes> {
        let wait_limit = PollLimit::new("a node to say what it sees");
        wait_limit.until_ok(|| async { ClusterNodes::of(self.first()?).await }).await
    }

    /// Waits until every running node reports the same masters at the same epochs, finds nothing
    /// wrong with another running node, has no moving slot, and serves; and until the replicas are
    /// in step.
    ///
    /// Two changes without this wait between them can leave two masters that name each other.
    pub async fn wait_for_agreement(&self) -> Result {
        PollLimit::new("the nodes to agree").until_ok(|| self.check_agreement()).await
    }

    pub(super) fn elections(&self) -> MutexGuard<'_, BTreeMap<usize, Instant>> {
        self.elections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the node with this id.
    pub fn number(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|have| have == id)
    }

    fn first(&self) -> Result<&Server> {
        let running = self.nodes.iter().find(|node| node.is_running());
        running.ok_or_else(|| Error::new("no node of the cluster runs"))
    }

    /// Every node gets its own epoch, and every master its slots; every pair meets; the rest become
    /// replicas.
    async fn form(&self, masters: usize) -> Result {
        for (number, node) in self.nodes.iter().enumerate() {
            node.run_words::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)).await?;
            if number < masters {
                let share = SLOTS * number / masters..SLOTS * (number + 1) / masters;
                node.run::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(share.collect::<Vec<_>>()))
                    .await?;
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..number] {
                let (host, port, bus) = (other.host(), other.port(), other.bus_port());
                node.run_words::<()>(&format!("CLUSTER MEET {host} {port} {bus}")).await?;
            }
        }
        for number in masters..self.nodes.len() {
            self.replicate(number, number % masters).await?;
        }
        Ok(())
    }

    /// Makes one node the replica of another, as soon as it knows the other.
    async fn replicate(&self, replica: usize, master: usize) -> Result {
        let wait_limit = PollLimit::new("a node to know its master");
        let command = format!("CLUSTER REPLICATE {}", self.ids[master]);
        wait_limit.until_ok(|| self.nodes[replica].run_words(&command)).await
    }

    /// Fails with what is not as it should be, if anything.
    async fn check_agreement(&self) -> Result {
        let running = self.running();
        let mut first: Option<ClusterRoles> = None;
        for &number in &running {
            let node = &self.nodes[number];
            let view = ClusterNodes::of(node).await?;
            if let Some(trouble) = self.problem_in(&view, &running) {
                return Err(Error::new(format!("{} says {trouble}", node.address())));
            }
            if !node.run_words::<String>("CLUSTER INFO").await?.contains("cluster_state:ok") {
                return Err(Error::new(format!("{} does not serve", node.address())));
            }
            let story = self.roles_in(&view, &running);
            match &first {
                Some(first) if *first != story => {
                    let told = format!("{} says {story:?}, another {first:?}", node.address());
                    return Err(Error::new(told));
                }
                Some(_) => {}
                None => first = Some(story),
            }
        }
        self.check_replicas(first.unwrap_or_default()).await
    }

    /// What one view finds wrong with the running nodes.
    fn problem_in(&self, view: &ClusterNodes, running: &[usize]) -> Option<String> {
        for &number in running {
            match view.0.get(&self.ids[number]) {
                Some(entry) if !entry.moving.is_empty() => {
                    return Some(format!("{:?} are moving", entry.moving));
                }
                Some(entry) if entry.is_healthy() => {}
                Some(entry) => return Some(format!("{} is {:?}", entry.port, entry.flags)),
                None => return Some(format!("nothing of {}", self.nodes[number].address())),
            }
        }
        None
    }

    /// The part of a view in which all nodes must agree.
    fn roles_in(&self, view: &ClusterNodes, running: &[usize]) -> ClusterRoles {
        let told = |(id, entry): (&String, &ClusterNodeEntry)| {
            let number = self.number(id)?;
            let is_part = running.contains(&number) || !entry.slots.is_empty();
            is_part.then(|| (number, Role::of(entry)))
        };
        view.0.iter().filter_map(told).collect()
    }

    /// Fails if a master's running replicas are not all in step.
    async fn check_replicas(&self, story: ClusterRoles) -> Result {
        for (&master, role) in story.iter().filter(|(number, _)| self.nodes[**number].is_running())
        {
            let Role::Master { .. } = role else { continue };
            let id = &self.ids[master];
            let expected = story
                .values()
                .filter(|role| matches!(role, Role::Replica { of } if of == id))
                .count();
            let online = self.nodes[master].replicas_in_step().await?;
            if online < expected {
                let told = format!("{online} of {expected} replicas of {master} are in step");
                return Err(Error::new(told));
            }
        }
        Ok(())
    }
}

/// The role of each node, by number.
type ClusterRoles = BTreeMap<usize, Role>;

#[derive(Debug, PartialEq, Eq)]
enum Role {
    Master { epoch: u64, slots: Vec<RangeInclusive<u16>> },
    Replica { of: String },
}

impl Role {
    fn of(entry: &ClusterNodeEntry) -> Role {
        match &entry.master {
            Some(master) => Role::Replica { of: master.clone() },
            None => Role::Master { epoch: entry.epoch, slots: entry.slots.clone() },
        }
    }
}
