//! Servers in containers: faults that the engine causes, and the cluster of `cluster-compose/`.

use std::fmt;
use std::process::{Command, Stdio};

use super::project_path::find_in_project;
use super::{Cluster, Error, Result, Server};

const COMPOSER: &str = "cluster-compose/cluster";
const NODES: usize = 6;

/// Below the ports of the servers that are processes; in tens.
const PORTS: std::ops::Range<u16> = 710..990;
/// How often another place is chosen.
const STARTS: usize = 2;

/// A container, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container(String);

impl Container {
    /// `kill -9` by the engine.
    pub fn kill(&self) -> Result {
        engine(&["kill", &self.0])
    }

    pub fn start(&self) -> Result {
        engine(&["start", &self.0])
    }

    /// The engine pauses the process: it keeps its connections and answers nothing.
    pub fn pause(&self) -> Result {
        engine(&["pause", &self.0])
    }

    pub fn unpause(&self) -> Result {
        engine(&["unpause", &self.0])
    }

    /// Disconnects its network: it can neither reach others nor be reached.
    fn disconnect(&self, network: &str) -> Result {
        engine(&["network", "disconnect", network, &self.0])
    }

    fn connect(&self, network: &str, address: &str) -> Result {
        engine(&["network", "connect", "--ip", address, network, &self.0])
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the nodes of a cluster in containers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One network namespace, whose ports are on the host's loopback.
    Shared,
    /// An address for each, so that one can be cut off.
    Apart,
}

/// The six nodes of `cluster-compose/`, with a name and ports of their own. They are removed when
/// this is dropped.
#[derive(Debug)]
pub struct Compose {
    cluster: Cluster,
    script: ComposeScript,
}

/// Calls the script in `cluster-compose/`.
#[derive(Debug)]
struct ComposeScript {
    project: String,
    network: Network,
    /// The first of the ports, or the third byte of the addresses.
    place: u16,
}

impl Compose {
    /// Starts the nodes, and waits until they agree.
    pub async fn up(network: Network) -> Result<Compose> {
        let script = ComposeScript::up(network)?;
        let cluster = script.cluster().await?;
        cluster.wait_for_agreement().await?;
        Ok(Compose { cluster, script })
    }

    /// The same nodes as a `Cluster`. They stay when it is dropped.
    pub async fn as_cluster(&self) -> Result<Cluster> {
        self.script.cluster().await
    }

    /// Cuts a node off from all others and from the host.
    pub fn cut_off(&self, node: usize) -> Result {
        self.container_of(node)?.disconnect(&self.script.network_name())
    }

    /// Gives a node its network and its address back.
    pub fn reconnect(&self, node: usize) -> Result {
        let (address, _) = self.script.address(node);
        self.container_of(node)?.connect(&self.script.network_name(), &address)
    }

    fn container_of(&self, node: usize) -> Result<&Container> {
        let container = self.cluster.node(node).container();
        container.ok_or_else(|| Error::new(format!("node {node} is in no container")))
    }
}

impl std::ops::Deref for Compose {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for ComposeScript {
    fn drop(&mut self) {
        // A failure cannot be handled here: `docker ps` shows what is left.
        let _ = self.run("down");
    }
}

impl ComposeScript {
    /// Other containers may be at the chosen place.
    fn up(network: Network) -> Result<ComposeScript> {
        let mut tries = 0..STARTS;
        loop {
            let script = ComposeScript {
                project: format!("rwlease{}", std::process::id()),
                network,
                place: match network {
                    Network::Shared => fastrand::u16(PORTS) * 10,
                    Network::Apart => fastrand::u16(64..192),
                },
            };
            match script.run("up") {
                Ok(()) => return Ok(script),
                Err(_) if tries.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn cluster(&self) -> Result<Cluster> {
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let (host, port) = self.address(number);
            let container = Container(self.container(number)?);
            nodes.push(Server::in_container(container, &host, port).await?);
        }
        Cluster::of(nodes).await
    }

    fn run(&self, what: &str) -> Result {
        let composer = find_in_project(COMPOSER)
            .ok_or_else(|| Error::new(format!("{COMPOSER} is not there")))?;
        let mut command = Command::new(composer);
        command.arg(what).env("PROJECT", &self.project);
        match self.network {
            Network::Shared => {
                for node in 0..NODES as u16 {
                    command.env(format!("PORT_{node}"), (self.place + node).to_string());
                }
            }
            Network::Apart => {
                command.env("PARTITION", "1").env("SUBNET", format!("172.31.{}", self.place));
            }
        }
        succeed(&mut command)
    }

    fn address(&self, node: usize) -> (String, u16) {
        match self.network {
            Network::Shared => ("127.0.0.1".into(), self.place + node as u16),
            Network::Apart => (format!("172.31.{}.{}", self.place, 10 + node), 7_000),
        }
    }

    /// Composers name containers differently.
    fn container(&self, node: usize) -> Result<String> {
        let mut command = Command::new("docker");
        command.args(["ps", "--all", "--format", "{{.Names}}"]);
        for (label, value) in [("project", &self.project), ("service", &format!("node-{node}"))] {
            command.args(["--filter", &format!("label=com.docker.compose.{label}={value}")]);
        }
        let name = String::from_utf8_lossy(&command.output()?.stdout).trim().to_owned();
        if name.is_empty() {
            return Err(Error::new(format!("there is no container of node {node}")));
        }
        Ok(name)
    }

    fn network_name(&self) -> String {
        format!("{}_nodes", self.project)
    }
}

/// Returns an error with the reason if no container engine answers.
pub fn engine_answers() -> Result {
    engine(&["version"])
}

fn engine(words: &[&str]) -> Result {
    succeed(Command::new("docker").args(words))
}

/// Runs a command, which must succeed.
pub(super) fn succeed(command: &mut Command) -> Result {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::new(format!("{command:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&said))))
}
