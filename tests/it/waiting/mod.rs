//! Waiting on a real cluster: the order of grants, how waiters are notified, and that a client
//! which is gone or gives up leaves nothing behind.

pub mod child;
mod counts;
mod deaf;
mod dropping;
mod ending;
mod gone;
mod order;
mod queue;
mod trouble;

use std::time::Duration;

use crate::support::{Cluster, ConnectBuilder, Result};
use rwlease::{Builder, Locks};
use tokio::sync::OnceCell;

/// So long that no lease, claim window or place in the queue ends within a test.
const LONG: Duration = Duration::from_secs(180);

/// So long that no waiter polls by itself within a test.
const NEVER: Duration = Duration::from_secs(60);

/// The longest wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(45);

/// A cluster for the tests that change nothing about it. It ends with the process.
async fn shared() -> Result<&'static Cluster> {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_try_init(Cluster::start).await
}

/// A client that learns of its grants only by push.
async fn hearing(cluster: &Cluster) -> Result<Locks> {
    Ok(by_push().connect_to(&cluster.urls()).await?)
}

fn by_push() -> Builder {
    Locks::builder().lease(LONG).claim_window(LONG).waiter_ttl(LONG).poll_interval(NEVER)
}

/// A client with the default times, except that its leases and places in queues outlast the test.
async fn client(cluster: &Cluster) -> Result<Locks> {
    let settings = Locks::builder().lease(LONG).waiter_ttl(LONG);
    Ok(settings.connect_to(&cluster.urls()).await?)
}

/// The output of a future that must complete within [`PATIENCE`].
async fn soon<T>(what: impl Future<Output = T>) -> Result<T> {
    Ok(tokio::time::timeout(PATIENCE, what).await?)
}
