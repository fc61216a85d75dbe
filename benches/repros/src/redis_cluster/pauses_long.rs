//! Two keys of a moving slot, one at each node, are read together: TRYAGAIN, until the slot has
//! arrived a moment later.

use std::time::{Duration, Instant};

use redis::cmd;
use tokio::time::sleep;

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 3;
const MOMENT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(1_280);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let client = client(&cluster).overall_response_timeout(None).build()?;
    let mut connection = client.get_async_connection().await?;

    let mut seen = Seen::default();
    for number in 0..TRIES {
        let keys = ["here", "there"].map(|key| format!("{{{number}}}{key}"));
        let slot = cluster.slot_of(&keys[0]).await?;
        let source = cluster.master_of(slot).await?;
        cluster.node(source).run_words::<()>(&format!("SET {} word", keys[0])).await?;
        let step = cluster.begin_migration(slot, 1 - source).await?;
        let began = Instant::now();
        let mut command = cmd("MGET");
        command.arg(&keys);
        let asked = command.query_async::<Vec<Option<String>>>(&mut connection);
        let arrives = async {
            sleep(MOMENT).await;
            cluster.move_keys(step).await?;
            cluster.finish_migration(step).await
        };
        let (answer, arrived) = futures::future::join(asked, arrives).await;
        arrived?;
        answer?;
        seen.note(began.elapsed() >= LONG);
    }
    Ok(seen)
}
