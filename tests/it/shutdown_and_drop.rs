//! What is left of abandoned requests, guards and clients, on embedded servers and in simulated
//! time.

use std::cell::Cell;
use std::future::IntoFuture;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::embedded::{EmbeddedCluster, ServedCommand};
use rwlease::{Client, ErrorKind, LeaseState, ReleaseOutcome, RwLock, Slot, UpgradeAttempt};
use tokio::time::{Instant, sleep, timeout};

use crate::events::on_event;
use crate::fixture::{SECOND, client, engine, in_task};
use testkit::spawn_write;

/// A lock of that client in a slot of that server.
fn lock_at(engine: &EmbeddedCluster, locks: &Client, server: usize, prefix: &str) -> RwLock {
    let mut all = (0..).map(|number| locks.rwlock(format!("{prefix}:{number}")).unwrap());
    all.find(|lock| engine.faults().master_of(lock.slot()) == server).unwrap()
}

/// Servers, a client, a lock of it at the first server, and the same lock of another client.
async fn contested(prefix: &str) -> (EmbeddedCluster, Client, RwLock, RwLock) {
    let engine = EmbeddedCluster::new();
    let locks = client(&engine).await;
    let lock = lock_at(&engine, &locks, 0, prefix);
    let others = client(&engine).await.rwlock(lock.name()).unwrap();
    (engine, locks, lock, others)
}

#[tokio::test(start_paused = true)]
async fn rwlock_and_guard_keep_their_client_alive() {
    let lock = Client::embedded().await.unwrap().rwlock("kept").unwrap();
    for _ in 0..3 {
        sleep(60 * SECOND).await;
        assert_eq!(lock.write().await.unwrap().release().await.unwrap(), ReleaseOutcome::Released);
    }
    let guard = lock.write().await.unwrap();
    drop(lock);
    sleep(60 * SECOND).await;
    assert!(guard.is_held(), "it is renewed");
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}

/// The shutdown sends its own releases. They do not change what the holder's release returns.
#[tokio::test(start_paused = true)]
async fn release_without_a_reply_during_shutdown_returns_unknown() {
    let engine = engine();
    let locks = client(&engine).await;
    let guard = locks.rwlock("unknown").unwrap().write().lease(60 * SECOND).await.unwrap();
    engine.faults().pause(0);
    let release = tokio::spawn(guard.release());
    sleep(SECOND / 10).await;
    assert_eq!(locks.shutdown(SECOND).await, ["unknown"]);
    assert_eq!(release.await.unwrap().unwrap(), ReleaseOutcome::Unknown);
}

/// A silent server keeps the client from draining, and the client still acquires nothing more.
#[tokio::test(start_paused = true)]
async fn waiter_of_a_client_in_shutdown_is_cancelled_and_not_granted() {
    let (engine, locks, wanted, others) = contested("wanted").await;
    let elsewhere = lock_at(&engine, &locks, 1, "elsewhere").write().await.unwrap();
    let holding = others.write().await.unwrap();
    let waiting = spawn_write(&wanted);
    sleep(SECOND).await;
    engine.faults().pause(1);
    let shutdown = in_task(&locks, |locks| async move { locks.shutdown(20 * SECOND).await });
    sleep(SECOND).await;
    let _ = holding.release().await.unwrap();
    let outcome = timeout(5 * SECOND, waiting).await.expect("it is told").unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(others.try_write().await.unwrap().is_some(), "nothing is left");
    engine.faults().resume(1);
    assert!(shutdown.await.unwrap().is_empty());
    assert_eq!(elsewhere.state(), LeaseState::Lost);
}

#[tokio::test(start_paused = true)]
async fn grant_after_shutdown_is_released() {
    let (engine, locks, lock, others) = contested("late").await;
    drop(lock.read().await.unwrap());
    sleep(SECOND).await;
    engine.faults().pause(0);
    let waiting = spawn_write(&lock);
    sleep(SECOND / 10).await;
    let shutdown = tokio::spawn(async move { locks.shutdown(20 * SECOND).await });
    sleep(SECOND / 10).await;
    engine.faults().resume(0);
    let outcome = timeout(5 * SECOND, waiting).await.expect("it is told").unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(shutdown.await.unwrap().is_empty());
    assert!(others.try_write().await.unwrap().is_some(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn shutdown_after_a_request_that_each_attempt_was_refused_returns_no_lock() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = locks.rwlock("refused").unwrap();
    engine.faults().set_cluster_down(0, true);
    let error = lock.write().timeout(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(locks.shutdown(5 * SECOND).await, Vec::<String>::new());
}

/// In real time, because a loop without a pause would stop simulated time.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_at_a_server_with_full_memory_polls_with_pauses() {
    let engine = engine();
    let (locks, other) = (client(&engine).await, client(&engine).await);
    let lock = locks.rwlock("full").unwrap();
    let holding = other.rwlock("full").unwrap().read().await.unwrap();
    let also_holding = other.rwlock("full").unwrap().read().await.unwrap();
    let waiting = spawn_write(&lock);
    sleep(SECOND / 10).await;
    // The waiter's place has expired by the server's clock, and the next call removes it.
    engine.faults().set_out_of_memory(0, true);
    engine.faults().step_clock(0, 15_000);
    let _ = also_holding.release().await.unwrap();
    engine.reset_script_stats();
    sleep(2 * SECOND).await;
    let scripts = engine.script_stats().scripts;
    engine.faults().set_out_of_memory(0, false); // first, so that a loop without a pause ends
    assert!((1..100).contains(&scripts), "{scripts} scripts in two seconds");
    let token = holding.fencing_token();
    let _ = holding.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn renewals_are_not_delayed_by_another_silent_server() {
    let engine = EmbeddedCluster::new();
    let locks = Client::builder().lease(6 * SECOND).connect_embedded(&engine).await.unwrap();
    // The leases are taken one after the other and so end one after the other, but some are renewed
    // together. Then every fourth one is at another server, which does not answer.
    let names = (0..).map(|number| locks.rwlock(format!("crowd:{number}")).unwrap());
    let mut guards = Vec::new();
    for lock in names.filter(|lock| engine.faults().master_of(lock.slot()) == 0).take(200) {
        guards.push(lock.write().await.unwrap());
        sleep(SECOND / 200).await;
    }
    let (sick, well): (Vec<_>, Vec<_>) =
        guards.into_iter().enumerate().partition(|(at, _)| at % 4 == 0);
    for (_, guard) in &sick {
        give(&engine, guard.slot(), 1);
    }
    engine.faults().pause(1);
    for _ in 0..200 {
        sleep(SECOND / 10).await;
        assert!(well.iter().all(|(_, guard)| guard.is_held()));
    }
    assert!(sick.iter().all(|(_, guard)| guard.state() == LeaseState::Lost));
}

fn give(engine: &EmbeddedCluster, slot: Slot, to: usize) {
    assert!(engine.faults().begin_move(slot, to));
    while engine.faults().move_key(slot) {}
    assert!(engine.faults().finish_move(slot));
}

/// A poll that is under way when the time is up says nothing about the server.
#[tokio::test(start_paused = true)]
async fn timeout_during_an_unanswered_poll_returns_timed_out() {
    let (engine, _locks, lock, others) = contested("up").await;
    let _holding = others.write().await.unwrap();
    for (pause_at, kind) in [(2900, ErrorKind::TimedOut), (500, ErrorKind::Unavailable)] {
        let waiting =
            in_task(&lock, |lock| async move { lock.read().timeout(3 * SECOND).await.map(drop) });
        sleep(Duration::from_millis(pause_at)).await;
        engine.faults().pause(0);
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), kind, "paused at {pause_at} ms");
        engine.faults().resume(0);
        sleep(10 * SECOND).await;
    }
}

/// Polls the work so often, or until it is done.
async fn polled(mut work: BoxFuture<'_, ()>, polls: usize) -> BoxFuture<'_, ()> {
    for _ in 0..polls {
        if futures::poll!(&mut work).is_ready() {
            break;
        }
        tokio::task::yield_now().await;
    }
    work
}

/// A request that is dropped at any of its awaits leaves neither a holder nor a waiter.
#[tokio::test(start_paused = true)]
async fn acquire_dropped_at_any_await_leaves_no_holder_and_no_waiter() {
    let (engine, locks, lock, others) = contested("dropped").await;
    for (polls, way) in (1..40).flat_map(|polls| (0..4).map(move |way| (polls, way))) {
        let holding = match polls % 2 {
            0 => Some(others.write().await.unwrap()),
            _ => None,
        };
        let request: BoxFuture<'_, ()> = match way {
            0 => Box::pin(lock.write().into_future().map(drop)),
            1 => Box::pin(lock.read().into_future().map(drop)),
            2 => Box::pin(lock.try_write().into_future().map(drop)),
            _ => Box::pin(lock.try_read().into_future().map(drop)),
        };
        let request = polled(request, polls).await;
        if polls % 3 == 0 {
            engine.faults().kill_connections(0);
        }
        drop(request);
        drop(holding);
        let next = timeout(5 * SECOND, others.write()).await.expect("nothing is in the way");
        let _ = next.unwrap().release().await.unwrap();
    }
    assert!(locks.shutdown(10 * SECOND).await.is_empty());
}

/// A wait for an upgrade that timed out is ended even if the same task tries again at once, before
/// the client has sent anything.
#[tokio::test(start_paused = true)]
async fn try_upgrade_after_a_timed_out_upgrade_leaves_no_waiter() {
    let (_engine, locks, lock, others) = contested("upgraded").await;

    let (mine, theirs) = (lock.read().await.unwrap(), others.read().await.unwrap());
    let refused = mine.upgrade().timeout(SECOND).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    let attempt = refused.into_guard().try_upgrade().await.unwrap();
    let UpgradeAttempt::OtherReaders(mine) = attempt else { panic!("another reads") };
    sleep(SECOND).await;
    assert_eq!(lock.status().await.unwrap().waiter_count, 0);
    assert!(mine.is_held() && others.try_read().await.unwrap().is_some(), "readers share again");
    let _ = theirs.release().await.unwrap();
    assert!(lock.status().await.unwrap().writer.is_none(), "it still reads");
    let mine = mine.upgrade().await.unwrap();
    assert_eq!(mine.release().await.unwrap(), ReleaseOutcome::Released);

    let reentrant = locks.reentrant_owner();
    let (mine, theirs) = (reentrant.read(&lock).await.unwrap(), others.read().await.unwrap());
    let refused = reentrant.write(&lock).timeout(SECOND).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert!(reentrant.try_write(&lock).await.unwrap().is_none());
    sleep(SECOND).await;
    assert_eq!(lock.status().await.unwrap().waiter_count, 0);
    let _ = theirs.release().await.unwrap();
    assert_eq!(mine.release().await.unwrap(), ReleaseOutcome::Released);
}

/// The same for operations that change a lease or end it.
#[tokio::test(start_paused = true)]
async fn release_downgrade_or_upgrade_dropped_at_any_await_leaves_nothing() {
    let (_engine, locks, lock, others) = contested("changed").await;
    for (polls, way) in (1..12).flat_map(|polls| (0..4).map(move |way| (polls, way))) {
        let theirs = match way {
            3 => Some(others.read().await.unwrap()), // so that the upgrade waits
            _ => None,
        };
        let change: BoxFuture<'_, ()> = match way {
            0 => Box::pin(lock.write().await.unwrap().release().map(drop)),
            1 => Box::pin(lock.write().await.unwrap().downgrade().map(drop)),
            2 => Box::pin(lock.read().await.unwrap().try_upgrade().map(drop)),
            _ => Box::pin(lock.read().await.unwrap().upgrade().into_future().map(drop)),
        };
        drop((polled(change, polls).await, theirs));
        let next = timeout(5 * SECOND, others.write()).await.expect("nothing is in the way");
        let _ = next.unwrap().release().await.unwrap();
        assert_eq!(lock.status().await.unwrap().waiter_count, 0);
    }
    assert!(locks.shutdown(10 * SECOND).await.is_empty());
}

/// From a known moment on, the server refuses the attempt that was not answered. The release after
/// that moment is the last one.
#[tokio::test(start_paused = true)]
async fn last_release_of_an_unanswered_acquire_follows_its_deadline() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = locks.rwlock("doubt").unwrap();
    let _ = lock.write().await.unwrap().release().await.unwrap(); // the server knows the scripts
    let digest = |name: &str| {
        locks.scripts().find(|script| script.name() == name).unwrap().digest().as_bytes()
    };
    let (acquire, release) = (digest("acquire_write"), digest("release"));
    let seen: Arc<Mutex<(u64, Vec<u64>)>> = Arc::default();
    let see = seen.clone();
    engine.set_observer(move |served: &ServedCommand<'_>| {
        let (words, mut see) = (served.words(), see.lock().unwrap());
        if words.len() < 6 {
            return;
        }
        if words[1] == acquire {
            let not_after = std::str::from_utf8(words[5]).unwrap().parse().unwrap();
            see.0 = see.0.max(not_after);
        } else if words[1] == release {
            see.1.push(served.now() / 1000);
        }
    });
    engine.faults().pause(0);
    let mut request = Box::pin(lock.write().into_future());
    assert!(futures::poll!(&mut request).is_pending());
    engine.faults().kill_connections(0); // that attempt is in doubt
    for _ in 0..20 {
        assert!(futures::poll!(&mut request).is_pending());
        tokio::task::yield_now().await;
    }
    engine.faults().resume(0);
    let guard = request.await.unwrap();
    let reentrant = guard.id().to_owned();
    drop(guard);
    sleep(10 * SECOND).await;
    assert!(!locks.knows(&reentrant));
    let (not_after, releases) = seen.lock().unwrap().clone();
    assert_eq!(
        releases.len(),
        3,
        "one at once, one in between, one when the attempt can no longer run"
    );
    let last = releases[2];
    assert!(last > not_after && last <= not_after + 50, "{last} for {not_after}");
}

/// No server was asked for the lock, so none can have it.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_request_that_was_never_sent() {
    for (is_dropped, replicas) in [(false, 0), (true, 0), (false, 1)] {
        let engine = engine();
        let locks = client(&engine).await;
        engine.faults().stop(0);
        sleep(SECOND).await;
        let lock = locks.rwlock("never").unwrap();
        let waiting =
            in_task(
                &lock,
                |lock| async move { lock.write().min_replicas(replicas).await.map(drop) },
            );
        sleep(3 * SECOND).await;
        if is_dropped {
            waiting.abort();
            sleep(SECOND).await;
        }
        let began = Instant::now();
        let left = locks.shutdown(10 * SECOND).await;
        assert!(left.is_empty(), "{is_dropped} {replicas}: {left:?}");
        assert!(began.elapsed() < SECOND / 10, "{is_dropped} {replicas}: {:?}", began.elapsed());
        if !is_dropped {
            let outcome = timeout(5 * SECOND, waiting).await.expect("it is told").unwrap();
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
        }
    }
}

/// So the metrics and the events of its releases precede the end of a shutdown.
#[tokio::test(start_paused = true)]
async fn release_is_reported_before_its_client_has_forgotten_it() {
    let engine = engine();
    let locks = client(&engine).await;
    let guard = locks.rwlock("reported").unwrap().write().await.unwrap();
    let known = Rc::new(Cell::new(None));
    let (seen, id) = (known.clone(), guard.id().to_owned());
    on_event({
        let locks = locks.clone();
        move |event| {
            if event.metadata().name() == "rwlease.release" {
                seen.set(Some(locks.knows(&id)));
            }
        }
    });
    let _ = guard.release().await.unwrap();
    assert_eq!(known.get(), Some(true));
}
