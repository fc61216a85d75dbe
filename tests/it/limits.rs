//! The extreme values of every duration option: each is refused or works, and nothing panics. On
//! embedded servers and in simulated time.

use std::future::IntoFuture;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rwlease::{
    CacheConfig, Client, ClientBuilder, Error, ErrorKind, LockMode, Redlock, Result, RetryPolicy,
};
use tokio::time::{sleep, timeout};

use crate::fixture::{MS, SECOND, client, engine};

const EXTREMES: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_secs(30 * 24 * 3600),
    Duration::from_millis(u32::MAX as u64 + 1),
    Duration::from_secs(u64::MAX / 1_000),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];

/// Returns the result, or `None` after an expected error or if the work takes longer than this
/// waits.
async fn for_a_while<T>(what: &str, work: impl Future<Output = Result<T>>) -> Option<T> {
    match timeout(3 * SECOND, work).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            let expected = [
                ErrorKind::InvalidInput,
                ErrorKind::TimedOut,
                ErrorKind::AttemptsExhausted,
                ErrorKind::Unavailable,
                ErrorKind::LeaseLost,
            ];
            assert!(expected.contains(&error.kind()), "{what}: {error:?}");
            None
        }
        Err(_) => None,
    }
}

/// Uses everything that a client does, with extreme settings.
async fn walk(what: &str, settings: ClientBuilder) {
    let engine = engine();
    let other = client(&engine).await;
    let locks = match settings.connect_embedded(&engine).await {
        Ok(locks) => locks,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}: {error}"),
    };
    let (lock, others) = (locks.rwlock("walked").unwrap(), other.rwlock("walked").unwrap());
    let Some(read) = for_a_while(what, lock.read().into_future()).await else {
        return;
    };
    let _ = for_a_while(what, read.renew()).await;
    let upgraded = timeout(3 * SECOND, read.upgrade().into_future()).await;
    if let Ok(Ok(write)) = upgraded
        && let Some(read) = for_a_while(what, write.downgrade()).await
    {
        let theirs = others.read().lease(SECOND).await.unwrap();
        let _ = timeout(3 * SECOND, read.upgrade().timeout(SECOND).into_future()).await;
        drop(theirs);
    }
    sleep(SECOND).await;
    let theirs = others.write().await.unwrap();
    let waiting = for_a_while(what, lock.write().into_future());
    let _ = tokio::join!(waiting, async {
        sleep(SECOND).await;
        drop(theirs);
    });
    match lock.cached() {
        Ok(cached) => {
            for _ in 0..3 {
                let _ = for_a_while(what, cached.write().timeout(SECOND)).await;
                let _ = for_a_while(what, cached.try_read()).await;
            }
            let _ = for_a_while(what, others.try_write().into_future()).await;
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}: {error}"),
    }
    locks.shutdown(3 * SECOND).await;
}

type Setter = fn(ClientBuilder, Duration) -> ClientBuilder;

async fn settings_of_a_client(extreme: Duration) {
    let setters: [(&str, Setter); 10] = [
        ("lease", ClientBuilder::lease),
        ("margin", ClientBuilder::safety_margin),
        ("poll_interval", ClientBuilder::poll_interval),
        ("waiter_ttl", ClientBuilder::waiter_ttl),
        ("claim_timeout", ClientBuilder::claim_timeout),
        ("call_timeout", ClientBuilder::call_timeout),
        ("connect_timeout", ClientBuilder::connect_timeout),
        ("response_timeout", ClientBuilder::response_timeout),
        ("min_hold", |builder, time| builder.cache(CacheConfig::default().min_hold(time))),
        ("try_wait", |builder, time| builder.cache(CacheConfig::default().try_wait(time))),
    ];
    for (name, set) in setters {
        walk(&format!("{name} {extreme:?}"), set(Client::builder(), extreme)).await;
    }
    // With the longest lease, a long margin is valid too.
    let longest = Client::builder().lease(Duration::from_secs(30 * 24 * 3600));
    walk("a margin of the longest lease", longest.safety_margin(extreme)).await;
}

/// Each setter of a request, for a lock that is free and for one that is held for a second.
async fn setters_of_requests(extreme: Duration) {
    let engine = engine();
    let locks = client(&engine).await;
    let other = client(&engine).await;
    let (lock, mutex) = (locks.rwlock("extreme").unwrap(), locks.set_nx_mutex("mutex").unwrap());
    let (others, others_mutex) =
        (other.rwlock("extreme").unwrap(), other.set_nx_mutex("mutex").unwrap());
    let cached = lock.cached().unwrap();
    let mut members = vec![locks.clone()];
    for _ in 0..2 {
        members.push(Client::embedded().await.unwrap());
    }
    let quorum = Redlock::new(members).unwrap();
    let retries = [
        RetryPolicy::fixed(extreme).jitter(0.0),
        RetryPolicy::fixed(extreme).jitter(1.0).timeout(extreme),
        RetryPolicy::exponential(extreme, Duration::ZERO).jitter(0.0),
        RetryPolicy::exponential(Duration::ZERO, extreme).jitter(0.0).max_attempts(40),
        RetryPolicy::default().timeout(extreme),
    ];
    for held in [false, true] {
        let what = format!("{extreme:?}, held: {held}");
        let begin = async || match held {
            true => Some((others.write().await.unwrap(), others_mutex.lock().await.unwrap())),
            false => None,
        };
        macro_rules! each {
            ($($request:expr),* $(,)?) => {$(
                let theirs = begin().await;
                let requesting = for_a_while(&what, $request);
                let (had, ()) = tokio::join!(requesting, async {
                    sleep(SECOND).await;
                    drop(theirs);
                });
                drop(had);
                sleep(SECOND / 10).await;
            )*};
        }
        each!(
            lock.write().timeout(extreme).into_future(),
            lock.write().lease(extreme).into_future(),
            lock.read().max_hold(extreme).into_future(),
            mutex.lock().timeout(extreme).into_future(),
            mutex.lock().lease(extreme).into_future(),
            mutex.lock().max_hold(extreme).into_future(),
            cached.read().timeout(extreme),
            cached.try_write().timeout(extreme),
            lock.try_write().timeout(extreme).into_future(),
            lock.try_write().lease(extreme).into_future(),
            lock.try_read().max_hold(extreme).into_future(),
            locks.multi_lock().write("extreme").timeout(extreme).into_future(),
            locks.multi_lock().write("extreme").lease(extreme).into_future(),
            locks.multi_lock().write("extreme").max_hold(extreme).into_future(),
            locks.multi_lock().write("extreme").timeout(extreme).try_acquire(),
            quorum.write("extreme").timeout(extreme).into_future(),
            quorum.write("extreme").lease(extreme).into_future(),
            quorum.write("extreme").max_hold(extreme).into_future(),
            quorum.write("extreme").member_timeout(extreme).into_future(),
            quorum.write("extreme").drift(extreme).into_future(),
        );
        for retry in &retries {
            each!(
                lock.write().retry_policy(retry.clone()).into_future(),
                mutex.lock().retry_policy(retry.clone()).into_future(),
                locks.multi_lock().write("extreme").retry_policy(retry.clone()).into_future(),
                quorum.write("extreme").retry_policy(retry.clone()).into_future(),
            );
        }
        #[cfg(feature = "legacy")]
        {
            let legacy = rwlease::TwoKeyRwLock::tagged(&locks, "legacy").unwrap();
            each!(
                legacy.try_read(extreme),
                legacy.try_write(extreme),
                legacy.read(extreme, extreme),
                legacy.write(SECOND, extreme),
            );
        }
    }
    let read = lock.read().max_hold(extreme).await;
    if let Ok(read) = read {
        let theirs = others.read().await.unwrap();
        let upgrading = timeout(3 * SECOND, read.upgrade().timeout(extreme).into_future());
        let _ = tokio::join!(upgrading, async {
            sleep(SECOND).await;
            drop(theirs);
        });
    }
    let _ = timeout(3 * SECOND, locks.shutdown(extreme)).await;
}

#[tokio::test(start_paused = true)]
async fn client_and_request_durations_at_extremes_never_panic() {
    let panics = Arc::new(AtomicUsize::new(0));
    let (count, tell) = (panics.clone(), panic::take_hook());
    let here = thread::current().id();
    panic::set_hook(Box::new(move |panic| {
        // Counts panics in the client's tasks too, which nobody awaits, but not those of other
        // tests.
        if thread::current().id() == here {
            count.fetch_add(1, Ordering::Relaxed);
        }
        tell(panic);
    }));
    for extreme in EXTREMES {
        settings_of_a_client(extreme).await;
        setters_of_requests(extreme).await;
    }
    assert_eq!(panics.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn request_with_a_time_limit_of_zero_returns_invalid() {
    const NONE: Duration = Duration::ZERO;
    let engine = engine();
    let locks = client(&engine).await;
    let (lock, mutex) = (locks.rwlock("lock").unwrap(), locks.set_nx_mutex("mutex").unwrap());
    let (permits, other) = (locks.semaphore("permits", 2).unwrap(), locks.rwlock("other").unwrap());
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    let mut members = vec![locks.clone()];
    for _ in 0..2 {
        members.push(Client::embedded().await.unwrap());
    }
    let quorum = Redlock::new(members).unwrap();
    let multi = || locks.multi_lock().write("multi");
    let retry = || RetryPolicy::default().timeout(NONE);
    let transfer = other.write().await.unwrap().into_transfer().await.unwrap();
    let reading = lock.read().await.unwrap();
    macro_rules! errors {
        ($($request:expr),* $(,)?) => {
            [$((stringify!($request), $request.await.err().map(Error::from)),)*]
        };
    }
    let errors = errors![
        lock.read().timeout(NONE),
        lock.try_read().timeout(NONE),
        lock.write().retry_policy(retry()),
        mutex.lock().timeout(NONE),
        mutex.lock().retry_policy(retry()),
        permits.acquire(1).timeout(NONE),
        permits.try_acquire(1).timeout(NONE),
        cached.read().timeout(NONE),
        cached.try_write().timeout(NONE),
        multi().timeout(NONE),
        multi().retry_policy(retry()),
        multi().timeout(NONE).try_acquire(),
        quorum.write("quorum").timeout(NONE),
        quorum.write("quorum").retry_policy(retry()),
        quorum.write("quorum").timeout(NONE).try_acquire(),
        locks.accept_transfer(&transfer).timeout(NONE),
        reading.upgrade().timeout(NONE),
    ];
    for (request, error) in errors {
        let error = error.unwrap_or_else(|| panic!("{request}: no error"));
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{request}: {error}");
        assert!(error.to_string().contains("must not be zero"), "{request}: {error}");
    }
    drop(locks.accept_transfer(&transfer).await.unwrap()); // it is not used up
    let short = lock.write().lease(MS).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn rwlock_with_a_bad_name_returns_invalid() {
    let locks = client(&engine()).await;
    for name in [String::new(), "x".repeat(513)] {
        assert_eq!(locks.rwlock(name).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// The least value of each setting that a client accepts, and what goes with it.
fn least_settings() -> Vec<(&'static str, ClientBuilder)> {
    let short = || Client::builder().poll_interval(MS).waiter_ttl(100 * MS);
    vec![
        ("the defaults", Client::builder()),
        ("lease", Client::builder().lease(10 * MS)),
        ("lease with the largest margin", Client::builder().lease(10 * MS).safety_margin(5 * MS)),
        ("lease of 60 ms", Client::builder().lease(60 * MS)),
        ("margin", Client::builder().safety_margin(Duration::ZERO)),
        ("poll_interval", Client::builder().poll_interval(MS)),
        ("waiter_ttl", short()),
        ("claim_timeout", Client::builder().claim_timeout(10 * MS)),
        ("call_timeout", Client::builder().call_timeout(MS)),
        ("connect_timeout", Client::builder().connect_timeout(MS)),
        ("response_timeout", Client::builder().response_timeout(MS)),
        ("max_in_flight", Client::builder().max_in_flight(1)),
        ("max_queue_len", Client::builder().max_queue_len(1)),
        ("min_hold", Client::builder().cache(CacheConfig::default().min_hold(Duration::ZERO))),
        ("try_wait", Client::builder().cache(CacheConfig::default().try_wait(Duration::ZERO))),
        ("max_cached", Client::builder().cache(CacheConfig::default().max_cached(0))),
        (
            "all that is short",
            short().lease(10 * MS).claim_timeout(10 * MS).response_timeout(MS).connect_timeout(MS),
        ),
    ]
}

/// Holds, waits, tries again and caches for a while. Returns how often the runtime went to sleep,
/// and how many scripts ran.
async fn live(settings: ClientBuilder, stopped: bool) -> (u64, u64) {
    let engine = engine();
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let others = client(&engine).await;
    let taken = others.rwlock("taken").unwrap().write().await.unwrap();
    let (lock, mutex) = (locks.rwlock("taken").unwrap(), locks.set_nx_mutex("mutex").unwrap());
    let cached = locks.rwlock("cached").unwrap().cached();
    let held = locks.rwlock("held").unwrap().write().await;
    let both = mutex.lock().await;
    tokio::spawn(async move { drop(lock.write().await) });
    tokio::spawn(async move { drop(mutex.lock().await) });
    if let Ok(cached) = cached {
        tokio::spawn(async move {
            loop {
                drop(cached.write().await);
                sleep(SECOND / 10).await;
            }
        });
    }
    if stopped {
        engine.faults().pause(0);
    }
    sleep(SECOND).await;
    engine.reset_script_stats();
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    sleep(5 * SECOND).await;
    let sleeps = metrics.worker_park_count(0) - before;
    drop((taken, held, both));
    (sleeps, engine.script_stats().scripts)
}

/// In simulated time: it stands still while anything spins without a pause, and the shortest pause
/// is a millisecond.
#[test]
fn client_with_minimum_settings_does_not_spin() {
    for (name, settings) in least_settings() {
        for stopped in [false, true] {
            let (tell, told) = std::sync::mpsc::channel();
            let settings = settings.clone();
            thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_time().start_paused(true).build().unwrap();
                tell.send(runtime.block_on(live(settings, stopped))).unwrap();
            });
            let told = told.recv_timeout(60 * SECOND);
            let (sleeps, scripts) = told.unwrap_or_else(|_| panic!("{name} spins: {stopped}"));
            println!("{name}, stopped: {stopped}: {sleeps} sleeps, {scripts} scripts");
            assert!(sleeps < 5 * 3_000, "{name}, stopped: {stopped}: {sleeps} sleeps in 5 s");
            assert!(scripts < 5 * 3_000, "{name}, stopped: {stopped}: {scripts} scripts in 5 s");
        }
    }
}

/// Waits for a guard of another client, by a plain lock and by a semaphore.
#[tokio::test(start_paused = true)]
async fn max_queue_len_without_a_limit_queues() {
    for most in [9_999_999_999_999, 10_000_000_000_000, u64::MAX] {
        let engine = engine();
        let others = client(&engine).await;
        let settings = Client::builder().max_queue_len(most);
        let locks = settings.connect_embedded(&engine).await.unwrap();
        let taken = others.rwlock("taken").unwrap().write().await.unwrap();
        let permit = others.semaphore("permits", 1).unwrap().acquire(1).await.unwrap();
        let (lock, semaphore) =
            (locks.rwlock("taken").unwrap(), locks.semaphore("permits", 1).unwrap());
        let (written, read, acquired, ()) = tokio::join!(
            async { lock.write().await.map(drop) },
            async { lock.read().await.map(drop) },
            async { semaphore.acquire(1).await.map(drop) },
            async {
                sleep(SECOND).await;
                drop((taken, permit));
            },
        );
        written.and(read).and(acquired).unwrap_or_else(|error| panic!("{most}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn max_queue_len_of_zero_grants_a_free_lock_and_waits_for_none() {
    let engine = engine();
    let others = client(&engine).await;
    let locks = Client::builder().max_queue_len(0).connect_embedded(&engine).await.unwrap();
    let (lock, taken) = (locks.rwlock("free").unwrap(), others.rwlock("taken").unwrap());
    let _ = lock.write().await.unwrap().release().await.unwrap();
    drop(lock.read().await.unwrap().upgrade().await.unwrap());
    drop(locks.semaphore("permits", 1).unwrap().acquire(1).await.unwrap());
    let guard = taken.write().await.unwrap();
    let cached = locks.rwlock("taken").unwrap().cached().unwrap();
    let is_full = |kind: ErrorKind| assert_eq!(kind, ErrorKind::QueueFull);
    is_full(locks.rwlock("taken").unwrap().read().await.unwrap_err().kind());
    is_full(cached.write().await.unwrap_err().kind());
    let _ = guard.release().await.unwrap();
    for _ in 0..100 {
        drop(cached.write().await.unwrap());
        sleep(10 * MS).await;
    }
    assert_eq!(cached.cache_status().hold, Some(LockMode::Write));
    // Another request of this client has it, by the cached lease.
    let guard = cached.read().await.unwrap();
    drop(cached.read().await.unwrap());
    is_full(cached.write().await.unwrap_err().kind());
    drop(guard);
    drop(cached.write().await.unwrap());
}

/// More dead holders than one call checks.
#[tokio::test(start_paused = true)]
async fn max_queue_len_of_zero_grants_a_lock_that_only_the_dead_hold() {
    const DEAD: u32 = 40;
    let engine = engine();
    let others = client(&engine).await;
    let read = others.rwlock("read").unwrap();
    let semaphore = others.semaphore("permits", DEAD).unwrap();
    for _ in 0..DEAD {
        let _ = read.read().lease(SECOND).await.unwrap().let_expire().await.unwrap();
        let _ = semaphore.acquire(1).lease(SECOND).await.unwrap().let_expire().await.unwrap();
    }
    let status = read.status().await.unwrap();
    assert_eq!(status.readers.len(), DEAD as usize, "{status:?}");
    sleep(2 * SECOND).await;
    let locks = Client::builder().max_queue_len(0).connect_embedded(&engine).await.unwrap();
    drop(locks.rwlock("read").unwrap().write().await.unwrap());
    drop(locks.semaphore("permits", DEAD).unwrap().acquire(DEAD).await.unwrap());
}
