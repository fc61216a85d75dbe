//! etcd-io/etcd#12829: the command under `etcdctl lock` fails, and `etcdctl` ends with 0.
//!
//! The status of the command is that of `rwlease run`, also through a wait and a renewal.

use crate::fixture::alone;
use testkit::{Result, wait_for_waiters};

#[tokio::test]
async fn run_that_waited_and_renewed_ends_with_the_status_of_its_command() -> Result {
    let (server, tool) = alone().await?;
    let lock = rwlease::Client::connect([server.url()]).await?.rwlock("job")?;
    let held = lock.write().await?;
    let script = "sleep 2; exit 42";
    let run = tool.start(&["run", "--lease", "1s", "job", "--", "sh", "-c", script])?;
    wait_for_waiters(&lock, 1).await?;
    let _ = held.release().await?;
    run.ended().await?.expect_status(42);
    Ok(())
}
