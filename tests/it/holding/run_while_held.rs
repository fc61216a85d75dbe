//! A closure under a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rwlease::{ErrorKind, RenewalPolicy};

use crate::fixture::{Bench, eventually, in_task, soon};

#[tokio::test(flavor = "multi_thread")]
async fn run_returns_the_output_and_releases_the_lock() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("run").unwrap();
    let mut log = Vec::new(); // borrowed by the closure
    let token = lock
        .write()
        .run_while_held(async |lease| {
            log.push("write");
            assert!(lease.is_held());
            lease.fencing_token()
        })
        .await
        .unwrap();
    assert!(bench.record("run").await.is_free());
    let later = lock.read().run_while_held(async |lease| lease.fencing_token()).await.unwrap();
    assert!(later > token);
    let reentrant = bench.locks.reentrant_owner();
    let nested = reentrant.write(&lock).run_while_held(async |outer| {
        let inner = reentrant.read(&lock).run_while_held(async |inner| inner.fencing_token());
        inner.await.unwrap() == outer.fencing_token()
    });
    assert!(nested.await.unwrap());
    assert_eq!(log, ["write"]);
    assert!(bench.record("run").await.is_free());
    // And in a task.
    let spawned = in_task(&lock, |lock| async move {
        lock.write().run_while_held(async |lease| lease.fencing_token()).await
    });
    assert!(spawned.await.unwrap().unwrap() > later);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_cancelled_when_the_lease_is_lost() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("cancelled").unwrap();
    let cancelled = Arc::new(AtomicBool::new(false));
    let told = Told(cancelled.clone());
    let request = lock.write().lease(Duration::from_millis(500)).renewal(RenewalPolicy::Manual);
    let work = request.run_while_held(async move |_| {
        let _told = told;
        std::future::pending::<()>().await;
    });
    let error = soon("the loss", work).await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::LeaseLost, Some("cancelled")));
    assert!(cancelled.load(Ordering::SeqCst), "the work's future was dropped");
    eventually("all is free", || async { lock.try_write().await.unwrap().is_some() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_panics_or_is_dropped_releases() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("panics").unwrap();
    let panicking = in_task(&lock, |lock| async move {
        lock.write().run_while_held(async |_| panic!("as the test wants")).await
    });
    assert!(panicking.await.unwrap_err().is_panic());
    eventually("all is free", || async { bench.record("panics").await.is_free() }).await;
    let dropped = lock.write().run_while_held(async |_| std::future::pending::<()>().await);
    let _ = tokio::time::timeout(Duration::from_millis(200), dropped).await;
    eventually("all is free", || async { bench.record("panics").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn try_run_returns_the_output_or_none_if_the_lock_is_busy() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("job").unwrap();
    let ran = lock.try_write().run_while_held(async |lease| {
        assert!(lease.is_held());
        let nested = lock.try_write().run_while_held(async |_| panic!("the lock is busy"));
        nested.await.unwrap()
    });
    assert_eq!(ran.await.unwrap(), Some(None::<()>));
    assert!(bench.record("job").await.is_free());
    let once = || lock.try_write().at_least(Duration::from_secs(60));
    assert_eq!(once().run_while_held(async |_| 7).await.unwrap(), Some(7));
    assert_eq!(once().run_while_held(async |_| 7).await.unwrap(), None);
    let elected = bench.locks.election("job:2").unwrap();
    let led = elected.try_campaign().run_while_held(async |lease| lease.is_held());
    assert_eq!(led.await.unwrap(), Some(true));
}
