//! Locks without a runtime, on a real server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rwlease::blocking::{Wait, run_while_held};
use rwlease::{Client, ErrorKind, Redlock, ReleaseOutcome, RenewalPolicy};
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

/// What each request does is tested where it is awaited. Here the thread has no runtime.
#[test]
fn lock_wait_returns_what_awaiting_the_request_returns() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.rwlock("lock").unwrap(), other.rwlock("lock").unwrap());
    let reading = mine.write().lease(2 * LONG).wait().unwrap().downgrade().wait().unwrap();
    assert!(reading.remaining() > LONG && theirs.try_write().wait().unwrap().is_none());
    let error = theirs.write().timeout(SHORT).wait().unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::TimedOut, Some("lock")));
    let cancelled = theirs.write().cancel_when(async {}).wait().unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    assert!(theirs.status().page_size(10).wait().unwrap().is_locked());
    assert!(theirs.is_held_by(reading.id()).wait().unwrap());
    assert_eq!(one.scan("lo").next_page().wait().unwrap().unwrap(), ["lock"]);
    theirs.revoke().wait().unwrap().unwrap();
    let refused = reading.upgrade().timeout(LONG).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseRevoked);
    theirs.force_release().wait().unwrap().unwrap();
    assert_eq!(refused.into_guard().release().wait().unwrap(), ReleaseOutcome::AlreadyLost);
    let ticket = mine.write().wait().unwrap().into_transfer().wait().unwrap();
    let taken = other.accept_transfer(&ticket).lease(2 * LONG).wait().unwrap();
    assert_eq!(taken.release().wait().unwrap(), ReleaseOutcome::Released);
    let kept = mine.write().lease(2 * LONG).wait().unwrap();
    assert!(kept.let_expire().wait().unwrap() > LONG);

    let cached = one.rwlock("cached").unwrap().cached().unwrap();
    drop(cached.write().wait().unwrap().downgrade().wait().unwrap());
    assert!(cached.try_read().wait().unwrap().is_some());
    let semaphore = one.semaphore("permits", 3).unwrap();
    let mut held = semaphore.acquire(3).wait().unwrap();
    held.release_permits(2).wait().unwrap();
    assert_eq!(semaphore.set_limit(3, 4).wait().unwrap().limit(), 4);
    assert_eq!(semaphore.status().wait().unwrap().in_use, 1);

    let election = one.election("lead").unwrap();
    let mut watch = election.observe().poll_interval(Duration::from_millis(10));
    assert!(watch.changed().wait().unwrap().is_none());
    let lead = election.campaign().timeout(LONG).wait().unwrap();
    assert!(other.election("lead").unwrap().try_campaign().wait().unwrap().is_none());
    assert_eq!(watch.changed().wait().unwrap().unwrap().term, lead.term());
    assert_eq!(election.leader().wait().unwrap().unwrap().client_id(), one.client_id());
    assert_eq!(lead.resign().wait().unwrap(), ReleaseOutcome::Released);

    let (owner, mutex) = (one.reentrant_owner(), one.set_nx_mutex("plain").unwrap());
    let outer = owner.lock_set_nx(&mutex).wait().unwrap();
    drop(owner.try_lock_set_nx(&mutex).wait().unwrap().unwrap());
    assert_eq!(mutex.status().wait().unwrap().unwrap().value, outer.id().as_bytes());
    assert_eq!(outer.release().wait().unwrap(), ReleaseOutcome::Released);
    let both = one.multi_lock().write("multi").set_nx_mutex("plain").timeout(LONG).wait().unwrap();
    both.renew().wait().unwrap();
    let tried = other.multi_lock().write("multi").try_acquire();
    assert!(tried.wait().unwrap().is_none());
    assert!(one.shutdown(LONG).wait().is_empty());
    assert!(!both.is_held());
    assert!(other.rwlock("multi").unwrap().try_write().wait().unwrap().is_some());
    assert_eq!(mine.write().wait().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn redlock_guard_dropped_without_a_runtime_is_released() {
    let benches = [Bench::new(), Bench::new(), Bench::new()];
    let redlock = |of: fn(&Bench) -> &Client| Redlock::new(benches.iter().map(|it| of(it).clone()));
    let (mine, theirs) = (redlock(|it| &it.one).unwrap(), redlock(|it| &it.other).unwrap());
    let held = mine.write("of three").lease(LONG * 10).timeout(LONG).wait().unwrap();
    assert!(theirs.read("of three").try_acquire().wait().unwrap().is_none());
    drop(held);
    drop(theirs.write("of three").timeout(LONG).wait().unwrap());
}

#[cfg(feature = "legacy")]
#[test]
fn two_key_guard_dropped_without_a_runtime_is_released() {
    let Bench { one, other, .. } = &Bench::new();
    let mine = rwlease::TwoKeyRwLock::tagged(one, "old").unwrap();
    let theirs = rwlease::TwoKeyRwLock::new(other, mine.keys()[0], mine.keys()[1]).unwrap();
    let writing = mine.write(LONG * 10, LONG).wait().unwrap();
    assert!(theirs.try_read(LONG).wait().unwrap().is_none());
    drop(writing);
    let next = theirs.write(LONG, LONG).wait().unwrap();
    assert_eq!(next.release().wait().unwrap(), ReleaseOutcome::Released);
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
