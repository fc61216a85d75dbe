//! With the default settings alone, a command is sent to a server that is frozen.

use std::time::Duration;

use fred::prelude::*;
use futures::future::join_all;
use tokio::time::timeout;

use super::config;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 3;
const LONG: Duration = Duration::from_secs(10);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let client = Builder::from_config(config(&cluster)).build()?;
    client.init().await?;
    cluster.node(0).freeze()?;

    let unanswered = join_all((0..TRIES).map(|key| {
        let client = &client;
        async move {
            let answer = client.get::<Option<String>, _>(format!("key{key}"));
            timeout(LONG, answer).await.is_err()
        }
    }));
    let mut seen = Seen::default();
    unanswered.await.into_iter().for_each(|unanswered| seen.note(unanswered));
    Ok(seen)
}
