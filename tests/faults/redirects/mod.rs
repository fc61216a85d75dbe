//! Locks on real clusters whose slots move, whose connections break, and whose masters die: what
//! the caller sees, and what is left afterwards.

mod book;
mod bus;
mod connecting;
mod identity;
mod load;
mod masters;
mod moves;
mod raw;
mod storms;

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, ConnectTo, Result};
use rwlease::{Builder, Locks};
use tokio::sync::Mutex;

/// So long that no test is helped by a lease that ends.
const LONG: Duration = Duration::from_secs(120);

/// The longest that anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that is used by one test after the other, to save its start. One whose test failed is
/// not used again.
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

/// Settings for a client of the cluster: it looks often, so that queues are quick where there is no
/// push.
fn settings() -> Builder {
    let poll = Duration::from_millis(50);
    Locks::builder().lease(LONG).poll_interval(poll)
}

async fn client(cluster: &Cluster) -> Result<Locks> {
    Ok(settings().connect_to(&cluster.urls()).await?)
}

/// The key of a lock.
fn key(name: &str) -> String {
    format!("rwlease:{name}")
}
