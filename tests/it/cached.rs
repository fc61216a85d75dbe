//! Cached locks on servers in this process, in time that flies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease::embedded::Engine;
use rwlease::{
    Cache, CachedRwLock, CachedWriteGuard, ErrorKind, LeaseState, Locks, Mode, Released, RwLock,
};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn engine() -> Engine {
    Engine::builder().masters(1).replicas(0).build()
}

async fn client(engine: &Engine) -> Locks {
    Locks::builder().connect_embedded(engine).await.unwrap()
}

async fn cached(locks: &Locks) -> CachedRwLock {
    locks.rwlock("cached").unwrap().cached().unwrap()
}

async fn plain(locks: &Locks) -> RwLock {
    locks.rwlock("cached").unwrap()
}

/// Has the client cache the lock, with no guard out.
async fn warm(lock: &CachedRwLock, mode: Mode) {
    for _ in 0..10 {
        match mode {
            Mode::Read => drop(lock.read().await.unwrap()),
            Mode::Write => drop(lock.write().await.unwrap()),
        }
        if lock.local().hold == Some(mode) {
            return;
        }
        sleep(10 * MS).await;
    }
    panic!("it is not cached: {:?}", lock.local());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_used_again_is_granted_without_a_message() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    for mode in [Mode::Read, Mode::Write] {
        warm(&lock, mode).await;
        engine.reset_tally();
        let mut last = 0;
        for _ in 0..1_000 {
            match mode {
                Mode::Read => drop(lock.read().await.unwrap()),
                Mode::Write => {
                    let guard = lock.write().await.unwrap();
                    assert!(guard.is_held() && guard.token() > last);
                    last = guard.token();
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            }
        }
        assert!(engine.tally().scripts <= 4, "{:?}: {:?}", mode, engine.tally());
        sleep(4 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_client_gets_it_at_once_where_nobody_uses_it() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let (lock, others) = (cached(&here).await, plain(&there).await);
    for mode in [Mode::Read, Mode::Write] {
        warm(&lock, mode).await;
        let began = Instant::now();
        let guard = others.write().await.unwrap();
        assert!(began.elapsed() < 50 * MS, "{mode:?}: {:?}", began.elapsed());
        assert_eq!(lock.local().hold, None);
        guard.release().await.unwrap();
        sleep(20 * SECOND).await; // whatever penalty
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_gets_what_others_have_only_cached() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let (lock, others) = (cached(&here).await, plain(&there).await);
    warm(&lock, Mode::Write).await;
    assert!(others.try_write().await.unwrap().is_some());
    sleep(20 * SECOND).await;
    warm(&lock, Mode::Write).await;
    let held = lock.write().await.unwrap();
    let began = Instant::now();
    assert!(others.try_write().await.unwrap().is_none());
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    assert!(held.is_held());
    assert!(lock.try_read().await.unwrap().is_none(), "a guard of this client is in the way");
}

#[tokio::test(start_paused = true)]
async fn a_remote_reader_reads_beside_the_readers_of_a_cached_write() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let (lock, others) = (cached(&here).await, plain(&there).await);
    warm(&lock, Mode::Write).await;
    let local = lock.read().await.unwrap();
    let remote = timeout(SECOND, others.read().into_future()).await.unwrap().unwrap();
    assert!(local.is_held() && remote.is_held());
    drop((local, remote));
    sleep(100 * MS).await;
    assert!(others.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_guard_keeps_what_is_called_back_until_it_is_dropped() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let (lock, others) = (cached(&here).await, plain(&there).await);
    warm(&lock, Mode::Write).await;
    let local = lock.write().await.unwrap();
    let token = local.token();
    let remote = tokio::spawn(async move { others.write().await.unwrap().token() });
    sleep(40 * SECOND).await; // longer than a lease: it is renewed
    assert!(local.is_held() && !remote.is_finished());
    let behind = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.write().await.unwrap().token() })
    };
    sleep(10 * MS).await;
    drop(local);
    let (remote, behind) = (remote.await.unwrap(), behind.await.unwrap());
    assert!(token < remote && remote < behind, "{token}, {remote}, {behind}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_given_back_in_two_seconds() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    sleep(2_100 * MS).await;
    assert_eq!(lock.local().hold, None);
    assert!(plain(&locks).await.status().await.unwrap().writer.is_none());
    engine.reset_tally();
    sleep(30 * SECOND).await;
    assert_eq!(engine.tally().scripts, 0);
}

#[tokio::test(start_paused = true)]
async fn it_is_given_back_with_the_last_handle() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let second = lock.clone();
    drop(lock);
    sleep(100 * MS).await;
    assert_eq!(second.local().hold, Some(Mode::Write));
    drop(second);
    sleep(100 * MS).await;
    assert!(plain(&locks).await.status().await.unwrap().writer.is_none());
}

#[tokio::test(start_paused = true)]
async fn local_requests_are_served_in_turn() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let order = Arc::new(std::sync::Mutex::new(String::new()));
    let first = lock.write().await.unwrap();
    let mut tasks = Vec::new();
    for (name, mode) in
        [('a', Mode::Write), ('b', Mode::Read), ('c', Mode::Write), ('d', Mode::Read)]
    {
        let (lock, order) = (lock.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            match mode {
                Mode::Read => {
                    let _guard = lock.read().await.unwrap();
                    order.lock().unwrap().push(name);
                    sleep(MS).await;
                }
                Mode::Write => {
                    let _guard = lock.write().await.unwrap();
                    order.lock().unwrap().push(name);
                    sleep(MS).await;
                }
            }
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(lock.local().waiting, 4);
    let read = first.downgrade().await.unwrap();
    sleep(2 * MS).await;
    assert_eq!(*order.lock().unwrap(), "bd", "the readers that waited go with it");
    drop(read);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), "bdac");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_nothing() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let held = lock.write().await.unwrap();
    assert!(timeout(MS, lock.write()).await.is_err());
    let error = lock.read().timeout(MS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = lock.read().cancel_on(sleep(MS)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(lock.local().waiting, 0);
    drop(held);
    drop(lock.write().await.unwrap());
    assert_eq!(lock.local().hold, Some(Mode::Write), "and the cache goes on");
    let error = lock.read().timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_seen_by_every_guard_and_watch() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let (lock, others) = (cached(&here).await, plain(&there).await);
    warm(&lock, Mode::Write).await;
    let first = lock.read().await.unwrap();
    let (watch, cancelled) = (first.watch(), first.cancellation());
    let ended = {
        let lock = lock.clone();
        let second = lock.read().await.unwrap();
        let watch = second.watch();
        drop(second);
        watch
    };
    timeout(SECOND, ended.ended()).await.unwrap();
    assert!(!ended.is_held() && watch.is_held() && !cancelled.is_cancelled());
    others.force_release().await.unwrap();
    timeout(2 * SECOND, first.lost()).await.unwrap();
    assert_eq!(first.state(), LeaseState::Lost);
    assert!(!first.is_held() && !watch.is_held() && cancelled.is_cancelled());
    assert_eq!(first.release().await.unwrap(), Released::AlreadyLost);
    let next = lock.write().await.unwrap();
    assert!(next.is_held() && next.token() > watch.token());
}

#[tokio::test(start_paused = true)]
async fn more_tokens_than_a_block_are_got_from_the_server() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let plain = plain(&locks).await;
    let mut last = 0;
    for round in 0..5_000 {
        let written = lock.write().await.unwrap().token();
        let reading = lock.read().await.unwrap();
        let read = reading.token();
        assert!(written > last && read > written, "{last}, {written}, {read}");
        last = read;
        if round % 100 < 2 {
            assert!(plain.status().await.unwrap().token >= read, "it is the lock's own");
        }
    }
    sleep(3 * SECOND).await;
    assert!(plain.write().await.unwrap().token() > last);
}

/// Whoever is blocked asks by the slot's channel. With another tag nobody hears of it; then the next
/// contact tells.
#[tokio::test(start_paused = true)]
async fn a_recall_that_was_lost_is_heard_of_within_a_second() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let script = rwlease::scripts().find(|script| script.name() == "acquire_write").unwrap();
    let words =
        ["EVAL", script.text(), "1", "rwlease:cached", "-", "0", "another_one_12345", "9000"]
            .into_iter()
            .chain(["f", "1", "no", "1000 9000 10 -"])
            .map(str::as_bytes);
    let said = engine.say(0, &words.collect::<Vec<_>>());
    assert!(said[0].starts_with("queued"), "{said:?}");
    let asked = Instant::now();
    while lock.local().hold.is_some() {
        assert!(asked.elapsed() < 1_100 * MS, "it is still used");
        drop(lock.read().timeout(10 * MS).await);
        sleep(10 * MS).await;
    }
    assert!(asked.elapsed() > 20 * MS, "it was not lost");
}

/// A failover may have lost the lease: so nobody gets in by a lease that the server was silent about
/// for three seconds.
#[tokio::test(start_paused = true)]
async fn without_contact_nobody_new_is_let_in() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = cached(&locks).await;
    warm(&lock, Mode::Read).await;
    let held = lock.read().await.unwrap();
    engine.faults().pause(0);
    sleep(2 * SECOND).await;
    drop(lock.read().timeout(MS).await.unwrap());
    sleep(1_100 * MS).await;
    assert!(held.is_held());
    let error = lock.read().timeout(10 * MS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    engine.faults().resume(0);
    drop(lock.read().timeout(SECOND).await.unwrap());
    assert!(held.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_below_a_second_is_refused() {
    let engine = engine();
    let short = Locks::builder().lease(999 * MS).connect_embedded(&engine).await.unwrap();
    let error = short.rwlock("short").unwrap().cached().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let cache = Cache::default().min_hold(101 * MS);
    let error = Locks::builder().cache(cache).connect_embedded(&engine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let cache = Cache::default().try_wait(10_001 * MS);
    let error = Locks::builder().cache(cache).connect_embedded(&engine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_cached_and_all_that_wait() {
    let engine = engine();
    let (locks, other) = (client(&engine).await, client(&engine).await);
    let lock = cached(&locks).await;
    warm(&lock, Mode::Write).await;
    let held = lock.write().await.unwrap();
    let waits = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.write().await.map(drop) })
    };
    sleep(MS).await;
    assert!(locks.shutdown(SECOND).await.is_empty());
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!held.is_held());
    assert!(plain(&other).await.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_locks_are_plain() {
    let engine = engine();
    let cache = Cache::default().max_cached(1);
    let locks = Locks::builder().cache(cache).connect_embedded(&engine).await.unwrap();
    let first = locks.rwlock("first").unwrap().cached().unwrap();
    let second = locks.rwlock("second").unwrap().cached().unwrap();
    warm(&first, Mode::Read).await;
    for _ in 0..5 {
        drop(first.read().await.unwrap());
        drop(second.read().await.unwrap());
        sleep(10 * MS).await;
    }
    assert_eq!((first.local().hold, second.local().hold), (Some(Mode::Read), None));
    assert!(second.local().plain_because.is_some());
}

/// Many tasks of three clients, one of them plain: no overlap, and tokens rise.
#[tokio::test(start_paused = true)]
async fn clients_with_and_without_a_cache_exclude_one_another() {
    let engine = engine();
    let (writers, readers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    let mut clients = Vec::new();
    for number in 0..3 {
        let locks = client(&engine).await;
        let (cached, plain) = (cached(&locks).await, plain(&locks).await);
        for task in 0..4_u64 {
            let (cached, plain) = (cached.clone(), plain.clone());
            let (writers, readers, last) = (writers.clone(), readers.clone(), last.clone());
            tasks.push(tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(number * 10 + task);
                for _ in 0..200 {
                    let pause = Duration::from_micros(random.u64(0..2_000));
                    let write = async |token: u64| {
                        assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(readers.load(Ordering::SeqCst), 0);
                        assert!(last.swap(token, Ordering::SeqCst) < token);
                        sleep(pause).await;
                        writers.fetch_sub(1, Ordering::SeqCst);
                    };
                    let read = async |token: u64| {
                        readers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        assert!(last.load(Ordering::SeqCst) <= token);
                        sleep(pause).await;
                        readers.fetch_sub(1, Ordering::SeqCst);
                    };
                    match (number, random.u32(..4)) {
                        (0, 0) => {
                            let guard = plain.write().await.unwrap();
                            write(guard.token()).await;
                        }
                        (0, _) => {
                            let guard = plain.read().await.unwrap();
                            read(guard.token()).await;
                        }
                        (_, 0) => {
                            let guard: CachedWriteGuard = cached.write().await.unwrap();
                            write(guard.token()).await;
                        }
                        _ => {
                            let guard = cached.read().await.unwrap();
                            read(guard.token()).await;
                        }
                    }
                    if random.u32(..20) == 0 {
                        sleep(Duration::from_millis(random.u64(0..30))).await;
                    }
                }
            }));
        }
        clients.push(locks);
    }
    for task in tasks {
        timeout(600 * SECOND, task).await.unwrap().unwrap();
    }
    sleep(4 * SECOND).await;
    assert!(plain(&clients[0]).await.status().await.unwrap().writer.is_none());
}
