//! Takes a lock on each master for a moment: acquires, renews, hands over and releases it. The best
//! check of a user's rights is to use them.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rwlease::{Client, RwLock, Slot};
use tokio::time::sleep;

use super::finding::Finding;
use super::probe::{Deployment, Node, Role};
use crate::args::ServerArgs;
use crate::exit::error_chain;

const TIMEOUT: Duration = Duration::from_secs(5);

pub async fn all(servers: &ServerArgs, deployment: &Deployment) -> Vec<Finding> {
    let locks = match client(servers).await {
        Ok(locks) => locks,
        Err(why) => {
            return vec![Finding::error(format!("no client for locks: {why}"))];
        }
    };
    // At the same time: at a node that is away each takes as long as it may.
    let trials = deployment.nodes.iter().filter_map(|node| Some((node, any_slot_of(node)?)));
    let trials = trials.map(|(node, slot)| {
        let locks = &locks;
        async move { try_master(locks, slot).await.at(node.address.to_string()) }
    });
    let findings = join_all(trials).await;
    locks.shutdown(TIMEOUT).await;
    findings
}

/// Errors omit the advice of other commands to run the doctor.
async fn client(servers: &ServerArgs) -> Result<Client, String> {
    let builder = servers.builder().map_err(|failure| failure.to_string())?;
    builder.label("").connect().await.map_err(|error| error_chain(&error))
}

fn any_slot_of(node: &Node) -> Option<Slot> {
    match &node.role {
        Role::Single => Slot::new(0),
        Role::Master(ranges) => ranges.first().and_then(|&(first, _)| Slot::new(first)),
        Role::Replica => None,
    }
}

async fn try_master(locks: &Client, slot: Slot) -> Finding {
    let name = format!("rwlease-doctor:{{{}}}:{}", slot.hash_tag(), locks.client_id());
    let tried = match locks.rwlock(&name) {
        Ok(lock) => time_handoff(&lock).await,
        Err(error) => Err(error),
    };
    match tried {
        Ok(took) => {
            let swift = if took < Duration::from_millis(100) { "" } else { " slowly" };
            Finding::ok(format!("a lock was taken, handed over{swift} and released"))
        }
        Err(error) => Finding::error(error_chain(&error)),
    }
}

/// From a writer to a waiting reader. Returns how long that took.
async fn time_handoff(lock: &RwLock) -> rwlease::Result<Duration> {
    let writing = lock.write().timeout(TIMEOUT).await?;
    writing.renew().await?;
    let waiting = lock.read().timeout(TIMEOUT);
    let releasing = async {
        while lock.status().await?.waiter_count == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let released = Instant::now();
        let _ = writing.release().await?;
        Ok(released)
    };
    let (reading, released) = tokio::try_join!(waiting.into_future(), releasing)?;
    let took = released.elapsed();
    let _ = reading.release().await?;
    Ok(took)
}
