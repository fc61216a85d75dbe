//! What a waiter believes about a pushed grant, on embedded servers and in simulated time.

use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, ClientBuilder, RenewalPolicy};
use tokio::time::sleep;

use crate::fixture::{SECOND, client, in_task};

/// What remains of a pushed lease of 30 s when the request returns its guard. The claim has not
/// been answered yet, unless the request waited for its answer.
async fn believed_at_first(settings: ClientBuilder) -> Duration {
    believed_after(SECOND, settings).await
}

/// The same after a wait of this length.
async fn believed_after(wait: Duration, settings: ClientBuilder) -> Duration {
    let engine = EmbeddedCluster::new();
    let holder = client(&engine).await;
    let waiter = settings.connect_embedded(&engine).await.unwrap();
    let held = holder.rwlock("pushed").unwrap().write().await.unwrap();
    let lock = waiter.rwlock("pushed").unwrap();
    let waiting = tokio::spawn(async move { lock.write().await.map(|guard| guard.remaining()) });
    sleep(wait).await;
    let _ = held.release().await.unwrap();
    waiting.await.unwrap().unwrap()
}

/// Another server, with another clock, may end a grant that has not been claimed.
#[tokio::test(start_paused = true)]
async fn pushed_grant_is_shortened_by_the_margin() {
    let left = believed_at_first(Client::builder().claim_timeout(SECOND)).await;
    assert!(!left.is_zero() && left <= SECOND / 2, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn pushed_grant_within_the_margin_waits_for_the_claim_reply() {
    let left =
        believed_at_first(Client::builder().claim_timeout(SECOND).safety_margin(2 * SECOND)).await;
    assert!((20 * SECOND..=28 * SECOND).contains(&left), "{left:?}");
}

/// The margin covers two clocks that drift apart for some seconds, and no longer.
#[tokio::test(start_paused = true)]
async fn pushed_grant_after_a_long_silence_waits_for_the_claim_reply() {
    let seldom = || {
        let settings = Client::builder().poll_interval(60 * SECOND);
        settings.waiter_ttl(600 * SECOND).claim_timeout(SECOND)
    };
    let left = believed_after(30 * SECOND, seldom()).await;
    assert!((20 * SECOND..=30 * SECOND).contains(&left), "{left:?}");
    let left = believed_after(5 * SECOND, seldom()).await;
    assert!(!left.is_zero() && left <= SECOND / 2, "{left:?}");
}

/// The lease is shorter than the claim window.
#[tokio::test(start_paused = true)]
async fn write_with_a_short_lease_granted_by_a_push_lasts_no_longer_than_the_lease() {
    const SHORT: Duration = Duration::from_millis(200);
    let engine = EmbeddedCluster::new();
    let holder = client(&engine).await;
    let waiter = client(&engine).await;
    let held = holder.rwlock("pushed").unwrap().write().await.unwrap();
    let lock = waiter.rwlock("pushed").unwrap();
    let waiting = in_task(&lock, |lock| async move {
        lock.write().lease(SHORT).renewal(RenewalPolicy::Manual).await
    });
    sleep(SECOND).await;
    let _ = held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.remaining() <= SHORT, "{:?}", guard.remaining());
    sleep(SHORT / 4).await; // its claim is over
    assert!(guard.remaining() <= SHORT, "{:?}", guard.remaining());
    let left = lock.status().await.unwrap().writer.unwrap().lease_remaining;
    assert!(left <= SHORT, "{left:?}");
}
