//! A fault that no row orders, but that a busy machine may cause in any row.

use super::flush;
use crate::chaos::scene::Scene;
use crate::support::{Error, Failover, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unordered {
    /// A replica becomes a master.
    Failover,
    /// The same, and its master becomes one again: in the end all are what they were.
    ThereAndBack,
    /// A replica starts again.
    Restart,
    /// A replica ends by itself.
    End,
    /// A master takes a new epoch for what it has.
    Epoch,
    /// The nemesis itself fails after it has done something that it did not say.
    FailoverAndError,
}

/// A fault as it should be, and beside it what nobody ordered.
pub async fn strike(scene: &mut Scene, what: Unordered) -> Result {
    flush::strike(scene).await?;
    let master = scene.some_master().await?;
    let replica = scene.heir(master).await?;
    let cluster = &scene.cluster;
    match what {
        Unordered::Failover => cluster.fail_over(replica, Failover::Orderly).await,
        Unordered::ThereAndBack => {
            cluster.fail_over(replica, Failover::Orderly).await?;
            cluster.fail_over(master, Failover::Orderly).await
        }
        Unordered::Restart => {
            cluster.node(replica).restart().await?;
            cluster.agree().await
        }
        Unordered::End => {
            // As if it had met an error of its own; to be stopped in this way is no order of the
            // harness.
            cluster.node(replica).say::<()>("SHUTDOWN NOSAVE").await.err();
            Ok(())
        }
        Unordered::Epoch => {
            cluster.node(master).say::<()>("CLUSTER BUMPEPOCH").await?;
            cluster.agree().await
        }
        Unordered::FailoverAndError => {
            cluster.fail_over(replica, Failover::Orderly).await?;
            Err(Error::new("the nemesis failed"))
        }
    }
}
