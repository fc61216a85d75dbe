//! A fault that no row orders, but that a busy machine may cause in any row.

use super::flush;
use crate::scenario::Scene;
use testkit::{Error, FailoverMode, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unordered {
    /// A replica becomes a master.
    Failover,
    /// The same, and its master becomes a master again: in the end, all roles are as before.
    ThereAndBack,
    /// A replica starts again.
    Restart,
    /// A replica's process ends.
    End,
    /// A master takes a new epoch for its slots.
    Epoch,
    /// The nemesis fails after a change that it did not record.
    FailoverAndError,
}

/// A proper fault, and beside it a change that was not ordered.
pub async fn strike(scene: &mut Scene, what: Unordered) -> Result {
    flush::strike(scene).await?;
    let master = scene.some_master().await?;
    let replica = scene.heir(master).await?;
    let cluster = &scene.cluster;
    match what {
        Unordered::Failover => cluster.fail_over(replica, FailoverMode::Orderly).await,
        Unordered::ThereAndBack => {
            cluster.fail_over(replica, FailoverMode::Orderly).await?;
            cluster.fail_over(master, FailoverMode::Orderly).await
        }
        Unordered::Restart => {
            cluster.node(replica).restart().await?;
            cluster.wait_for_agreement().await
        }
        Unordered::End => {
            // It fails as if by an error of its own. The harness did not order this stop.
            cluster.node(replica).run_words::<()>("SHUTDOWN NOSAVE").await.err();
            Ok(())
        }
        Unordered::Epoch => {
            cluster.node(master).run_words::<()>("CLUSTER BUMPEPOCH").await?;
            cluster.wait_for_agreement().await
        }
        Unordered::FailoverAndError => {
            cluster.fail_over(replica, FailoverMode::Orderly).await?;
            Err(Error::new("the nemesis failed"))
        }
    }
}
