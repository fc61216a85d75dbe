//! Renewals and their limits, and notices of the end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::{Client, LeaseLoss, LeaseState, LockMode, ReleaseOutcome, RenewalPolicy};
use tokio::time::Instant;

use crate::fixture::{Bench, eventually, soon};
use testkit::wait_renewed;

const LEASE: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(200);

/// On one thread, so that the client's own task does not run in between. The caller holds a lock
/// that the listener takes, too.
#[tokio::test]
async fn on_lost_is_called_by_a_task_after_the_guard_is_gone() {
    let bench = Bench::new().await;
    let losses = Arc::new(Mutex::new(Vec::new()));
    let heard = losses.clone();
    let settings = Client::builder().on_lease_lost(move |loss| {
        heard.try_lock().expect("nobody holds it").push(loss.lock.clone())
    });
    let locks = bench.client_with(settings).await;
    for name in ["released", "dropped"] {
        let lock = locks.rwlock(name).unwrap();
        let guard = lock.write().lease(SHORT).renewal(RenewalPolicy::Manual).await.unwrap();
        std::thread::sleep(SHORT);
        if name == "released" {
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
        } else {
            let held = losses.lock().unwrap();
            drop(guard);
            drop(held);
            assert!(losses.lock().unwrap().is_empty(), "not by who drops the guard");
        }
        eventually("it is heard of", || async { !losses.lock().unwrap().is_empty() }).await;
        let heard = std::mem::take(&mut *losses.lock().unwrap());
        assert_eq!(heard.iter().map(|lock| &**lock).collect::<Vec<_>>(), [name]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_is_reported_to_all_observers_before_the_next_grant() {
    let bench = Bench::new().await;
    let losses: Arc<Mutex<Vec<LeaseLoss>>> = Arc::default();
    let heard = losses.clone();
    let settings =
        Client::builder().on_lease_lost(move |loss| heard.lock().unwrap().push(loss.clone()));
    let locks = bench.client_with(settings).await;
    let lock = locks.rwlock("told").unwrap();
    let guard = lock.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap();
    let next = tokio::spawn({
        let lock = bench.locks.rwlock("told").unwrap();
        async move { (lock.write().await.unwrap(), Instant::now()) }
    });
    let lease = guard.clone();
    let watching = tokio::spawn(async move {
        lease.ended().await;
        Instant::now()
    });
    let token = guard.cancellation_token();
    let cancelling = tokio::spawn(async move {
        token.cancelled().await;
        Instant::now()
    });
    let told =
        [soon("lost", watching).await.unwrap(), soon("cancelled", cancelling).await.unwrap()];
    let (next, let_in) = soon("the next one", next).await.unwrap();
    assert!(told.iter().all(|told| *told < let_in));
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.cancellation_token().is_cancelled());
    drop(guard);
    let later = lock.read().lease(LEASE).renewal(RenewalPolicy::Manual);
    let _ = next.release().await.unwrap();
    let later = later.await.unwrap();
    soon("the second loss", later.ended()).await;
    eventually("it is heard of", || async { losses.lock().unwrap().len() == 2 }).await;
    drop(later);
    // A released lease is not lost, although another lease of that length, taken later, is.
    let _ = lock.write().lease(SHORT).await.unwrap().release().await.unwrap();
    drop(lock.write().lease(SHORT).renewal(RenewalPolicy::Manual).await.unwrap());
    let last = lock.read().lease(SHORT).renewal(RenewalPolicy::Manual).await.unwrap();
    soon("the last loss", last.ended()).await;
    eventually("it is heard of", || async { losses.lock().unwrap().len() > 2 }).await;
    let losses = losses.lock().unwrap();
    let told: Vec<_> = losses.iter().map(|loss| (&*loss.lock, loss.mode)).collect();
    assert_eq!(
        told,
        [("told", LockMode::Write), ("told", LockMode::Read), ("told", LockMode::Read)]
    );
}

/// What is queued is delivered before the shutdown ends.
#[tokio::test]
async fn shutdown_waits_for_on_lost() {
    let bench = Bench::new().await;
    let losses = Arc::new(Mutex::new(0));
    let heard = losses.clone();
    let settings = Client::builder().on_lease_lost(move |_| *heard.lock().unwrap() += 1);
    let locks = bench.client_with(settings).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        let lock = locks.rwlock(format!("many:{number}")).unwrap();
        guards.push(lock.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap());
    }
    std::thread::sleep(LEASE);
    drop(guards);
    assert_eq!(*losses.lock().unwrap(), 0);
    assert!(locks.shutdown(Duration::from_secs(30)).await.is_empty());
    assert_eq!(*losses.lock().unwrap(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_lost_panic_leaves_renewals_and_later_losses_working() {
    let bench = Bench::new().await;
    let told = Arc::new(AtomicUsize::new(0));
    let heard = told.clone();
    let settings = Client::builder().on_lease_lost(move |_| {
        heard.fetch_add(1, Ordering::SeqCst);
        panic!("as the test wants");
    });
    let locks = bench.client_with(settings).await;
    let short = locks.rwlock("short").unwrap();
    let short = short.write().lease(SHORT).renewal(RenewalPolicy::Manual).await.unwrap();
    let long = locks.rwlock("long").unwrap().write().lease(LEASE).await.unwrap();
    soon("the loss", short.ended()).await;
    wait_renewed(&long, 3).await.unwrap();
    // It is still told of others.
    let again = locks.rwlock("again").unwrap();
    let again = again.write().lease(SHORT).renewal(RenewalPolicy::Manual).await.unwrap();
    soon("the second loss", again.ended()).await;
    eventually("it is heard of", || async { told.load(Ordering::SeqCst) == 2 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_token_ends_with_its_guard_and_cancels_nothing_else() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("token").unwrap();
    let guard = lock.write().await.unwrap();
    let (one, two) = (guard.cancellation_token(), guard.cancellation_token());
    one.cancel();
    assert!(!two.is_cancelled() && guard.is_held());
    drop(guard);
    soon("the cancellation", two.cancelled()).await;
}

/// A stalled process reads the answer to a renewal when it wakes. By then the caller may have seen
/// that the lease was lost.
#[tokio::test(flavor = "current_thread")]
async fn lease_seen_as_lost_stays_lost_after_a_late_renewal_reply() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("stalled").unwrap();
    let guard = lock.write().lease(LEASE).await.unwrap();
    guard.renew().await.unwrap(); // the server knows the script from here on
    bench.server.freeze().unwrap();
    tokio::time::sleep(LEASE / 2).await; // the renewal has been sent
    bench.server.thaw().unwrap();
    // The server answers the renewal meanwhile, with a lease that is longer than this pause.
    std::thread::sleep(LEASE * 3 / 5);
    assert_eq!(guard.state(), LeaseState::Lost);
    // This answer comes on the same connection, after the renewal's answer.
    drop(bench.locks.rwlock("other").unwrap().try_write().await.unwrap());
    assert_eq!(guard.state(), LeaseState::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_end_at_their_limit_and_at_max_hold() {
    let bench = Bench::new().await;
    let renewed = bench.locks.rwlock("renewed").unwrap().read().lease(LEASE).await.unwrap();
    let twice = bench.locks.rwlock("twice").unwrap();
    let twice = twice.write().lease(LEASE).renewal(RenewalPolicy::Limited(2)).await.unwrap();
    let longest = bench.locks.rwlock("longest").unwrap();
    let longest = longest.write().lease(LEASE).max_hold(2 * LEASE).await.unwrap();
    let manual = bench.locks.rwlock("manual").unwrap();
    let manual = manual.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < 2 * LEASE {
        manual.renew().await.unwrap();
        let ends = Instant::now() + longest.remaining();
        assert!(ends <= start + 2 * LEASE, "never longer than the longest hold");
        tokio::time::sleep(LEASE / 5).await;
    }
    soon("two renewals", twice.ended()).await;
    soon("the longest hold", longest.ended()).await;
    soon("the one that nobody renews any more", manual.ended()).await;
    assert_eq!(renewed.state(), LeaseState::Held);
    let next = bench.locks.rwlock("longest").unwrap();
    drop(soon("the next one", next.write().into_future()).await.unwrap());
}
