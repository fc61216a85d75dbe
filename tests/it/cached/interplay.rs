//! Cached locks together with all other features.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use rwlease::embedded::EmbeddedCluster;
use rwlease::guard::LeaseWatcher;
use rwlease::{CacheConfig, CachedRwLock, Client, ErrorKind, Fairness, LockMode};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use super::{Bench, cached, plain, warm};
use crate::fixture::{MS, SECOND, client, engine, in_task};

#[tokio::test(start_paused = true)]
async fn uncached_request_of_the_same_client_recalls_the_cached_lease() {
    let engine = engine();
    let locks = client(&engine).await;
    let (lock, plain) = (cached(&locks), plain(&locks));
    for mode in [LockMode::Write, LockMode::Read] {
        warm(&lock, mode).await;
        drop(timeout(100 * MS, plain.write().into_future()).await.unwrap().unwrap());
        assert_eq!(lock.cache_status().hold, None);
        sleep(15 * SECOND).await;
    }
}

/// Each client caches the other's second lock, and holds its own first one.
#[tokio::test(start_paused = true)]
async fn multi_with_unused_cached_leases_of_two_clients_does_not_deadlock() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    for (locks, name) in [(&here, "second"), (&there, "first")] {
        warm(&locks.rwlock(name).unwrap().cached().unwrap(), LockMode::Write).await;
    }
    let all = |locks: &Client| locks.multi_lock().write("first").write("second").into_future();
    for _ in 0..5 {
        let (mine, theirs) = timeout(2 * SECOND, async {
            tokio::join!(async { all(&here).await.map(drop) }, async {
                all(&there).await.map(drop)
            })
        })
        .await
        .unwrap();
        mine.unwrap();
        theirs.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_cached_lease_is_released_at_once_or_ends_at_its_deadline() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    others.revoke().await.unwrap().unwrap();
    sleep(20 * MS).await;
    assert_eq!(lock.cache_status().hold, None);
    assert!(others.status().await.unwrap().writer.is_none());

    sleep(15 * SECOND).await;
    warm(&lock, LockMode::Write).await;
    let held = lock.write().await.unwrap();
    let left = held.remaining();
    others.revoke().await.unwrap().unwrap();
    sleep(20 * MS).await;
    assert!(held.is_held());
    assert!(lock.read().timeout(MS).await.is_err(), "nobody new is let in");
    timeout(left + SECOND, held.ended()).await.expect("it is not made longer");
    drop(timeout(SECOND, others.write().into_future()).await.unwrap().unwrap());
}

/// Starts four tasks that read the lock without a pause.
fn read_on_and_on(lock: &CachedRwLock) {
    for _ in 0..4 {
        let lock = lock.clone();
        tokio::spawn(async move {
            loop {
                let guard = lock.read().await.unwrap();
                sleep(2 * MS).await;
                drop(guard);
            }
        });
    }
}

/// Local readers that go first do not go before a writer of another client.
#[tokio::test(start_paused = true)]
async fn recall_with_readers_first_fairness_is_obeyed() {
    let settings = Client::builder().fairness(Fairness::ReadersFirst);
    let Bench { lock, others, .. } = Bench::with(settings).await;
    warm(&lock, LockMode::Read).await;
    read_on_and_on(&lock);
    sleep(100 * MS).await;
    drop(timeout(100 * MS, others.write().into_future()).await.unwrap().unwrap());
}

/// A contact counts only if a replica has confirmed it.
#[tokio::test(start_paused = true)]
async fn cached_lock_with_replicas_needs_confirmed_keep_alives_to_grant() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(1).build();
    let builder = Client::builder().min_replicas(1);
    let locks = builder.connect_embedded(&engine).await.unwrap();
    let lock = cached(&locks);
    warm(&lock, LockMode::Write).await;
    let held = lock.read().await.unwrap();
    let [replica] = engine.faults().replicas(0)[..] else { panic!("not one replica") };
    engine.faults().lag_replica(replica);
    sleep(2 * SECOND).await;
    drop(lock.read().timeout(MS).await.unwrap());
    sleep(1_100 * MS).await;
    assert!(lock.read().timeout(10 * MS).await.is_err());
    assert!(held.is_held());
    engine.faults().sync_replica(replica);
    drop(lock.read().timeout(2 * SECOND).await.unwrap());
    engine.faults().lag_replica(replica);
    timeout(40 * SECOND, held.ended()).await.expect("its lease is not made longer either");
}

/// After a long hold, the task that keeps it obeys a recall at once, however recent the last
/// contact is.
#[tokio::test(start_paused = true)]
async fn cached_keep_alive_does_not_restart_the_minimum_hold() {
    let settings = Client::builder().cache(CacheConfig::default().min_hold(100 * MS));
    let Bench { engine, lock, others, .. } = Bench::with(settings).await;
    warm(&lock, LockMode::Read).await;
    read_on_and_on(&lock);
    engine.reset_script_stats();
    while engine.script_stats().scripts == 0 {
        sleep(MS).await;
    }
    assert_eq!(lock.cache_status().hold, Some(LockMode::Read), "that was the contact");
    drop(timeout(50 * MS, others.write().into_future()).await.unwrap().unwrap());
}

/// All requests of a client share one place in the server's queue.
#[tokio::test(start_paused = true)]
async fn cached_request_cancelled_keeps_the_queue_position_of_its_client() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    for _ in 0..20 {
        drop(lock.write().await.unwrap()); // so the recall does not count as a miss
    }
    let held = others.write().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let local = || {
        let (lock, order) = (lock.clone(), order.clone());
        tokio::spawn(async move {
            let guard = lock.write().await.unwrap();
            order.lock().unwrap().push("local");
            drop(guard);
        })
    };
    let (first, second) = (local(), local());
    sleep(20 * MS).await;
    assert_eq!(lock.cache_status().waiting, 2, "both wait for one place");
    let remote = {
        let (others, order) = (others.clone(), order.clone());
        tokio::spawn(async move {
            let guard = others.write().await.unwrap();
            order.lock().unwrap().push("remote");
            drop(guard);
        })
    };
    sleep(20 * MS).await;
    first.abort();
    sleep(20 * MS).await;
    let _ = held.release().await.unwrap();
    second.await.unwrap();
    remote.await.unwrap();
    assert_eq!(order.lock().unwrap()[..], ["local", "remote"]);
}

/// A task that takes locks in a loop and awaits nothing else lets other tasks run, above all the
/// task that receives recalls.
#[tokio::test(start_paused = true)]
async fn cached_grants_in_a_loop_let_other_tasks_run() {
    let Bench { lock, .. } = Bench::warm(LockMode::Read).await;
    let runs = Arc::new(AtomicBool::new(false));
    in_task(&runs, |runs| async move { runs.store(true, Ordering::SeqCst) });
    for _ in 0..1_000 {
        drop(lock.read().await.unwrap());
    }
    assert!(runs.load(Ordering::SeqCst));
}

/// Records, when it is woken, whether the lease still counts as held.
struct Sees(LeaseWatcher, Mutex<Option<bool>>);

impl Wake for Sees {
    fn wake(self: Arc<Self>) {
        *self.1.lock().unwrap() = Some(self.0.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn cached_watch_has_ended_before_the_next_local_grant() {
    let Bench { lock, .. } = Bench::warm(LockMode::Write).await;
    for releases in [true, false] {
        let guard = lock.write().await.unwrap();
        let token = guard.fencing_token().get();
        let sees = Arc::new(Sees(guard.watch(), Mutex::default()));
        let waker = Waker::from(sees.clone());
        let mut next = Box::pin(lock.write());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if releases {
            let _ = guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        let next = next.await.unwrap();
        assert_eq!(*sees.1.lock().unwrap(), Some(false), "releases: {releases}");
        assert!(next.fencing_token().get() > token);
        assert_eq!(sees.0.fencing_token().get(), token, "its own, not that of the next one");
    }
}

/// The client releases a plain lease by a message. From then on, other clients can take the lock.
#[tokio::test(start_paused = true)]
async fn cached_watch_has_ended_while_an_uncached_lease_is_released() {
    let Bench { engine, lock, .. } = Bench::new().await;
    let guard = lock.write().await.unwrap();
    assert_eq!(lock.cache_status().hold, None);
    let watch = guard.watch();
    engine.faults().pause(0);
    let releasing = tokio::spawn(guard.release());
    sleep(MS).await;
    assert!(!watch.is_held());
    engine.faults().resume(0);
    let _ = releasing.await.unwrap().unwrap();
}

/// Whether another client gets the lock within two seconds.
fn goes_on(runtime: &Runtime, others: &Client) -> bool {
    runtime.block_on(async {
        let lock = others.rwlock("cached").unwrap();
        timeout(2 * SECOND, lock.write().into_future()).await.is_ok_and(|guard| guard.is_ok())
    })
}

/// A thread of the application may run its futures on a runtime that stands still in between.
#[test]
fn cached_lease_does_not_depend_on_the_runtime_of_the_caller() {
    let runtime = Runtime::new().unwrap();
    let engine = runtime.block_on(async { engine() });
    let (locks, others) =
        runtime.block_on(async { (client(&engine).await, client(&engine).await) });
    thread::spawn(move || {
        let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lock = own.block_on(async {
            let lock = cached(&locks);
            warm(&lock, LockMode::Write).await;
            lock
        });
        assert!(goes_on(&runtime, &others), "it stands still");
        drop((lock, own));
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
}

/// A cached lock of a client that this runtime has.
fn cached_on(runtime: &Runtime, engine: &EmbeddedCluster) -> CachedRwLock {
    runtime.block_on(async {
        let lock = cached(&client(engine).await);
        warm(&lock, LockMode::Write).await;
        lock
    })
}

#[test]
fn cached_leases_end_with_the_runtime_of_their_client() {
    let (runtime, own) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let engine = own.block_on(async { engine() });
    let lock = cached_on(&runtime, &engine);
    let guards =
        runtime.block_on(async { [lock.read().await.unwrap(), lock.read().await.unwrap()] });
    runtime.shutdown_timeout(SECOND);
    assert!(guards.iter().all(|guard| !guard.is_held()));
    assert_eq!(lock.cache_status().hold, None);
    let began = Instant::now();
    let refused = own.block_on(async { timeout(20 * SECOND, lock.read().timeout(100 * MS)).await });
    assert!(refused.expect("it does not wait forever").is_err());
    assert!(began.elapsed() < 10 * SECOND);
    drop(guards);
    assert_eq!(lock.cache_status().readers, 0);
}

/// A request that another runtime polls makes a plain request then.
#[test]
fn cached_waiter_leaves_the_queue_when_the_runtime_of_the_lease_ends() {
    let (runtime, own) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let engine = own.block_on(async { engine() });
    let lock = cached_on(&runtime, &engine);
    let guard = runtime.block_on(lock.write().into_future()).unwrap();
    let waiter = lock.clone();
    let waiting = own.spawn(async move { waiter.read().timeout(20 * SECOND).await.map(drop) });
    let waits_become = |count: usize| {
        own.block_on(async {
            let until = Instant::now() + 10 * SECOND;
            while lock.cache_status().waiting != count && Instant::now() < until {
                sleep(MS).await;
            }
        });
        assert_eq!(lock.cache_status().waiting, count);
    };
    waits_become(1);
    runtime.shutdown_timeout(SECOND);
    waits_become(0);
    waiting.abort();
    drop(guard);
}

/// Each request finds room when it checks for it.
#[tokio::test(start_paused = true)]
async fn cached_leases_acquired_at_once_stay_within_max_cached() {
    let engine = engine();
    let builder = Client::builder().cache(CacheConfig::default().max_cached(3));
    let locks = builder.connect_embedded(&engine).await.unwrap();
    let all: Vec<_> = (0..20)
        .map(|number| locks.rwlock(format!("{{one}}{number}")).unwrap().cached().unwrap())
        .collect();
    for _ in 0..2 {
        for lock in &all {
            drop(lock.read().await.unwrap());
            assert_eq!(lock.cache_status().hold, None);
        }
    }
    sleep(100 * MS).await; // until the client has subscribed
    futures::future::join_all(all.iter().map(async |lock| drop(lock.read().await))).await;
    let cached = all.iter().filter(|lock| lock.cache_status().hold.is_some()).count();
    assert_eq!(cached, 3);
    for status in all.iter().map(|lock| lock.cache_status()) {
        assert_eq!(status.uncached_reason.is_some(), status.hold.is_none(), "{status:?}");
    }
}

/// The request waits in the client for the lease that the client requests from the server.
#[tokio::test(start_paused = true)]
async fn cached_request_to_a_silent_server_is_unavailable() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks);
    warm(&lock, LockMode::Write).await;
    while lock.cache_status().hold.is_some() {
        sleep(100 * MS).await;
    }
    let patient = |time| lock.write().timeout(time).into_future();
    engine.faults().pause(0);
    let error = patient(3 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    engine.faults().resume(0);
    sleep(SECOND).await;
    let _other = plain(&client(&engine).await).write().await.unwrap();
    let error = patient(3 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

/// The second request waits in the client for the first one.
#[tokio::test(start_paused = true)]
async fn reentrant_request_behind_one_to_a_silent_server_is_unavailable() {
    let engine = engine();
    let locks = client(&engine).await;
    let (lock, owner) = (locks.rwlock("a").unwrap(), locks.reentrant_owner());
    let patient = || owner.write(&lock).timeout(3 * SECOND).into_future();
    engine.faults().pause(0);
    let (one, other) = tokio::join!(patient(), patient());
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
