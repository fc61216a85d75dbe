//! A request that is dropped while its grant is on its way leaves nothing behind: no holder, no
//! place in the queue.

use super::queue::{Queue, until, until_listening};
use super::{by_push, hearing, shared};
use testkit::{ConnectBuilder, Error, Result};

#[tokio::test(flavor = "multi_thread")]
async fn request_dropped_while_its_grant_is_pushed_leaves_nothing() -> Result {
    let cluster = shared().await?;
    let holder = hearing(cluster).await?.rwlock("on its way")?;
    let waiting = by_push().connect_to(&cluster.urls()).await?.rwlock("on its way")?;
    for _ in 0..20 {
        let held = holder.write().await?;
        let mut first = Box::pin(waiting.write().into_future());
        let mut second = Box::pin(waiting.write().into_future());
        // Both requests are in the queue, and are not polled from here on.
        tokio::select! {
            done = &mut first => return Err(Error::new(format!("{done:?}"))),
            done = &mut second => return Err(Error::new(format!("{done:?}"))),
            listening = until_listening(cluster, &holder, 2) => { listening?; }
        }
        let _ = held.release().await?;
        let granted = Queue::of(cluster, &holder).await?;
        assert!(granted.writer().is_some(), "{granted:?}");
        drop((first, second));
        until(cluster, &holder, "nothing is left", Queue::is_idle).await?;
    }
    Ok(())
}
