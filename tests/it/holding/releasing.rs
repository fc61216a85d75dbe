//! Releasing locks, and what the release reports.

use std::time::Duration;

use rwlease::{ErrorKind, LeaseState, Locks, Released, RenewalPolicy, scripts};

use super::bench::{Bench, Record, eventually, soon};
use crate::support::{ConnectBuilder, CutPoint, Proxy, StandaloneServer, connect};

fn digest(name: &str) -> &'static str {
    scripts().find(|script| script.name() == name).unwrap().digest()
}

#[tokio::test(flavor = "multi_thread")]
async fn release_returns_released_already_lost_or_unknown() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("truth").unwrap();
    let guard = lock.write().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let short = || lock.write().lease(Duration::from_millis(100)).renewal(RenewalPolicy::Manual);
    let guard = short().await.unwrap();
    eventually("the server lets the next one in", || async {
        lock.try_read().await.unwrap().is_some()
    })
    .await;
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    let guard = lock.write().await.unwrap();
    lock.force_release().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    // The server does not answer.
    let hasty = Locks::builder()
        .call_timeout(Duration::from_millis(300))
        .connect_to(&[bench.server.url()])
        .await
        .unwrap();
    let guard = hasty.rwlock("unknown").unwrap().write().await.unwrap();
    bench.server.freeze().unwrap();
    let released = soon("the release", guard.release()).await.unwrap();
    bench.server.thaw().unwrap();
    assert_eq!(released, Released::Unknown);
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
        assert_eq!(guard.release().await.unwrap(), Released::Released, "{cut:?}");
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
    assert_eq!(soon("the release", releasing).await.unwrap().unwrap(), Released::Unknown);
}

/// A second attempt of the same take-up does not count as another take-up.
#[tokio::test(flavor = "multi_thread")]
async fn accept_transfer_with_a_lost_reply_is_repeated() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let (one, other) =
        (connect(&[server.url()]).await.unwrap(), connect(&[proxy.url()]).await.unwrap());
    let lock = one.rwlock("lost answer").unwrap();
    // The server knows the script by now.
    let ticket = lock.write().await.unwrap().into_ticket().await.unwrap();
    let _ = other.take_up(&ticket).await.unwrap().release().await.unwrap();
    for cut in [CutPoint::BeforeIt, CutPoint::AfterIt] {
        let ticket = lock.write().await.unwrap().into_ticket().await.unwrap();
        let sprung = proxy.trap(digest("take_up"), cut);
        let guard = other.take_up(&ticket).await.unwrap();
        sprung.await.unwrap();
        assert_eq!(guard.token(), ticket.token());
        assert_eq!(guard.release().await.unwrap(), Released::Released, "{cut:?}");
    }
}

#[test]
fn guard_dropped_on_any_thread_is_released() {
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

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_releases_all_locks_and_cancels_waiters() {
    let bench = Bench::new().await;
    let locks = bench.client().await;
    let names: Vec<String> = (0..200).map(|number| format!("s{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.rwlock(name).unwrap().write().await.unwrap());
    }
    let waiting = tokio::spawn({
        let lock = locks.rwlock("s0").unwrap();
        async move { lock.read().await.map(drop) }
    });
    eventually("it waits", || async { bench.record("s0").await.has_waiters() }).await;
    assert_eq!(locks.shutdown(Duration::from_secs(20)).await, Vec::<String>::new());
    for (name, guard) in names.iter().zip(guards) {
        assert!(bench.record(name).await.is_free(), "{name}");
        assert_eq!(guard.state(), LeaseState::Lost);
        soon("the loss", guard.lost()).await;
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    }
    let cancelled = soon("the waiter", waiting).await.unwrap().unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_returns_the_locks_it_could_not_release() {
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    let stuck = locks.rwlock("stuck").unwrap().write().await.unwrap();
    let fine = locks.rwlock("fine").unwrap().write().await.unwrap();
    let _ = fine.release().await.unwrap();
    server.freeze().unwrap();
    let left = locks.shutdown(Duration::from_millis(300)).await;
    server.thaw().unwrap();
    assert_eq!(left, ["stuck"]);
    drop(stuck);
    assert!(Record::of(&server, "fine").await.is_free());
}
