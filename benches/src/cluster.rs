//! The cluster that a bench measures.

use std::ops::Deref;

use crate::has_option;
use testkit::{Cluster, Compose, Network, Result};

/// Three masters with a replica each: local processes, or containers if the command line or
/// `CLUSTER` says `compose`.
#[derive(Debug)]
pub enum BenchCluster {
    Native(Cluster),
    Compose(Compose),
}

impl BenchCluster {
    pub async fn start() -> Result<BenchCluster> {
        let named = std::env::var("CLUSTER").is_ok_and(|cluster| cluster == "compose");
        if named || has_option("--compose") {
            Ok(BenchCluster::Compose(Compose::up(Network::Shared).await?))
        } else {
            Ok(BenchCluster::Native(Cluster::start().await?))
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            BenchCluster::Native(_) => "six local processes",
            BenchCluster::Compose(_) => "six containers",
        }
    }
}

impl Deref for BenchCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match self {
            BenchCluster::Native(cluster) => cluster,
            BenchCluster::Compose(compose) => compose,
        }
    }
}
