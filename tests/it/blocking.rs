//! Locks without a runtime, on a real server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rwlease::blocking::{Wait, run_while_held};
use rwlease::{
    Client, ErrorKind, LeaseState, LeaseTransfer, Redlock, ReleaseOutcome, RenewalPolicy,
    TransferredGuard, UpgradeAttempt,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::block_in_place;

use crate::fixture::LONG;
use testkit::{ConnectBuilder, StandaloneServer};

const SHORT: Duration = Duration::from_millis(300);

/// A server, the runtime that it was started on, and two clients of this thread.
struct Bench {
    one: Client,
    other: Client,
    server: StandaloneServer,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Bench {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(StandaloneServer::start()).unwrap();
        let client = || Client::builder().connect_to(&[server.url()]).wait().unwrap();
        Bench { one: client(), other: client(), server, runtime }
    }
}

#[test]
fn rwlock_write_from_many_threads_is_exclusive() {
    let bench = Bench::new();
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let lock = [&bench.one, &bench.other][number % 2].rwlock("threads").unwrap();
            let inside = &inside;
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..20 {
                    let guard = lock.write().timeout(LONG).wait().unwrap();
                    assert!(guard.is_held() && guard.fencing_token().get() > last);
                    last = guard.fencing_token().get();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(guard.release().wait().unwrap(), ReleaseOutcome::Released);
                }
            });
        }
    });
}

#[test]
fn rwlock_requests_apply_options_and_status_reports_the_holder() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.rwlock("options").unwrap(), other.rwlock("options").unwrap());
    let reading = mine.read().lease(2 * LONG).wait().unwrap();
    assert!(reading.remaining() > LONG);
    assert!(theirs.try_write().wait().unwrap().is_none());
    assert!(theirs.try_read().lease(2 * LONG).wait().unwrap().unwrap().remaining() > LONG);
    let error = theirs.write().timeout(SHORT).wait().unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::TimedOut, Some("options")));
    let invalid = theirs.write().timeout(Duration::ZERO).wait().unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidInput);
    let cancelled = theirs.write().cancel_when(async {}).wait().unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    let status = theirs.status().page_size(10).wait().unwrap();
    assert!(status.is_locked() && theirs.is_locked().wait().unwrap());
    assert!(theirs.is_held_by(reading.id()).wait().unwrap());
    assert_eq!(
        theirs.revoke().wait().unwrap().unwrap().fencing_token.get(),
        status.last_token.map_or(0, u64::from)
    );
    assert_eq!(reading.renew().wait().unwrap_err().kind(), ErrorKind::LeaseRevoked);
    assert_eq!(reading.state(), LeaseState::Uncertain);
    theirs.force_release().wait().unwrap().unwrap();
    assert!(theirs.try_write().wait().unwrap().is_some());
    let _guard = mine.write().wait().unwrap();
    assert_eq!(one.scan("opt").next_page().wait().unwrap().unwrap(), ["options"]);
}

#[test]
fn guard_downgrade_upgrade_and_let_expire_keep_the_lock_held() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.rwlock("changes").unwrap(), other.rwlock("changes").unwrap());
    let reading = mine.write().wait().unwrap().downgrade().wait().unwrap();
    let beside = theirs.try_read().wait().unwrap().unwrap();
    let UpgradeAttempt::OtherReaders(reading) = reading.try_upgrade().wait().unwrap() else {
        panic!("another reads");
    };
    let refused = reading.upgrade().timeout(SHORT).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    let reading = refused.into_guard();
    assert!(reading.is_held());
    let _ = beside.release().wait().unwrap();
    let writing = reading.upgrade().timeout(LONG).wait().unwrap();
    assert!(theirs.try_read().wait().unwrap().is_none());
    assert!(writing.let_expire().wait().unwrap() > SHORT);
    assert!(mine.try_write().wait().unwrap().is_none(), "it was kept");
}

#[test]
fn on_lost_is_called_on_loss_and_not_after_release() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("losses").unwrap();
    let (tell, told) = mpsc::channel();
    let guard = lock.write().lease(SHORT * 4).renewal(RenewalPolicy::Manual).wait().unwrap();
    let tell_lost = tell.clone();
    guard.on_lease_lost(move || tell_lost.send("lost").unwrap());
    assert!(guard.ended().wait_timeout(Duration::from_millis(1)).is_none());
    guard.ended().wait();
    assert!(guard.ended().wait_timeout(LONG).is_some() && !guard.is_held());
    assert_eq!(told.recv_timeout(LONG).unwrap(), "lost");
    let next = other.rwlock("losses").unwrap().write().timeout(LONG).wait().unwrap();
    next.on_lease_lost(move || tell.send("given back").unwrap());
    let lease = next.clone();
    assert_eq!(guard.release().wait().unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(next.release().wait().unwrap(), ReleaseOutcome::Released);
    lease.ended().wait();
    // The task has ended and dropped the sender without sending anything.
    assert_eq!(told.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
}

/// The release waits for its answer, and meanwhile the lease ends.
#[test]
fn on_lost_is_not_called_while_the_holder_releases() {
    let Bench { one, server, .. } = &Bench::new();
    let lock = one.rwlock("releasing").unwrap();
    let (tell, told) = mpsc::channel();
    let guard = lock.write().lease(SHORT * 4).wait().unwrap();
    guard.on_lease_lost(move || tell.send("lost").unwrap());
    let lease = guard.clone();
    server.freeze().unwrap();
    let releasing = thread::spawn(move || guard.release().wait().unwrap());
    thread::sleep(SHORT * 5);
    lease.ended().wait();
    server.thaw().unwrap();
    let _ = releasing.join().unwrap();
    // The task has ended and dropped the sender without sending anything.
    assert_eq!(told.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
}

/// The background thread is busy when the second lease is lost.
#[test]
fn on_lost_is_called_after_the_lost_guard_was_dropped() {
    let Bench { one, .. } = &Bench::new();
    let lose = |name| {
        let lock = one.rwlock(name).unwrap();
        lock.write().lease(SHORT * 4).renewal(RenewalPolicy::Manual).wait().unwrap()
    };
    let (tell_busy, busy) = mpsc::channel();
    let (go_on, gone_on) = mpsc::channel::<()>();
    let first = lose("first");
    let second = lose("second");
    first.on_lease_lost(move || {
        tell_busy.send(()).unwrap();
        gone_on.recv_timeout(LONG).unwrap();
    });
    let (tell, told) = mpsc::channel();
    second.on_lease_lost(move || tell.send("lost").unwrap());
    // Without this renewal the second lease could end first, and the thread would report that loss
    // first.
    second.renew().wait().unwrap();
    busy.recv_timeout(LONG).unwrap();
    while second.is_held() {
        thread::yield_now();
    }
    drop(second);
    go_on.send(()).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok("lost"));
}

#[test]
fn on_lost_panic_leaves_the_lock_available() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("panics").unwrap();
    let (tell, told) = mpsc::channel::<()>();
    let guard = lock.write().lease(SHORT * 4).renewal(RenewalPolicy::Manual).wait().unwrap();
    guard.on_lease_lost(move || {
        let _tell = tell;
        panic!("a listener's own fault");
    });
    assert_eq!(told.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    drop(guard);
    // The client goes on, too.
    drop(lock.write().timeout(LONG).wait().unwrap());
    drop(other.rwlock("panics").unwrap().write().timeout(LONG).wait().unwrap());
}

/// A guard can be given to another thread, and released or dropped there.
#[test]
fn guard_sent_to_another_thread_is_released_there() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("sent").unwrap();
    let guards = [lock.read().wait().unwrap(), lock.read().lease(LONG * 10).wait().unwrap()];
    let [released, dropped] = guards;
    let release = thread::spawn(move || released.release().wait());
    assert_eq!(release.join().unwrap().unwrap(), ReleaseOutcome::Released);
    // Also while that one panics.
    let panicking = thread::spawn(move || {
        let _dropped = dropped;
        panic!("a holder's own fault");
    });
    assert!(panicking.join().is_err());
    let writing = other.rwlock("sent").unwrap().write().timeout(LONG).wait().unwrap();
    let _ = writing.release().wait().unwrap();
}

#[cfg(feature = "legacy")]
#[test]
fn two_key_rwlock_excludes_and_times_out() {
    use rwlease::TwoKeyRwLock;

    let Bench { one, other, .. } = &Bench::new();
    let mine = TwoKeyRwLock::tagged(one, "old").unwrap();
    let theirs = TwoKeyRwLock::new(other, mine.keys()[0], mine.keys()[1]).unwrap();
    let reading = mine.read(LONG, LONG).wait().unwrap();
    assert!(reading.remaining() > SHORT && theirs.try_write(LONG).wait().unwrap().is_none());
    drop(theirs.try_read(LONG).wait().unwrap().unwrap());
    let _ = reading.release().wait().unwrap();
    let writing = theirs.write(LONG, LONG).wait().unwrap();
    assert!(mine.try_read(LONG).wait().unwrap().is_none());
    assert_eq!(mine.write(LONG, SHORT).wait().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(writing.release().wait().unwrap(), ReleaseOutcome::Released);
}

#[test]
fn dropped_guard_is_released_in_the_background() {
    let Bench { one, other, runtime, server } = &Bench::new();
    let (mine, theirs) = (one.rwlock("drops").unwrap(), other.rwlock("drops").unwrap());
    drop(mine.write().lease(LONG * 10).wait().unwrap());
    let guard = theirs.write().lease(LONG * 10).timeout(LONG).wait().unwrap();
    runtime.block_on(async { drop(guard) });
    drop(mine.write().lease(LONG * 10).timeout(LONG).wait().unwrap());
    // The guard is the last handle to its client.
    let client = Client::builder().connect_to(&[server.url()]).wait().unwrap();
    let lock = client.rwlock("drops").unwrap();
    drop(client);
    let guard = lock.write().lease(LONG * 10).timeout(LONG).wait().unwrap();
    drop(lock);
    drop(guard);
    drop(theirs.write().timeout(LONG).wait().unwrap());
}

/// The text of the panic of `call`.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).map(drop).expect_err("no panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

const WITHIN: &str = "Cannot block the current thread from within a runtime";

#[test]
fn wait_within_a_runtime_panics_and_releases_the_guard() {
    let Bench { one, other, runtime, server } = &Bench::new();
    let (mine, theirs) = (one.rwlock("inside").unwrap(), other.rwlock("inside").unwrap());
    for runtime in [&Builder::new_current_thread().enable_all().build().unwrap(), runtime] {
        let read = || mine.read().lease(LONG * 10).timeout(LONG).wait().unwrap();
        let (released, upgraded) = (read(), read());
        let texts = runtime.block_on(async {
            [
                panic_of(|| mine.write().wait()),
                panic_of(|| mine.is_locked().wait()),
                panic_of(|| mine.is_locked().wait_timeout(LONG)),
                panic_of(|| run_while_held(mine.write(), drop)),
                panic_of(|| one.shutdown(LONG).wait()),
                panic_of(|| Client::builder().connect_to(&[server.url()]).wait()),
                panic_of(|| released.release().wait()),
                panic_of(|| upgraded.upgrade().wait()),
            ]
        });
        assert!(texts.iter().all(|text| text.starts_with(WITHIN)), "{texts:?}");
        // The background has released both reads, although their leases are long.
        drop(theirs.write().timeout(LONG).wait().unwrap());
    }
    let in_task = runtime.spawn(async move { panic_of(|| std::future::ready(()).wait()) });
    assert!(in_task.wait().unwrap().starts_with(WITHIN));
}

#[test]
fn wait_on_spawn_blocking_returns_the_guard() {
    let Bench { one, other, runtime, server } = &Bench::new();
    let url = server.url();
    let with_own_client = move || {
        let client = Client::builder().connect_to(&[url]).wait().unwrap();
        client.rwlock("may block").unwrap().write().timeout(LONG).wait().unwrap()
    };
    // The client of that thread does not end with the runtime on which the thread was started.
    let brief = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = brief.block_on(brief.spawn_blocking(with_own_client)).unwrap();
    drop(brief);
    guard.renew().wait().unwrap();
    drop(guard);

    let lock = one.rwlock("may block").unwrap();
    runtime.block_on(async {
        let guard = block_in_place(|| lock.write().timeout(LONG).wait()).unwrap();
        assert!(guard.release().await.unwrap().was_held());
    });
    let entered = runtime.enter();
    drop(other.rwlock("may block").unwrap().write().timeout(LONG).wait().unwrap());
    drop(entered);
}

/// The client stays on the runtime of the program.
#[test]
fn wait_for_requests_of_a_client_of_another_runtime_works() {
    let Bench { other, runtime, server, .. } = &Bench::new();
    let urls = [server.url()];
    let connect = Client::builder().lease(SHORT * 4).connect_to(&urls);
    let client = runtime.block_on(connect).unwrap();
    let guard = client.rwlock("async").unwrap().write().wait().unwrap();
    assert!(guard.ended().wait_timeout(SHORT * 6).is_none(), "it is renewed");
    drop(guard);
    drop(other.rwlock("async").unwrap().write().timeout(LONG).wait().unwrap());
}

#[test]
fn wait_runs_a_future_that_is_bound_to_this_thread() {
    let Bench { one, .. } = &Bench::new();
    let lock = one.rwlock("bound").unwrap();
    let count = Rc::new(5);
    let more = async {
        let guard = lock.write().await.unwrap();
        let _ = guard.release().await.unwrap();
        *count + 1
    };
    assert_eq!(more.wait(), 6);
    assert_eq!(std::future::pending::<()>().wait_timeout(Duration::from_millis(1)), None);
}

#[test]
fn run_while_held_work_may_wait_and_the_lock_is_released() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.rwlock("work").unwrap(), other.rwlock("work").unwrap());
    let output = run_while_held(mine.write().timeout(LONG), |lease| {
        assert!(lease.is_held() && theirs.try_read().wait().unwrap().is_none());
        lease.fencing_token()
    });
    assert!(output.unwrap().is_some());
    let guard = theirs.try_write().wait().unwrap().unwrap();
    let refused = run_while_held(mine.read().timeout(SHORT), |_| panic!("it is not held"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(guard);
    let panicking =
        || run_while_held(mine.write().timeout(LONG).lease(LONG * 10), |_| panic!("own"));
    assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    drop(theirs.write().timeout(LONG).wait().unwrap());
}

#[test]
fn run_while_held_returns_lease_lost_after_a_loss() {
    let Bench { one, .. } = &Bench::new();
    let lock = one.rwlock("lost work").unwrap();
    let request = lock.write().lease(SHORT).renewal(RenewalPolicy::Manual);
    let lost = run_while_held(request, |lease| lease.ended().wait());
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::LeaseLost);
    let leader = one.election("lost work").unwrap();
    let term = run_while_held(leader.campaign().timeout(LONG), |lease| lease.fencing_token());
    assert!(term.unwrap().is_some());
}

#[test]
fn mutex_multi_and_reentrant_exclude_and_release() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.set_nx_mutex("plain").unwrap(), other.set_nx_mutex("plain").unwrap());
    let held = mine.lock().timeout(LONG).wait().unwrap();
    assert!(theirs.try_lock().wait().unwrap().is_none() && theirs.is_locked().wait().unwrap());
    assert!(theirs.is_held_by(held.id()).wait().unwrap());
    assert_eq!(theirs.status().wait().unwrap().unwrap().value, held.id().as_bytes());
    assert!(
        one.multi_lock()
            .write("multi")
            .set_nx_mutex("plain")
            .try_acquire()
            .wait()
            .unwrap()
            .is_none()
    );
    let _ = held.release().wait().unwrap();
    let both = one.multi_lock().write("multi").set_nx_mutex("plain").timeout(LONG).wait().unwrap();
    assert_eq!(both.leases().len(), 2);
    both.renew().wait().unwrap();
    assert!(theirs.try_lock().wait().unwrap().is_none());
    assert_eq!(both.release().wait().unwrap(), ReleaseOutcome::Released);

    let (reentrant, lock) = (one.reentrant_owner(), one.rwlock("again").unwrap());
    let outer = reentrant.write(&lock).wait().unwrap();
    let inner = reentrant.try_read(&lock).wait().unwrap().unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    let _ = outer.release().wait().unwrap();
    let _ = inner.release().wait().unwrap();
    let outer = reentrant.lock_set_nx(&mine).wait().unwrap();
    drop(reentrant.try_lock_set_nx(&mine).wait().unwrap().unwrap());
    assert!(outer.is_held());
}

#[test]
fn cached_lock_is_granted_locally_until_recalled() {
    let Bench { one, other, server, .. } = &Bench::new();
    let cached = one.rwlock("cached").unwrap().cached().unwrap();
    // A server without sharded pub/sub sends no recalls, so the client caches nothing there.
    let is_kept = server.version().has_sharded_pubsub();
    for turn in 0.. {
        let writing = cached.write().timeout(LONG).wait().unwrap();
        assert!(writing.is_held());
        let _ = writing.downgrade().wait().unwrap().release().wait().unwrap();
        match (cached.cache_status().hold, is_kept) {
            (None, true) => {}
            (None, false) if turn < 100 => {}
            (hold, _) => {
                assert_eq!(hold.is_some(), is_kept);
                break;
            }
        }
    }
    let _ = other
        .rwlock("cached")
        .unwrap()
        .write()
        .timeout(LONG)
        .wait()
        .unwrap()
        .release()
        .wait()
        .unwrap();
    drop(cached.try_read().wait().unwrap().unwrap());
}

#[test]
fn leader_watch_reports_campaign_and_resign() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.election("blocking").unwrap(), other.election("blocking").unwrap());
    let mut watch = theirs.observe().poll_interval(Duration::from_millis(10));
    assert!(watch.changed().wait().unwrap().is_none());
    let lead = mine.campaign().timeout(LONG).wait().unwrap();
    assert!(lead.is_leading() && theirs.try_campaign().wait().unwrap().is_none());
    assert_eq!(watch.changed().wait().unwrap().unwrap().term, lead.term());
    assert_eq!(theirs.leader().wait().unwrap().unwrap().client_id(), one.client_id());
    assert_eq!(lead.resign().wait().unwrap(), ReleaseOutcome::Released);
    assert!(watch.changed().wait().unwrap().is_none());
    assert!(!mine.lock().is_locked().wait().unwrap());
}

#[test]
fn quorum_of_three_excludes_and_releases() {
    let benches = [Bench::new(), Bench::new(), Bench::new()];
    let quorum = |of: fn(&Bench) -> &Client| Redlock::new(benches.iter().map(|it| of(it).clone()));
    let (mine, theirs) = (quorum(|it| &it.one).unwrap(), quorum(|it| &it.other).unwrap());
    let held = mine.write("of three").timeout(LONG).wait().unwrap();
    assert!(held.is_held() && held.fencing_token().map(u64::from).is_some());
    assert!(theirs.read("of three").try_acquire().wait().unwrap().is_none());
    held.renew().wait().unwrap();
    assert_eq!(held.release().wait().unwrap(), ReleaseOutcome::Released);
    drop(theirs.set_nx_mutex("of three").timeout(LONG).wait().unwrap());
}

#[test]
fn shutdown_releases_held_locks_and_cancels_later_requests() {
    let Bench { one, other, .. } = &Bench::new();
    let held = one.rwlock("shut").unwrap().write().lease(LONG * 10).wait().unwrap();
    assert!(one.shutdown(LONG).wait().is_empty());
    assert!(!held.is_held());
    assert!(other.rwlock("shut").unwrap().try_write().wait().unwrap().is_some());
    let error = one.rwlock("shut").unwrap().write().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn semaphore_partial_release_grants_the_waiter_and_set_limit_applies() {
    let bench = Bench::new();
    let semaphore = bench.one.semaphore("permits", 3).unwrap();
    assert_eq!((semaphore.name(), semaphore.limit()), ("permits", 3));
    let mut held = semaphore.acquire(3).wait().unwrap();
    let other = bench.other.semaphore("permits", 3).unwrap();
    assert!(other.try_acquire(1).wait().unwrap().is_none());
    let waiting =
        thread::spawn(move || other.acquire(2).timeout(LONG).wait().unwrap().num_permits());
    held.release_permits(2).wait().unwrap();
    assert_eq!((waiting.join().unwrap(), held.num_permits()), (2, 1));
    let error = semaphore.set_limit(2, 4).wait().map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.semaphore_limit()), (ErrorKind::LimitMismatch, Some(3)));
    assert_eq!(semaphore.set_limit(3, 4).wait().unwrap().limit(), 4);
    assert_eq!(semaphore.status().wait().unwrap().limit, Some(4));
    assert_eq!(held.release().wait().unwrap(), ReleaseOutcome::Released);
}

#[test]
fn transfer_moves_a_held_lock_to_another_client() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("handed on").unwrap();
    let writing = lock.write().wait().unwrap();
    let (token, lease) = (writing.fencing_token(), writing.clone());
    let text = writing.into_transfer().wait().unwrap().to_string();
    assert!(!lease.is_held());
    let ticket: LeaseTransfer = text.parse().unwrap();
    let taken = other.accept_transfer(&ticket).lease(2 * LONG).wait().unwrap();
    assert!(matches!(taken, TransferredGuard::Write(_)));
    assert!(taken.fencing_token() == token && taken.remaining() > LONG);
    assert_eq!(one.accept_transfer(&ticket).wait().unwrap_err().kind(), ErrorKind::LeaseLost);

    let back = taken.into_transfer().wait().unwrap();
    let taken =
        one.accept_transfer(&back).timeout(LONG).renewal(RenewalPolicy::Manual).wait().unwrap();
    assert!(lock.try_read().wait().unwrap().is_none());
    assert_eq!(taken.release().wait().unwrap(), ReleaseOutcome::Released);

    let reading = lock.read().wait().unwrap().into_transfer().wait().unwrap();
    let taken = other.accept_transfer(&reading).wait().unwrap();
    assert!(
        matches!(taken, TransferredGuard::Read(_)) && lock.try_read().wait().unwrap().is_some()
    );
    drop(taken);
    assert!(lock.write().timeout(LONG).wait().is_ok());
}
