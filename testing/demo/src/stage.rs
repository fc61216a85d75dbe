//! Where the demo plays.

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, Slot};

use crate::Outcome;
use testkit::{Cluster, Error};

pub enum Stage {
    Embedded(EmbeddedCluster),
    Cluster(Box<Cluster>),
}

impl Stage {
    pub async fn set(on_cluster: bool) -> Outcome<Stage> {
        if on_cluster {
            println!("starting six servers, three masters and a replica of each ...");
            Ok(Stage::Cluster(Box::new(Cluster::start().await?)))
        } else {
            Ok(Stage::Embedded(EmbeddedCluster::new()))
        }
    }

    pub fn name(&self) -> String {
        match self {
            Stage::Embedded(_) => {
                "the embedded engine, three masters and a replica of each in this process".into()
            }
            Stage::Cluster(cluster) => format!("a cluster of six nodes, {}", cluster.version()),
        }
    }

    pub async fn connect(&self) -> Outcome<Client> {
        match self {
            Stage::Embedded(engine) => Ok(Client::builder().connect_embedded(engine).await?),
            Stage::Cluster(cluster) => Ok(Client::connect(cluster.urls()).await?),
        }
    }

    /// The master that owns a slot.
    pub async fn master_of(&self, slot: Slot) -> Outcome<String> {
        match self {
            Stage::Embedded(engine) => Ok(format!("node {}", engine.faults().master_of(slot))),
            Stage::Cluster(cluster) => {
                Ok(cluster.node(cluster.master_of(slot.get()).await?).address())
            }
        }
    }

    /// Moves a slot with its keys to another master.
    pub async fn move_away(&self, slot: Slot) -> Outcome {
        match self {
            Stage::Embedded(engine) => {
                let faults = engine.faults();
                let target = (faults.master_of(slot) + 1) % 3;
                let moved = faults.begin_move(slot, target) && faults.finish_move(slot);
                if moved { Ok(()) } else { Err(Error::new("the slot did not move")) }
            }
            Stage::Cluster(cluster) => {
                let master = cluster.master_of(slot.get()).await?;
                let others = cluster.masters().await?;
                let target = others.into_iter().find(|other| *other != master);
                cluster
                    .move_slot(
                        slot.get(),
                        target.ok_or_else(|| Error::new("there is one master only"))?,
                    )
                    .await
            }
        }
    }
}
