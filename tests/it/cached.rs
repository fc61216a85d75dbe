//! Cached locks on embedded servers, in simulated time.

use std::any::Any;
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{
    CacheConfig, CachedRwLock, Client, ClientBuilder, ErrorKind, LeaseState, LockMode,
    ReleaseOutcome, RwLock,
};
use tokio::time::{Instant, sleep, timeout};

use crate::events;
use crate::fixture::{MS, SECOND, client, engine, in_task};
use testkit::{spawn_read, spawn_write};

mod interplay;

/// A server, a client that caches a lock, and another client.
struct Bench {
    engine: EmbeddedCluster,
    here: Client,
    lock: CachedRwLock,
    others: RwLock,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with(Client::builder()).await
    }

    async fn with(settings: ClientBuilder) -> Bench {
        let engine = engine();
        let here = settings.connect_embedded(&engine).await.unwrap();
        let others = plain(&client(&engine).await);
        Bench { lock: cached(&here), engine, here, others }
    }

    /// The lock is cached already.
    async fn warm(mode: LockMode) -> Bench {
        let bench = Bench::new().await;
        warm(&bench.lock, mode).await;
        bench
    }
}

fn cached(locks: &Client) -> CachedRwLock {
    plain(locks).cached().unwrap()
}

fn plain(locks: &Client) -> RwLock {
    locks.rwlock("cached").unwrap()
}

/// Requests the lock in this mode. The guard can only be dropped.
async fn taken(lock: &CachedRwLock, mode: LockMode) -> Box<dyn Any + Send> {
    match mode {
        LockMode::Read => Box::new(lock.read().await.unwrap()),
        LockMode::Write => Box::new(lock.write().await.unwrap()),
    }
}

/// Makes the client cache the lock, and leaves no guard.
async fn warm(lock: &CachedRwLock, mode: LockMode) {
    for _ in 0..10 {
        drop(taken(lock, mode).await);
        if lock.cache_status().hold == Some(mode) {
            return;
        }
        sleep(10 * MS).await;
    }
    panic!("it is not cached: {:?}", lock.cache_status());
}

#[tokio::test(start_paused = true)]
async fn cached_lock_reused_is_granted_without_a_call() {
    let Bench { engine, lock, .. } = Bench::new().await;
    for mode in [LockMode::Read, LockMode::Write] {
        warm(&lock, mode).await;
        engine.reset_script_stats();
        let mut last = 0;
        for _ in 0..1_000 {
            match mode {
                LockMode::Read => drop(lock.read().await.unwrap()),
                LockMode::Write => {
                    let guard = lock.write().await.unwrap();
                    assert!(guard.is_held() && guard.fencing_token().get() > last);
                    last = guard.fencing_token().get();
                    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
                }
            }
        }
        assert!(engine.script_stats().scripts <= 4, "{:?}: {:?}", mode, engine.script_stats());
        sleep(4 * SECOND).await;
    }
}

/// Uses the lock at random intervals, each shorter than the time between contacts. No other client
/// wants the lock.
#[tokio::test(start_paused = true)]
async fn cached_lock_takes_no_more_calls_than_an_uncached_lock() {
    for seed in 0..20 {
        let calls = async |cache: bool| {
            let engine = engine();
            let locks = client(&engine).await;
            let (cached, plain) = (cached(&locks), plain(&locks));
            let mut random = fastrand::Rng::with_seed(seed);
            engine.reset_script_stats();
            for _ in 0..200 {
                let mut up_to = |times: [u64; 3]| {
                    let longest = times[random.usize(0..3)];
                    Duration::from_millis(random.u64(0..longest))
                };
                let (held, pause) = (up_to([2, 300, 900]), up_to([2, 300, 1_500]));
                let guard: Box<dyn Any> = match (cache, random.bool()) {
                    (true, true) => Box::new(cached.read().await.unwrap()),
                    (true, false) => Box::new(cached.write().await.unwrap()),
                    (false, true) => Box::new(plain.read().await.unwrap()),
                    (false, false) => Box::new(plain.write().await.unwrap()),
                };
                sleep(held).await;
                drop(guard);
                sleep(pause).await;
            }
            sleep(5 * SECOND).await;
            engine.script_stats().scripts
        };
        let (cached, plain) = (calls(true).await, calls(false).await);
        assert!(cached <= plain, "seed {seed}: {cached} of {plain}");
    }
}

#[tokio::test(start_paused = true)]
async fn recall_of_an_unused_cached_lock_is_obeyed_at_once() {
    let Bench { lock, others, .. } = Bench::new().await;
    for mode in [LockMode::Read, LockMode::Write] {
        warm(&lock, mode).await;
        let began = Instant::now();
        let guard = others.write().await.unwrap();
        assert!(began.elapsed() < 50 * MS, "{mode:?}: {:?}", began.elapsed());
        assert_eq!(lock.cache_status().hold, None);
        let _ = guard.release().await.unwrap();
        sleep(20 * SECOND).await; // longer than any penalty
    }
}

#[tokio::test(start_paused = true)]
async fn recall_is_completed_when_the_last_guard_has_left() {
    let recalls = Arc::new(Mutex::new(Vec::new()));
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    events::on_event({
        let recalls = recalls.clone();
        move |event| {
            if event.metadata().name() == "rwlease.recall" {
                recalls.lock().unwrap().extend(events::field(event, "seconds"));
            }
        }
    });
    let guard = lock.write().await.unwrap();
    let other = in_task(&others, |others| async move { others.write().await.map(drop) });
    sleep(500 * MS).await;
    assert!(recalls.lock().unwrap().is_empty(), "the guard is left");
    drop(guard);
    other.await.unwrap().unwrap();
    let seconds: Vec<f64> =
        recalls.lock().unwrap().iter().map(|seconds| seconds.parse().unwrap()).collect();
    assert!(matches!(seconds[..], [took] if (0.4..0.6).contains(&took)), "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn recall_of_a_hold_restored_by_a_failover_releases_it() {
    let Bench { engine, lock, others, .. } = Bench::warm(LockMode::Write).await;
    let key = b"rwlease:cached";
    let server = engine.faults().master_of(lock.slot());
    let [line] = &engine.execute(server, &[b"HMGET", key, b"s"])[..] else { panic!("no line") };
    drop(others.write().await.unwrap());
    sleep(100 * MS).await;
    assert!(others.status().await.unwrap().writer.is_none());
    // As if a failover had lost the release.
    engine.execute(server, &[b"HSET", key, b"s", line.as_bytes()]);
    assert!(others.status().await.unwrap().writer.is_some_and(|writer| writer.cached));
    let began = Instant::now();
    drop(others.write().await.unwrap());
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn on_lost_is_called_once_for_all_cached_guards_and_not_without_guards() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let builder = Client::builder().on_lease_lost({
        let told = told.clone();
        move |loss| told.lock().unwrap().push((loss.mode, loss.guard_count))
    });
    let Bench { lock, others, .. } = Bench::with(builder).await;
    warm(&lock, LockMode::Read).await;
    sleep(500 * MS).await;
    drop(lock.read().await.unwrap()); // makes the next contact due, which finds the loss
    others.force_release().await.unwrap();
    sleep(4 * SECOND).await;
    assert_eq!(lock.cache_status().hold, None);
    assert_eq!(told.lock().unwrap()[..], []);

    warm(&lock, LockMode::Read).await;
    let guards = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    others.force_release().await.unwrap();
    timeout(2 * SECOND, guards[0].ended()).await.unwrap();
    assert!(guards.iter().all(|guard| !guard.is_held() && guard.state() == LeaseState::Lost));
    sleep(4 * SECOND).await;
    assert_eq!(told.lock().unwrap()[..], [(LockMode::Read, 2)]);
}

/// Under a cached lease, and under a lease of the guard's own.
#[tokio::test(start_paused = true)]
async fn cached_work_runs_while_the_lock_is_held_and_is_cancelled_at_the_loss() {
    for is_cached in [true, false] {
        let Bench { lock, others, .. } = Bench::new().await;
        if is_cached {
            warm(&lock, LockMode::Write).await;
        }
        let token = lock.write().run_while_held(async |guard| {
            assert!(guard.is_held() && lock.cache_status().hold.is_some() == is_cached);
            guard.fencing_token()
        });
        let token = token.await.unwrap();
        sleep(10 * SECOND).await;
        if is_cached {
            warm(&lock, LockMode::Write).await;
        }
        let shared = Arc::new(());
        let cancelled = lock.write().run_while_held(async |guard| {
            assert!(guard.fencing_token() > token);
            let _kept = shared.clone();
            others.force_release().await.unwrap();
            std::future::pending::<()>().await;
        });
        let lost = timeout(60 * SECOND, cancelled).await.unwrap().unwrap_err();
        assert_eq!((lost.kind(), lost.lock()), (ErrorKind::LeaseLost, Some("cached")));
        assert_eq!(Arc::strong_count(&shared), 1, "the work is dropped");
        assert!(others.try_write().await.unwrap().is_some(), "{is_cached}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_marks_cached_holders() {
    let Bench { lock: _lock, others, .. } = Bench::warm(LockMode::Read).await;
    let reading = others.read().await.unwrap();
    let status = others.status().await.unwrap();
    let mut cached: Vec<bool> = status.readers.iter().map(|holder| holder.cached).collect();
    cached.sort_unstable();
    assert_eq!(cached, [false, true]);
    assert!(status.readers.iter().any(|holder| holder.id == reading.id() && !holder.cached));
}

#[tokio::test(start_paused = true)]
async fn try_write_recalls_an_unused_cached_hold() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    assert!(others.try_write().await.unwrap().is_some());
    sleep(20 * SECOND).await;
    warm(&lock, LockMode::Write).await;
    let held = lock.write().await.unwrap();
    let began = Instant::now();
    assert!(others.try_write().await.unwrap().is_none());
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    assert!(held.is_held());
    assert!(lock.try_read().await.unwrap().is_none(), "a guard of this client is in the way");
}

/// A closed gate is not a hold: the server may grant a lock that the gate refuses.
#[tokio::test(start_paused = true)]
async fn try_read_at_a_gate_closed_over_readers_is_granted() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Read).await;
    let reading = lock.read().await.unwrap();
    assert!(others.write().timeout(100 * MS).await.is_err());
    sleep(10 * MS).await;
    assert_eq!(lock.cache_status().hold, None, "its gate is closed");
    assert!(reading.is_held());
    assert!(lock.try_write().await.unwrap().is_none(), "a reader of this client is in the way");
    assert!(lock.try_read().await.unwrap().is_some());
    drop(reading);
    sleep(10 * MS).await;
    assert!(lock.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn multi_recalls_unused_cached_holds() {
    let engine = engine();
    let (here, there) = (client(&engine).await, client(&engine).await);
    let names = ["first", "second", "third"];
    let cached = names.map(|name| here.rwlock(name).unwrap().cached().unwrap());
    for lock in &cached[1..] {
        warm(lock, LockMode::Write).await;
    }
    let all = || names.iter().fold(there.multi_lock(), |multi, name| multi.write(name));
    let guard = all().try_acquire().await.unwrap().expect("nobody uses them");
    assert_eq!(guard.leases().len(), 3);
    drop(guard);
    sleep(20 * SECOND).await;
    warm(&cached[2], LockMode::Write).await;
    let used = cached[2].write().await.unwrap();
    assert!(all().try_acquire().await.unwrap().is_none());
    drop(used);
    sleep(20 * SECOND).await;
    warm(&cached[1], LockMode::Write).await;
    assert!(timeout(SECOND, all().into_future()).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn recall_waits_until_the_local_guard_is_dropped() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    let local = lock.write().await.unwrap();
    let token = local.fencing_token().get();
    let remote = tokio::spawn(async move { others.write().await.unwrap().fencing_token().get() });
    sleep(40 * SECOND).await; // longer than a lease, so the client renews it
    assert!(local.is_held() && !remote.is_finished());
    let behind =
        in_task(&lock, |lock| async move { lock.write().await.unwrap().fencing_token().get() });
    sleep(10 * MS).await;
    drop(local);
    let (remote, behind) = (remote.await.unwrap(), behind.await.unwrap());
    assert!(token < remote && remote < behind, "{token}, {remote}, {behind}");
}

/// The minimum hold is over, so further local requests do not extend the hold.
#[tokio::test(start_paused = true)]
async fn recall_after_the_minimum_hold_is_granted_before_further_local_requests() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    let busy = tokio::spawn(async move {
        loop {
            let guard = lock.write().await.unwrap();
            sleep(MS).await;
            drop(guard);
        }
    });
    sleep(50 * MS).await;
    let began = Instant::now();
    drop(others.write().await.unwrap());
    assert!(began.elapsed() < 4 * MS, "{:?}", began.elapsed());
    busy.abort();
}

/// No other event wakes the task that keeps the lock.
#[tokio::test(start_paused = true)]
async fn remote_read_is_granted_when_the_minimum_hold_of_a_cached_write_ends() {
    let settings = Client::builder().cache(CacheConfig::default().min_hold(80 * MS));
    let Bench { lock, others, .. } = Bench::with(settings).await;
    warm(&lock, LockMode::Write).await;
    let local = lock.read().await.unwrap();
    let began = Instant::now();
    let remote = others.read().await.unwrap();
    assert!(began.elapsed() < 90 * MS, "{:?}", began.elapsed());
    assert!(began.elapsed() > 50 * MS, "{:?}", began.elapsed());
    assert!(local.is_held() && remote.is_held());
}

/// Another client requests a read and then a write. The cached write ends, and its readers remain.
#[tokio::test(start_paused = true)]
async fn recalled_cached_write_with_local_readers_grants_a_remote_read() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    sleep(100 * MS).await;
    let local = lock.read().await.unwrap();
    let read = spawn_read(&others);
    sleep(Duration::ZERO).await;
    let write = spawn_write(&others);
    let remote = timeout(100 * MS, read).await.unwrap().unwrap().unwrap();
    assert!(!write.is_finished() && local.is_held() && remote.is_held());
    drop((local, remote));
    drop(write.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn cached_lease_unused_is_released_within_two_seconds() {
    let Bench { engine, lock, others, .. } = Bench::warm(LockMode::Write).await;
    sleep(2_100 * MS).await;
    assert_eq!(lock.cache_status().hold, None);
    assert!(others.status().await.unwrap().writer.is_none());
    engine.reset_script_stats();
    sleep(30 * SECOND).await;
    assert_eq!(engine.script_stats().scripts, 0);
}

#[tokio::test(start_paused = true)]
async fn cached_lease_is_released_with_the_last_handle() {
    let Bench { here, lock, .. } = Bench::warm(LockMode::Write).await;
    let second = lock.clone();
    drop(lock);
    sleep(100 * MS).await;
    assert_eq!(second.cache_status().hold, Some(LockMode::Write));
    drop(second);
    sleep(100 * MS).await;
    assert!(plain(&here).status().await.unwrap().writer.is_none());
}

#[tokio::test(start_paused = true)]
async fn local_requests_queue_in_order_and_readers_join_a_downgrade() {
    let Bench { lock, .. } = Bench::warm(LockMode::Write).await;
    let order = Arc::new(Mutex::new(String::new()));
    let first = lock.write().await.unwrap();
    let mut tasks = Vec::new();
    let (read, write) = (LockMode::Read, LockMode::Write);
    for (name, mode) in [('a', write), ('b', read), ('c', write), ('d', read)] {
        let (lock, order) = (lock.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let _guard = taken(&lock, mode).await;
            order.lock().unwrap().push(name);
            sleep(MS).await;
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(lock.cache_status().waiting, 4);
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
async fn cached_request_dropped_leaves_no_waiter() {
    let Bench { lock, .. } = Bench::warm(LockMode::Write).await;
    let held = lock.write().await.unwrap();
    assert!(timeout(MS, lock.write()).await.is_err());
    let error = lock.read().timeout(MS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = lock.read().cancel_when(sleep(MS)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(lock.cache_status().waiting, 0);
    drop(held);
    drop(lock.write().await.unwrap());
    assert_eq!(lock.cache_status().hold, Some(LockMode::Write), "and the cache goes on");
    let error = lock.read().timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn cached_request_that_timed_out_leaves_the_local_queue() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    let held = lock.write().await.unwrap();
    let mut late = std::pin::pin!(lock.write().timeout(MS).into_future());
    assert_eq!((&mut late).await.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(held);
    drop(timeout(SECOND, lock.write().into_future()).await.expect("its turn").unwrap());
    drop(timeout(SECOND, others.write().into_future()).await.expect("a recall").unwrap());
}

/// The request has its turn, and has not been polled since.
#[tokio::test(start_paused = true)]
async fn cached_request_dropped_after_its_grant_releases_it() {
    let Bench { lock, .. } = Bench::warm(LockMode::Write).await;
    let held = lock.write().await.unwrap();
    let mut waiting = Box::pin(async { lock.write().await });
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(held);
    assert!(lock.cache_status().writer, "it is granted");
    drop(waiting);
    assert!(!lock.cache_status().writer);
    drop(lock.write().timeout(MS).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn loss_of_a_cached_lease_ends_every_guard_and_watch() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    let first = lock.read().await.unwrap();
    let (watch, cancelled) = (first.watch(), first.cancellation_token());
    let second = lock.read().await.unwrap();
    let ended = second.watch();
    drop(second);
    timeout(SECOND, ended.ended()).await.unwrap();
    assert!(!ended.is_held() && watch.is_held() && !cancelled.is_cancelled());
    others.force_release().await.unwrap();
    timeout(2 * SECOND, first.ended()).await.unwrap();
    assert_eq!(first.state(), LeaseState::Lost);
    assert!(!first.is_held() && !watch.is_held() && cancelled.is_cancelled());
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    let next = lock.write().await.unwrap();
    assert!(next.is_held() && next.fencing_token() > watch.fencing_token());
}

/// All tasks start at once, so all of them send their first request to the server. None of these
/// requests delays the cache for long.
#[tokio::test(start_paused = true)]
async fn cached_lock_used_by_many_tasks_takes_few_calls() {
    const TASKS: u64 = 64;
    const EACH: u64 = 100;
    let engine = engine();
    let locks = client(&engine).await;
    engine.reset_script_stats();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let lock = cached(&locks);
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task);
            for _ in 0..EACH {
                match random.u8(..100) < 95 {
                    true => drop(lock.read().await.unwrap()),
                    false => drop(lock.write().await.unwrap()),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    tasks.join_all().await;
    let calls = engine.script_stats().scripts;
    assert!(calls < 8 * TASKS, "{calls} calls for {} pairs", TASKS * EACH);
}

#[tokio::test(start_paused = true)]
async fn cached_write_beyond_its_token_block_gets_more_tokens() {
    let Bench { lock, others, .. } = Bench::warm(LockMode::Write).await;
    let mut last = 0;
    for round in 0..5_000 {
        let written = lock.write().await.unwrap().fencing_token().get();
        let reading = lock.read().await.unwrap();
        let read = reading.fencing_token().get();
        assert!(written > last && read > written, "{last}, {written}, {read}");
        last = read;
        if round % 100 < 2 {
            let known = others.status().await.unwrap().last_token.map_or(0, u64::from);
            assert!(known >= read, "it is the lock's own");
        }
    }
    sleep(3 * SECOND).await;
    assert!(others.write().await.unwrap().fencing_token().get() > last);
}

/// Writers here and elsewhere change a value. Each reader keeps a copy of it with its token.
#[tokio::test(start_paused = true)]
async fn cached_readers_with_one_token_read_one_value() {
    const ROUNDS: u64 = 400;
    let Bench { lock, others, .. } = Bench::warm(LockMode::Read).await;
    let value = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (lock, others, value) = (lock.clone(), others.clone(), Arc::clone(&value));
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task);
            let (mut copy, mut hits) = (None, 0);
            for _ in 0..ROUNDS {
                sleep(Duration::from_micros(random.u64(..2_000))).await;
                match random.u8(..100) {
                    0..3 => {
                        let _writing = others.write().await.unwrap();
                        value.fetch_add(1, Ordering::Relaxed);
                    }
                    3..6 => {
                        let _writing = lock.write().await.unwrap();
                        value.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => {
                        let reading = lock.read().await.unwrap();
                        let read = (reading.fencing_token(), value.load(Ordering::Relaxed));
                        if let Some((token, _)) = copy
                            && token == read.0
                        {
                            assert_eq!(copy, Some(read));
                            hits += 1;
                        }
                        copy = Some(read);
                    }
                }
            }
            hits
        });
    }
    let hits: u64 = tasks.join_all().await.into_iter().sum();
    assert!(hits > ROUNDS, "{hits} copies were used again");
}

/// The last writer of a block has left, and the write becomes a read because of another client's
/// request. The block has no token left for the local readers.
#[tokio::test(start_paused = true)]
async fn cached_readers_after_the_last_token_get_a_token_from_the_server() {
    let settings = Client::builder().cache(CacheConfig::default().min_hold(Duration::ZERO));
    let Bench { engine, lock, others, .. } = Bench::with(settings).await;
    for _ in 0..1_000 {
        drop(lock.write().await.unwrap());
    }
    engine.faults().step_clock(0, -60_000); // from now on the server gives no blocks
    let held = others.read().await.unwrap();
    let (writer, reader) = (lock.clone(), lock);
    let writing = tokio::spawn(async move { writer.write().await.unwrap().fencing_token().get() });
    sleep(20 * MS).await;
    let reading = tokio::spawn(async move { reader.read().await.unwrap() });
    let remote = spawn_read(&others);
    sleep(20 * MS).await;
    let _ = held.release().await.unwrap();
    let written = writing.await.unwrap();
    let (remote, local) = (remote.await.unwrap().unwrap(), reading.await.unwrap());
    let known = others.status().await.unwrap().last_token.map_or(0, u64::from);
    let read = local.fencing_token().get();
    assert!(written < read && read <= known, "{written}, {read}, {known}");
    assert_ne!(read, remote.fencing_token().get());
    drop((remote, local));
    assert!(others.write().await.unwrap().fencing_token().get() > read);
}

/// A blocked client publishes its recall to the slot's channel. With another tag this client does
/// not receive the recall, and learns of it at its next contact.
#[tokio::test(start_paused = true)]
async fn lost_recall_is_noticed_within_a_second() {
    let Bench { engine, lock, .. } = Bench::warm(LockMode::Write).await;
    let script = rwlease::scripts().find(|script| script.name() == "acquire_write").unwrap();
    let words =
        ["EVAL", script.text(), "1", "rwlease:cached", "-", "0", "another_one_12345", "9000"]
            .into_iter()
            .chain(["f", "1", "no", "1000 9000 10 -"])
            .map(str::as_bytes);
    let said = engine.execute(0, &words.collect::<Vec<_>>());
    assert!(said[0].starts_with("queued"), "{said:?}");
    let asked = Instant::now();
    while lock.cache_status().hold.is_some() {
        assert!(asked.elapsed() < 1_100 * MS, "it is still used");
        drop(lock.read().timeout(10 * MS).await);
        sleep(10 * MS).await;
    }
    assert!(asked.elapsed() > 20 * MS, "it was not lost");
}

/// The server has given out tokens ahead of its clock. It gives no blocks until its clock has
/// caught up.
#[tokio::test(start_paused = true)]
async fn server_clock_set_back_costs_calls_and_keeps_tokens_rising() {
    let Bench { engine, lock, .. } = Bench::warm(LockMode::Write).await;
    engine.faults().step_clock(0, -10_000);
    sleep(2 * SECOND).await;
    warm(&lock, LockMode::Write).await;
    engine.reset_script_stats();
    let mut last = 0;
    for _ in 0..50 {
        let guard = lock.write().timeout(SECOND).await.unwrap();
        assert!(guard.fencing_token().get() > last, "{last}");
        last = guard.fencing_token().get();
        drop(guard);
        drop(lock.read().timeout(SECOND).await.unwrap());
    }
    let scripts = engine.script_stats().scripts;
    assert!(scripts <= 50 * 6, "{scripts}");
    engine.reset_script_stats();
    sleep(5 * SECOND).await;
    let scripts = engine.script_stats().scripts;
    assert!(scripts <= 3, "{scripts} calls for what nobody uses");
}

/// A failover may have lost the lease. So the client grants nothing by a lease that the server has
/// not confirmed for three seconds.
#[tokio::test(start_paused = true)]
async fn cached_lock_without_a_keep_alive_for_three_seconds_grants_nothing() {
    let Bench { engine, lock, .. } = Bench::warm(LockMode::Read).await;
    let held = lock.read().await.unwrap();
    engine.faults().pause(0);
    sleep(2 * SECOND).await;
    drop(lock.read().timeout(MS).await.unwrap());
    sleep(1_100 * MS).await;
    assert!(held.is_held());
    let error = lock.read().timeout(10 * MS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    engine.faults().resume(0);
    drop(lock.read().timeout(SECOND).await.unwrap());
    assert!(held.is_held());
}

#[tokio::test(start_paused = true)]
async fn cached_guards_watch_and_requests_implement_debug() {
    let Bench { here: locks, lock, .. } = Bench::warm(LockMode::Read).await;
    let guard = lock.read().await.unwrap();
    let expected = "CachedReadGuard { name: \"cached\", state: Held, .. }";
    assert_eq!(format!("{guard:?}"), expected);
    let (watch, request) = (guard.watch(), lock.write());
    let all = format!("{watch:?} {lock:?} {request:?} {locks:?}");
    assert!(all.len() < 10_000, "{} bytes: {all}", all.len());
    drop(guard);
    let guard = lock.write().await.unwrap();
    assert!(format!("{guard:?}").starts_with("CachedWriteGuard { name: \"cached\""));
}

#[tokio::test(start_paused = true)]
async fn cached_with_lease_min_hold_or_try_wait_out_of_range_is_invalid() {
    let engine = engine();
    let short = Client::builder().lease(999 * MS).connect_embedded(&engine).await.unwrap();
    let error = short.rwlock("short").unwrap().cached().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let default = CacheConfig::default;
    for cache in [default().min_hold(101 * MS), default().try_wait(10_001 * MS)] {
        let error = Client::builder().cache(cache).connect_embedded(&engine).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_cached_leases_and_cancels_waiters() {
    let Bench { here, lock, others, .. } = Bench::warm(LockMode::Write).await;
    let held = lock.write().await.unwrap();
    let waits = in_task(&lock, |lock| async move { lock.write().await.map(drop) });
    sleep(MS).await;
    assert!(here.shutdown(SECOND).await.is_empty());
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!held.is_held());
    assert!(others.try_write().await.unwrap().is_some());
}

/// It says what an uncached lock says: nobody holds the lock, and no server answers.
#[tokio::test(start_paused = true)]
async fn cached_lock_without_a_server_is_unavailable_with_the_reason() {
    for is_killed in [false, true] {
        let Bench { engine, lock, others, .. } = Bench::warm(LockMode::Read).await;
        match is_killed {
            true => engine.faults().stop(0),
            false => engine.faults().pause(0),
        }
        let limit = 300 * MS;
        let began = Instant::now();
        while let Ok(guard) = lock.read().timeout(limit).await {
            drop(guard);
            sleep(5 * MS).await;
        }
        assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
        // To the end of the lease, and after it.
        while began.elapsed() < 45 * SECOND {
            let (read, write) = (lock.read().timeout(limit), lock.write().timeout(limit));
            let failed = [
                read.await.map(drop).unwrap_err(),
                write.await.map(drop).unwrap_err(),
                lock.try_read().timeout(limit).await.map(drop).unwrap_err(),
                others.write().timeout(3 * SECOND).await.map(drop).unwrap_err(),
            ];
            for (request, error) in failed.iter().enumerate() {
                let said = format!("{is_killed} {request} {:?}: {error:?}", began.elapsed());
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{said}");
                assert!(error.source().is_some(), "{said}");
            }
            sleep(SECOND).await;
        }
        match is_killed {
            true => engine.faults().start(0),
            false => engine.faults().resume(0),
        }
        drop(lock.write().timeout(5 * SECOND).await.unwrap());
        drop(lock.read().timeout(5 * SECOND).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn cached_lock_held_by_another_guard_is_timed_out() {
    let Bench { lock, .. } = Bench::warm(LockMode::Write).await;
    let _guard = lock.write().await.unwrap();
    let error = lock.read().timeout(10 * SECOND).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}
