//! Releasing locks, and what the release reports.

use std::time::Duration;

use rwlease::{Client, ReleaseOutcome, RenewalPolicy, scripts};

use crate::fixture::{Bench, eventually, soon};
use testkit::{CutPoint, Proxy, connect};

fn digest(name: &str) -> &'static str {
    scripts().find(|script| script.name() == name).unwrap().digest()
}

#[tokio::test(flavor = "multi_thread")]
async fn release_returns_released_already_lost_or_unknown() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("truth").unwrap();
    let guard = lock.write().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let short = || lock.write().lease(Duration::from_millis(100)).renewal(RenewalPolicy::Manual);
    let guard = short().await.unwrap();
    eventually("the server lets the next one in", || async {
        lock.try_read().await.unwrap().is_some()
    })
    .await;
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    let guard = lock.write().await.unwrap();
    lock.force_release().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    // The server does not answer.
    let hasty = Client::builder().call_timeout(Duration::from_millis(300));
    let hasty = bench.client_with(hasty).await;
    let guard = hasty.rwlock("unknown").unwrap().write().await.unwrap();
    bench.server.freeze().unwrap();
    let released = soon("the release", guard.release()).await.unwrap();
    bench.server.thaw().unwrap();
    assert_eq!(released, ReleaseOutcome::Unknown);
    eventually("it is released all the same", || async { bench.record("unknown").await.is_free() })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_with_a_lost_reply_is_repeated_and_returns_released() {
    let bench = Bench::new().await;
    let proxy = Proxy::start(&bench.server).await.unwrap();
    let locks = connect(&[proxy.url()]).await.unwrap();
    let lock = locks.rwlock("lost answer").unwrap();
    // The server knows the scripts from here on.
    let _ = lock.read().await.unwrap().release().await.unwrap();
    for cut in [CutPoint::BeforeIt, CutPoint::AfterIt] {
        let guard = lock.write().await.unwrap();
        let sprung = proxy.trap(digest("release"), cut);
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "{cut:?}");
        sprung.await.unwrap();
    }
    let length = Duration::from_millis(300);
    let guard = lock.write().lease(length).renewal(RenewalPolicy::Manual).await.unwrap();
    let sprung = proxy.trap(digest("release"), CutPoint::AfterIt);
    let releasing = tokio::spawn(guard.release());
    sprung.await.unwrap();
    proxy.close(); // keeps the second attempt from the server until the lease has ended
    tokio::time::sleep(length).await;
    proxy.heal();
    assert_eq!(soon("the release", releasing).await.unwrap().unwrap(), ReleaseOutcome::Unknown);
}

/// A second attempt of the same take-up does not count as another take-up.
#[tokio::test(flavor = "multi_thread")]
async fn accept_transfer_with_a_lost_reply_is_repeated() {
    let bench = Bench::new().await;
    let proxy = Proxy::start(&bench.server).await.unwrap();
    let other = connect(&[proxy.url()]).await.unwrap();
    let lock = bench.locks.rwlock("lost answer").unwrap();
    // The server knows the script by now.
    let ticket = lock.write().await.unwrap().into_transfer().await.unwrap();
    let _ = other.accept_transfer(&ticket).await.unwrap().release().await.unwrap();
    for cut in [CutPoint::BeforeIt, CutPoint::AfterIt] {
        let ticket = lock.write().await.unwrap().into_transfer().await.unwrap();
        let sprung = proxy.trap(digest("accept_transfer"), cut);
        let guard = other.accept_transfer(&ticket).await.unwrap();
        sprung.await.unwrap();
        assert_eq!(guard.fencing_token(), ticket.fencing_token());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "{cut:?}");
    }
}

#[test]
fn guard_released_or_dropped_on_any_thread_is_released() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bench = runtime.block_on(Bench::new());
    let take = |name: &str| {
        let lock = bench.locks.rwlock(name).unwrap();
        runtime.block_on(lock.write().into_future()).unwrap()
    };
    let is_free = |name: &'static str| {
        runtime.block_on(eventually("it is released", || async {
            bench.record(name).await.is_free()
        }));
    };
    let guard = take("renewed");
    let elsewhere = std::thread::spawn(move || {
        let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        own.block_on(async {
            guard.renew().await.unwrap();
            guard.release().await.unwrap()
        })
    });
    assert_eq!(elsewhere.join().unwrap(), ReleaseOutcome::Released);
    drop(take("outside")); // no runtime here
    is_free("outside");
    let guard = take("thread");
    std::thread::spawn(move || drop(guard)).join().unwrap();
    is_free("thread");
    let guard = take("panic");
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("as the test wants");
    });
    panicked.join().unwrap_err();
    is_free("panic");
    // After its runtime has ended the client can send nothing. The lock is free when the lease
    // ends.
    let guard = take("late");
    let Bench { server, locks } = bench;
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop((guard, locks));
    drop(server);
}
