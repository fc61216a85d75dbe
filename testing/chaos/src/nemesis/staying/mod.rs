//! Faults that stay: struck once, read back again and again, and lifted when all is measured.
//! `crate::staying` compares the load before with the load meanwhile.

mod cut_client;
mod cut_nodes;
mod full_disk;
mod lag;

pub use cut_client::ClientCut;

use super::{clocks, ensure};
use crate::history::Hold;
use crate::scenario::Scene;
use crate::worker::Orders;
use testkit::{Cluster, ClusterConfig, NetworkNamespace, Proxy, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayingFault {
    /// One master cannot send to another one.
    CutNodes,
    /// One worker cannot use one master.
    CutClient(ClientCut),
    /// The replica of a master is frozen for nearly all the time.
    Lag,
    /// One server's clock is wrong by less than the margin of the leases.
    Clock,
    /// The disk of a master is full.
    FullDisk,
}

/// What a fault needs beside the cluster.
#[derive(Debug, Default)]
pub struct Props {
    /// The network of a node.
    pub space: Option<NetworkNamespace>,
    /// The way of one worker to one node.
    pub proxy: Option<Proxy>,
}

impl Props {
    /// Leads the worker of the proxy through it.
    pub fn redirect(&self, worker: usize, cluster: &Cluster, orders: &mut Orders) {
        if let Some(proxy) = self.proxy.as_ref().filter(|_| worker == cut_client::WORKER) {
            let node = cluster.node(cut_client::NODE);
            orders.ports = vec![(node.port(), proxy.port())];
            for url in orders.urls.iter_mut().filter(|url| **url == node.url()) {
                *url = proxy.url();
            }
        }
    }
}

/// What a fault touches, and how the requests for it fail.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// The locks of the struck server.
    pub names: Vec<usize>,
    /// The only worker for which they are touched.
    pub worker: Option<usize>,
    pub errors: &'static [&'static str],
    /// Whether such a request is never granted.
    pub is_all_refused: bool,
}

impl Touched {
    /// Whether the fault keeps this request from its lock.
    pub fn has(&self, hold: &Hold) -> bool {
        self.is_of_server(hold) && self.worker.is_none_or(|worker| hold.worker == worker)
    }

    /// Whether the lock is of the struck server.
    pub fn is_of_server(&self, hold: &Hold) -> bool {
        self.names.contains(&hold.name)
    }
}

impl StayingFault {
    pub fn name(self) -> &'static str {
        match self {
            StayingFault::CutNodes => "cut nodes",
            StayingFault::CutClient(cut) => cut.name(),
            StayingFault::Lag => "lag",
            StayingFault::Clock => "clock",
            StayingFault::FullDisk => "full disk",
        }
    }

    /// The cluster, or nothing if this machine or server lacks what the fault needs.
    pub async fn prepare(self, shape: ClusterConfig) -> Result<Option<(Cluster, Props)>> {
        match self {
            StayingFault::CutNodes => cut_nodes::prepare(&shape).await,
            StayingFault::CutClient(_) => cut_client::prepare(shape).await.map(Some),
            StayingFault::Lag => Ok(Some((Cluster::start_with(shape).await?, Props::default()))),
            StayingFault::Clock => {
                let cluster = clocks::prepare(shape).await?;
                Ok(cluster.map(|cluster| (cluster, Props::default())))
            }
            StayingFault::FullDisk => full_disk::prepare(shape).await,
        }
    }

    /// Returns once the fault is in force.
    pub async fn strike(self, scene: &mut Scene) -> Result<Touched> {
        match self {
            StayingFault::CutNodes => cut_nodes::strike(scene).await,
            StayingFault::CutClient(cut) => cut_client::strike(scene, cut).await,
            StayingFault::Lag => lag::strike(scene).await,
            StayingFault::Clock => clocks::set_off(scene).await.map(|()| Touched::default()),
            StayingFault::FullDisk => full_disk::strike(scene).await,
        }
    }

    /// Reads back that the fault is in force, and returns the proof.
    pub async fn look(self, scene: &mut Scene) -> Result<String> {
        match self {
            StayingFault::CutNodes => cut_nodes::look(scene).await,
            StayingFault::CutClient(cut) => cut_client::look(scene, cut).await,
            StayingFault::Lag => lag::look(scene).await,
            StayingFault::Clock => clocks::look(scene).await,
            StayingFault::FullDisk => full_disk::look(scene).await,
        }
    }

    pub async fn lift(self, scene: &mut Scene) -> Result {
        match self {
            StayingFault::CutNodes => cut_nodes::lift(scene).await,
            StayingFault::CutClient(_) => cut_client::lift(scene),
            StayingFault::Lag => lag::lift(scene).await,
            StayingFault::Clock => clocks::set_right(scene).await,
            StayingFault::FullDisk => full_disk::lift(scene).await,
        }
    }
}
