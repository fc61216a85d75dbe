//! Locks on real clusters whose slots move, whose connections break, and whose masters die: the
//! caller's results, and the state afterwards.

mod book;
mod bus;
mod connecting;
mod deployments;
mod identity;
mod load;
mod masters;
mod moves;
mod raw;
mod storms;

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, ConnectBuilder, Result};
use rwlease::{Builder, Locks};
use tokio::sync::Mutex;

/// No test may pass only because a lease of this length has ended.
const LONG: Duration = Duration::from_secs(120);

/// The longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that the tests share one after another, because its start is slow. After a test has
/// failed on it, it is not used again.
static IDLE: Mutex<Option<Arc<Cluster>>> = Mutex::const_new(None);

async fn on_cluster(test: impl AsyncFnOnce(Arc<Cluster>) -> Result) -> Result {
    let mut idle = IDLE.lock().await;
    let cluster = match idle.take() {
        Some(cluster) => cluster,
        None => Arc::new(Cluster::start().await?),
    };
    test(cluster.clone()).await?;
    *idle = Some(cluster);
    Ok(())
}

/// Settings of a client of the cluster. It polls often, so that queues are quick where there is no
/// push.
fn settings() -> Builder {
    let poll = Duration::from_millis(50);
    Locks::builder().lease(LONG).poll_interval(poll)
}

async fn client(cluster: &Cluster) -> Result<Locks> {
    Ok(settings().connect_to(&cluster.urls()).await?)
}

fn key(name: &str) -> String {
    format!("rwlease:{name}")
}
