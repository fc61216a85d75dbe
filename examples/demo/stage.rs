//! Where the demo plays.

use rwlease::{Locks, Slot};

use crate::Outcome;
use crate::support::{Cluster, Error};

pub enum Stage {
    Cluster(Box<Cluster>),
}

impl Stage {
    pub async fn set(on_cluster: bool) -> Outcome<Stage> {
        let _ = on_cluster;
        eprintln!("starting six servers, three masters and a replica of each ...");
        Ok(Stage::Cluster(Box::new(Cluster::start().await?)))
    }

    pub fn name(&self) -> String {
        match self {
            Stage::Cluster(cluster) => format!("a cluster of six nodes, {}", cluster.version()),
        }
    }

    pub async fn connect(&self) -> Outcome<Locks> {
        match self {
            Stage::Cluster(cluster) => Ok(Locks::connect(cluster.urls()).await?),
        }
    }

    /// The master that owns a slot.
    pub async fn owner(&self, slot: Slot) -> Outcome<String> {
        match self {
            Stage::Cluster(cluster) => Ok(cluster.node(cluster.owner(slot.get()).await?).address()),
        }
    }

    /// Moves a slot with its keys to another master.
    pub async fn move_away(&self, slot: Slot) -> Outcome {
        match self {
            Stage::Cluster(cluster) => {
                let owner = cluster.owner(slot.get()).await?;
                let others = cluster.masters().await?;
                let target = others
                    .into_iter()
                    .find(|other| *other != owner)
                    .ok_or_else(|| Error::new("there is one master only"))?;
                Ok(cluster.move_slot(slot.get(), target).await?)
            }
        }
    }
}
