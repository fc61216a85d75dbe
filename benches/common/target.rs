//! The cluster that a bench measures.

use std::ops::Deref;

use crate::support::{Cluster, Compose, Network, Result};

/// Three masters with a replica each: local processes, or containers if the command line or
/// `CLUSTER` says `compose`.
#[derive(Debug)]
pub enum Target {
    Native(Cluster),
    Compose(Compose),
}

impl Target {
    pub async fn start() -> Result<Target> {
        let named = std::env::var("CLUSTER").is_ok_and(|cluster| cluster == "compose");
        if named || std::env::args().any(|word| word == "--compose") {
            Ok(Target::Compose(Compose::up(Network::Shared).await?))
        } else {
            Ok(Target::Native(Cluster::start().await?))
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Target::Native(_) => "six local processes",
            Target::Compose(_) => "six containers",
        }
    }
}

impl Deref for Target {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match self {
            Target::Native(cluster) => cluster,
            Target::Compose(compose) => compose,
        }
    }
}
