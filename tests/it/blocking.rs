//! Locks without a runtime, on a real server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rwlease::blocking::{Locks, Quorum, TakenUp};
use rwlease::{ErrorKind, LeaseState, Released, RenewalPolicy, Ticket};
use tokio::runtime::Runtime;

use crate::support::{ConnectBuilder, StandaloneServer};

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A server, the runtime that it was started on, and two clients of this thread.
struct Bench {
    one: Locks,
    other: Locks,
    server: StandaloneServer,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Bench {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(StandaloneServer::start()).unwrap();
        let client = || Locks::connect_by(rwlease::Locks::builder().connect_to(&[server.url()]));
        Bench { one: client().unwrap(), other: client().unwrap(), server, runtime }
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
                    assert!(guard.is_held() && guard.token() > last);
                    last = guard.token();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(guard.release().unwrap(), Released::Released);
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
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
    let cancelled = theirs.write().cancel_on(async {}).wait().unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    let status = theirs.status().page_size(10).wait().unwrap();
    assert!(status.is_locked() && theirs.is_locked().unwrap());
    assert!(theirs.is_held_by(reading.id()).unwrap());
    assert_eq!(theirs.revoke().unwrap().unwrap().token, status.token);
    assert_eq!(reading.renew().unwrap_err().kind(), ErrorKind::Revoked);
    assert_eq!(reading.state(), LeaseState::Uncertain);
    theirs.force_release().unwrap().unwrap();
    assert!(theirs.try_write().wait().unwrap().is_some());
    let _guard = mine.write().wait().unwrap();
    assert_eq!(one.list("opt").next_page().unwrap().unwrap(), ["options"]);
}

#[test]
fn guard_downgrade_upgrade_and_let_expire_keep_the_lock_held() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.rwlock("changes").unwrap(), other.rwlock("changes").unwrap());
    let reading = mine.write().wait().unwrap().downgrade().unwrap();
    let beside = theirs.try_read().wait().unwrap().unwrap();
    let reading = reading.try_upgrade().unwrap().unwrap_err();
    let refused = reading.upgrade().timeout(SHORT).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    let reading = refused.into_guard();
    assert!(reading.is_held());
    let _ = beside.release().unwrap();
    let writing = reading.upgrade().timeout(LONG).wait().unwrap();
    assert!(theirs.try_read().wait().unwrap().is_none());
    assert!(writing.keep().unwrap() > SHORT);
    assert!(mine.try_write().wait().unwrap().is_none(), "it was kept");
}

#[test]
fn on_lost_is_called_on_loss_and_not_after_release() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("losses").unwrap();
    let (tell, told) = mpsc::channel();
    let guard = lock.write().lease(SHORT * 4).renewal(RenewalPolicy::Manual).wait().unwrap();
    let tell_lost = tell.clone();
    guard.on_lost(move || tell_lost.send("lost").unwrap()).unwrap();
    assert!(!guard.lost_within(Duration::from_millis(1)).unwrap());
    guard.lost().unwrap();
    assert!(guard.lost_within(LONG).unwrap() && !guard.is_held());
    assert_eq!(told.recv_timeout(LONG).unwrap(), "lost");
    let next = other.rwlock("losses").unwrap().write().timeout(LONG).wait().unwrap();
    next.on_lost(move || tell.send("given back").unwrap()).unwrap();
    let lease = next.clone();
    assert_eq!(guard.release().unwrap(), Released::AlreadyLost);
    assert_eq!(next.release().unwrap(), Released::Released);
    lease.lost().unwrap();
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
    guard.on_lost(move || tell.send("lost").unwrap()).unwrap();
    let lease = guard.clone();
    server.freeze().unwrap();
    let releasing = thread::spawn(move || guard.release().unwrap());
    thread::sleep(SHORT * 5);
    lease.lost().unwrap();
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
    first
        .on_lost(move || {
            tell_busy.send(()).unwrap();
            gone_on.recv_timeout(LONG).unwrap();
        })
        .unwrap();
    let (tell, told) = mpsc::channel();
    second.on_lost(move || tell.send("lost").unwrap()).unwrap();
    // Without this renewal the second lease could end first, and the thread would report that loss
    // first.
    second.renew().unwrap();
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
    guard
        .on_lost(move || {
            let _tell = tell;
            panic!("a listener's own fault");
        })
        .unwrap();
    assert_eq!(told.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    drop(guard);
    let _ =
        other.rwlock("panics").unwrap().write().timeout(LONG).wait().unwrap().release().unwrap();
}

/// A guard can be given to another thread, and released or dropped there.
#[test]
fn guard_sent_to_another_thread_is_released_there() {
    let Bench { one, other, .. } = &Bench::new();
    let lock = one.rwlock("sent").unwrap();
    let guards = [lock.read().wait().unwrap(), lock.read().lease(LONG * 10).wait().unwrap()];
    let [released, dropped] = guards;
    let release = thread::spawn(move || released.release());
    assert_eq!(release.join().unwrap().unwrap(), Released::Released);
    // Also while that one panics.
    let panicking = thread::spawn(move || {
        let _dropped = dropped;
        panic!("a holder's own fault");
    });
    assert!(panicking.join().is_err());
    let writing = other.rwlock("sent").unwrap().write().timeout(LONG).wait().unwrap();
    let _ = writing.release().unwrap();
}

#[cfg(feature = "legacy")]
#[test]
fn two_key_rwlock_excludes_and_times_out() {
    use rwlease::blocking::TwoKeyRwLock;

    let Bench { one, other, runtime, .. } = &Bench::new();
    let mine = TwoKeyRwLock::tagged(one, "old").unwrap();
    let theirs = TwoKeyRwLock::new(other, mine.keys()[0], mine.keys()[1]).unwrap();
    assert_eq!(mine.slot(), theirs.slot());
    let reading = mine.read(LONG, LONG).unwrap();
    assert!(reading.remaining() > SHORT && theirs.try_write(LONG).unwrap().is_none());
    drop(theirs.try_read(LONG).unwrap().unwrap());
    let _ = reading.release().unwrap();
    let writing = theirs.write(LONG, LONG).unwrap();
    assert!(mine.try_read(LONG).unwrap().is_none());
    assert_eq!(mine.write(LONG, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    let refused = runtime.block_on(async { mine.try_read(LONG) });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(writing.release().unwrap(), Released::Released);
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
    let client = Locks::connect_by(rwlease::Locks::builder().connect_to(&[server.url()])).unwrap();
    let lock = client.rwlock("drops").unwrap();
    drop(client);
    let guard = lock.write().lease(LONG * 10).timeout(LONG).wait().unwrap();
    drop(lock);
    drop(guard);
    drop(theirs.write().timeout(LONG).wait().unwrap());
}

#[test]
fn calls_within_a_runtime_are_invalid_and_return_or_release_the_guard() {
    let Bench { one, other, runtime, server } = &Bench::new();
    let lock = one.rwlock("inside").unwrap();
    let (released, reading) = (
        lock.read().lease(LONG * 10).wait().unwrap(),
        lock.read().lease(LONG * 10).wait().unwrap(),
    );
    let reading = runtime.block_on(async {
        let refused = [
            lock.write().wait().err(),
            lock.try_write().wait().err(),
            lock.is_locked().err(),
            one.multi().write("a").wait().err(),
            one.shutdown(LONG).err(),
            Locks::connect_by(rwlease::Locks::builder().connect_to(&[server.url()])).err(),
            released.release().err(),
            reading.lost().err(),
        ];
        for (number, error) in refused.into_iter().enumerate() {
            assert_eq!(error.unwrap().kind(), ErrorKind::Invalid, "{number}");
        }
        let refused = reading.upgrade().wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        refused.into_guard()
    });
    // The background has released the other read, although its lease is long.
    let writing = reading.upgrade().timeout(LONG).wait().unwrap();
    let _ = writing.release().unwrap();
    assert!(other.rwlock("inside").unwrap().try_write().wait().unwrap().is_some());
}

#[test]
fn mutex_multi_and_reentrant_exclude_and_release() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.mutex("plain").unwrap(), other.mutex("plain").unwrap());
    let held = mine.lock().timeout(LONG).wait().unwrap();
    assert!(theirs.try_lock().wait().unwrap().is_none() && theirs.is_locked().unwrap());
    assert!(theirs.is_held_by(held.id()).unwrap());
    assert_eq!(theirs.status().unwrap().unwrap().value, held.id().as_bytes());
    assert!(one.multi().write("multi").mutex("plain").try_all().unwrap().is_none());
    let _ = held.release().unwrap();
    let both = one.multi().write("multi").mutex("plain").timeout(LONG).wait().unwrap();
    assert_eq!(both.leases().len(), 2);
    both.renew().unwrap();
    assert!(theirs.try_lock().wait().unwrap().is_none());
    assert_eq!(both.release().unwrap(), Released::Released);

    let (reentrant, lock) = (one.reentrant(), one.rwlock("again").unwrap());
    let outer = reentrant.write(&lock).wait().unwrap();
    let inner = reentrant.try_read(&lock).wait().unwrap().unwrap();
    assert_eq!(outer.token(), inner.token());
    let _ = outer.release().unwrap();
    let _ = inner.release().unwrap();
    let outer = reentrant.lock(&mine).wait().unwrap();
    drop(reentrant.try_lock(&mine).wait().unwrap().unwrap());
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
        let _ = writing.downgrade().unwrap().release().unwrap();
        match (cached.local().hold, is_kept) {
            (None, true) => {}
            (None, false) if turn < 100 => {}
            (hold, _) => {
                assert_eq!(hold.is_some(), is_kept);
                break;
            }
        }
    }
    let _ =
        other.rwlock("cached").unwrap().write().timeout(LONG).wait().unwrap().release().unwrap();
    drop(cached.try_read().wait().unwrap().unwrap());
}

#[test]
fn leader_watch_reports_campaign_and_resign() {
    let Bench { one, other, .. } = &Bench::new();
    let (mine, theirs) = (one.leader("blocking").unwrap(), other.leader("blocking").unwrap());
    let mut watch = theirs.watch().every(Duration::from_millis(10));
    assert!(watch.changed().unwrap().is_none());
    let lead = mine.campaign().timeout(LONG).wait().unwrap();
    assert!(lead.is_leading() && theirs.try_campaign().wait().unwrap().is_none());
    assert_eq!(watch.changed().unwrap().unwrap().term, lead.term());
    assert_eq!(theirs.current().unwrap().unwrap().client_id(), one.client_id());
    assert_eq!(lead.resign().unwrap(), Released::Released);
    assert!(watch.changed().unwrap().is_none());
    assert!(!mine.lock().is_locked().unwrap());
}

#[test]
fn quorum_of_three_excludes_and_releases() {
    let benches = [Bench::new(), Bench::new(), Bench::new()];
    let quorum = |of: fn(&Bench) -> &Locks| Quorum::new(benches.iter().map(|it| of(it).clone()));
    let (mine, theirs) = (quorum(|it| &it.one).unwrap(), quorum(|it| &it.other).unwrap());
    let held = mine.write("of three").timeout(LONG).wait().unwrap();
    assert!(held.is_held() && held.token().is_some());
    assert!(theirs.read("of three").try_once().unwrap().is_none());
    held.renew().unwrap();
    assert_eq!(held.release().unwrap(), Released::Released);
    drop(theirs.mutex("of three").timeout(LONG).wait().unwrap());
}

#[test]
fn shutdown_releases_held_locks_and_cancels_later_requests() {
    let Bench { one, other, .. } = &Bench::new();
    let held = one.rwlock("shut").unwrap().write().lease(LONG * 10).wait().unwrap();
    assert!(one.shutdown(LONG).unwrap().is_empty());
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
    let waiting = thread::spawn(move || other.acquire(2).timeout(LONG).wait().unwrap().permits());
    held.release_some(2).unwrap();
    assert_eq!((waiting.join().unwrap(), held.permits()), (2, 1));
    let error = semaphore.set_limit(2, 4).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.semaphore_limit()), (ErrorKind::LimitMismatch, Some(3)));
    assert_eq!(semaphore.set_limit(3, 4).unwrap().limit(), 4);
    assert_eq!(semaphore.status().wait().unwrap().limit, Some(4));
    assert_eq!(held.release().unwrap(), Released::Released);
}

#[test]
fn transfer_moves_a_held_lock_to_another_client() {
    let Bench { one, other, runtime, .. } = &Bench::new();
    let lock = one.rwlock("handed on").unwrap();
    let writing = lock.write().wait().unwrap();
    let (token, lease) = (writing.token(), writing.clone());
    let text = writing.into_ticket().unwrap().to_string();
    assert!(!lease.is_held());
    let ticket: Ticket = text.parse().unwrap();
    let taken = other.take_up(&ticket).lease(2 * LONG).wait().unwrap();
    assert!(matches!(taken, TakenUp::Write(_)));
    assert!(taken.token() == token && taken.remaining() > LONG);
    assert_eq!(one.take_up(&ticket).wait().unwrap_err().kind(), ErrorKind::Lost);

    let back = taken.into_ticket().unwrap();
    let taken = one.take_up(&back).timeout(LONG).renewal(RenewalPolicy::Manual).wait().unwrap();
    assert!(lock.try_read().wait().unwrap().is_none());
    assert_eq!(taken.release().unwrap(), Released::Released);

    let reading = lock.read().wait().unwrap().into_ticket().unwrap();
    let taken = other.take_up(&reading).wait().unwrap();
    assert!(matches!(taken, TakenUp::Read(_)) && lock.try_read().wait().unwrap().is_some());

    // On a thread of a runtime this call must not block. It fails, and the lock is released.
    let entered = runtime.enter();
    assert_eq!(taken.into_ticket().unwrap_err().kind(), ErrorKind::Invalid);
    drop(entered);
    assert!(lock.write().timeout(LONG).wait().is_ok());
}
