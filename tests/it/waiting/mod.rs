//! Waiting on a real cluster: how waiters are notified, and that a client which is gone or gives up
//! leaves nothing behind.

mod call_counts;
mod cancel;
pub mod child_process;
mod dead_waiters;
mod queue;
mod resubscribe;
mod runtime_shutdown;
mod without_push;

use std::time::Duration;

use rwlease::{Client, ClientBuilder};
use testkit::{Cluster, ConnectBuilder, Result};
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
async fn hearing(cluster: &Cluster) -> Result<Client> {
    Ok(by_push().connect_to(&cluster.urls()).await?)
}

fn by_push() -> ClientBuilder {
    Client::builder().lease(LONG).claim_timeout(LONG).waiter_ttl(LONG).poll_interval(NEVER)
}

/// The output of a future that must complete within [`PATIENCE`].
async fn soon<T>(what: impl Future<Output = T>) -> Result<T> {
    Ok(tokio::time::timeout(PATIENCE, what).await?)
}
