//! The extreme values of every duration option: each is refused or works, and nothing panics. On
//! embedded servers and in simulated time.

use std::future::IntoFuture;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Builder, Cache, ErrorKind, Locks, Quorum, Result, Retry};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

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
                ErrorKind::Invalid,
                ErrorKind::TimedOut,
                ErrorKind::TriesUsedUp,
                ErrorKind::Unavailable,
                ErrorKind::Lost,
            ];
            assert!(expected.contains(&error.kind()), "{what}: {error:?}");
            None
        }
        Err(_) => None,
    }
}

/// Uses everything that a client does, with extreme settings.
async fn walk(what: &str, settings: Builder) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let other = Locks::builder().connect_embedded(&engine).await.unwrap();
    let locks = match settings.connect_embedded(&engine).await {
        Ok(locks) => locks,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}"),
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
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}"),
    }
    locks.shutdown(3 * SECOND).await;
}

type Setter = fn(Builder, Duration) -> Builder;

async fn settings_of_a_client(extreme: Duration) {
    let setters: [(&str, Setter); 10] = [
        ("lease", Builder::lease),
        ("margin", Builder::margin),
        ("poll_interval", Builder::poll_interval),
        ("waiter_ttl", Builder::waiter_ttl),
        ("claim_window", Builder::claim_window),
        ("call_timeout", Builder::call_timeout),
        ("connect_timeout", Builder::connect_timeout),
        ("response_timeout", Builder::response_timeout),
        ("min_hold", |builder, time| builder.cache(Cache::default().min_hold(time))),
        ("try_wait", |builder, time| builder.cache(Cache::default().try_wait(time))),
    ];
    for (name, set) in setters {
        walk(&format!("{name} {extreme:?}"), set(Locks::builder(), extreme)).await;
    }
    // With the longest lease, a long margin is valid too.
    let longest = Locks::builder().lease(Duration::from_secs(30 * 24 * 3600));
    walk("a margin of the longest lease", longest.margin(extreme)).await;
}

/// Each setter of a request, for a lock that is free and for one that is held for a second.
async fn setters_of_requests(extreme: Duration) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Locks::builder().connect_embedded(&engine).await.unwrap();
    let other = Locks::builder().connect_embedded(&engine).await.unwrap();
    let (lock, mutex) = (locks.rwlock("extreme").unwrap(), locks.mutex("mutex").unwrap());
    let (others, others_mutex) = (other.rwlock("extreme").unwrap(), other.mutex("mutex").unwrap());
    let cached = lock.cached().unwrap();
    let mut members = vec![locks.clone()];
    for _ in 0..2 {
        members.push(Locks::embedded().await.unwrap());
    }
    let quorum = Quorum::new(members).unwrap();
    let retries = [
        Retry::every(extreme).jitter(0.0),
        Retry::every(extreme).jitter(1.0).timeout(extreme),
        Retry::exponential(extreme, Duration::ZERO).jitter(0.0),
        Retry::exponential(Duration::ZERO, extreme).jitter(0.0).tries(40),
        Retry::default().timeout(extreme),
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
            locks.multi().write("extreme").timeout(extreme).into_future(),
            locks.multi().write("extreme").lease(extreme).into_future(),
            locks.multi().write("extreme").max_hold(extreme).into_future(),
            locks.multi().write("extreme").timeout(extreme).try_all(),
            quorum.write("extreme").timeout(extreme).into_future(),
            quorum.write("extreme").lease(extreme).into_future(),
            quorum.write("extreme").max_hold(extreme).into_future(),
            quorum.write("extreme").member_timeout(extreme).into_future(),
            quorum.write("extreme").drift(extreme).into_future(),
        );
        for retry in &retries {
            each!(
                lock.write().retry(retry.clone()).into_future(),
                mutex.lock().retry(retry.clone()).into_future(),
                locks.multi().write("extreme").retry(retry.clone()).into_future(),
                quorum.write("extreme").retry(retry.clone()).into_future(),
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

/// The least value of each setting that a client accepts, and what goes with it.
fn least_settings() -> Vec<(&'static str, Builder)> {
    const MS: Duration = Duration::from_millis(1);
    let short = || Locks::builder().poll_interval(MS).waiter_ttl(100 * MS);
    vec![
        ("the defaults", Locks::builder()),
        ("lease", Locks::builder().lease(10 * MS)),
        ("lease with the largest margin", Locks::builder().lease(10 * MS).margin(5 * MS)),
        ("lease of 60 ms", Locks::builder().lease(60 * MS)),
        ("margin", Locks::builder().margin(Duration::ZERO)),
        ("poll_interval", Locks::builder().poll_interval(MS)),
        ("waiter_ttl", short()),
        ("claim_window", Locks::builder().claim_window(10 * MS)),
        ("call_timeout", Locks::builder().call_timeout(MS)),
        ("connect_timeout", Locks::builder().connect_timeout(MS)),
        ("response_timeout", Locks::builder().response_timeout(MS)),
        ("max_in_flight", Locks::builder().max_in_flight(1)),
        ("max_waiters", Locks::builder().max_waiters(1)),
        ("min_hold", Locks::builder().cache(Cache::default().min_hold(Duration::ZERO))),
        ("try_wait", Locks::builder().cache(Cache::default().try_wait(Duration::ZERO))),
        ("max_cached", Locks::builder().cache(Cache::default().max_cached(0))),
        (
            "all that is short",
            short().lease(10 * MS).claim_window(10 * MS).response_timeout(MS).connect_timeout(MS),
        ),
    ]
}

/// Holds, waits, tries again and caches for a while. Returns how often the runtime went to sleep,
/// and how many scripts ran.
async fn live(settings: Builder, stopped: bool) -> (u64, u64) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let others = Locks::builder().connect_embedded(&engine).await.unwrap();
    let taken = others.rwlock("taken").unwrap().write().await.unwrap();
    let (lock, mutex) = (locks.rwlock("taken").unwrap(), locks.mutex("mutex").unwrap());
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
