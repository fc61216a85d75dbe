//! Slots move while their keys are read. The value of each key is its own name. More attempts and
//! redirects than by default keep the client from ending at the first ASK.

use fred::prelude::*;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const ATTEMPTS: u32 = 20;
const SLOTS: usize = 8;
const KEYS_OF_EACH: usize = 8;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let mut builder = client(&cluster);
    builder.with_connection_config(|config| {
        config.max_command_attempts = ATTEMPTS;
        config.max_redirections = ATTEMPTS;
    });
    let client = builder.build()?;
    client.init().await?;

    let (stop, stopped) = watch::channel(false);
    let mut asking = JoinSet::new();
    for key in (0..SLOTS * KEYS_OF_EACH).map(|number| format!("{}{number}", tag(number % SLOTS))) {
        client.set::<(), _, _>(&key, &key, None, None, false).await?;
        asking.spawn(ask(client.clone(), key, stopped.clone()));
    }
    for number in 0..SLOTS {
        let slot = cluster.slot_of(tag(number)).await?;
        cluster.move_slot(slot, 1 - cluster.master_of(slot).await?).await?;
    }
    stop.send_replace(true);
    Ok(asking.join_all().await.into_iter().sum())
}

fn tag(slot: usize) -> String {
    format!("{{moving{slot}}}")
}

/// Only the value of another key counts, no error and no absence.
async fn ask(client: Client, key: String, stopped: watch::Receiver<bool>) -> Seen {
    let mut seen = Seen::default();
    while !*stopped.borrow() {
        let answer: FredResult<Option<String>> = client.get(&key).await;
        seen.note(matches!(answer, Ok(Some(value)) if value != key));
    }
    seen
}
