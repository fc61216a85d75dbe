//! Tasks of the library that panic, on embedded servers and in simulated time: the subscriber of
//! `tracing` is the caller's code, and the library runs it in every task.

use std::error::Error as _;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::guard::CachedWriteGuard;
use rwlease::{CachedRwLock, Client, ErrorKind, Lease, LeaseLoss, LeaseState, WriteGuard};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::events;
use crate::fixture::{SECOND, single};
use testkit::{connect, spawn_write};

const LEASE: Duration = Duration::from_secs(30);

/// Panics at each event of these names on this thread, once it is armed.
#[derive(Clone, Default)]
struct PanicAt(Arc<AtomicBool>);

impl PanicAt {
    /// The thread is the whole runtime of the test.
    fn events(names: Vec<&'static str>) -> PanicAt {
        let panic_at = PanicAt::default();
        let PanicAt(is_armed) = panic_at.clone();
        events::on_event(move |event| {
            let is_named = names.contains(&event.metadata().name());
            assert!(!is_named || !is_armed.load(Ordering::Relaxed), "as the test wants");
        });
        panic_at
    }

    fn arm(&self, armed: bool) {
        self.0.store(armed, Ordering::Relaxed);
    }
}

/// A client with a guard of a minute and a request that waits for another client.
struct Bench {
    engine: EmbeddedCluster,
    locks: Client,
    others: Client,
    guard: WriteGuard,
    taken: Option<WriteGuard>,
    losses: Arc<Mutex<Vec<String>>>,
    waiting: JoinHandle<rwlease::Result<WriteGuard>>,
}

impl Bench {
    async fn new() -> Bench {
        let engine = EmbeddedCluster::builder().masters(1).replicas(1).build();
        let losses = Arc::new(Mutex::new(Vec::new()));
        let heard = losses.clone();
        let settings = Client::builder().lease(LEASE);
        let settings = settings.on_lease_lost(move |loss: &LeaseLoss| {
            heard.lock().unwrap().push(loss.lock.to_string())
        });
        let locks = settings.connect_embedded(&engine).await.unwrap();
        let others = Client::builder().lease(10 * LEASE).connect_embedded(&engine).await.unwrap();
        let taken = others.rwlock("taken").unwrap().write().await.unwrap();
        let guard = locks.rwlock("held").unwrap().write().await.unwrap();
        let waiting = spawn_write(&locks.rwlock("taken").unwrap());
        sleep(SECOND).await;
        let taken = Some(taken);
        Bench { engine, locks, others, guard, taken, losses, waiting }
    }

    /// A lock that this client caches, and a guard of the cached lease.
    async fn cached_guard(&self) -> (CachedRwLock, CachedWriteGuard) {
        let cached = self.locks.rwlock("cached").unwrap().cached().unwrap();
        while cached.cache_status().hold.is_none() {
            drop(cached.write().await.unwrap());
            sleep(SECOND / 100).await;
        }
        let guard = cached.write().await.unwrap();
        (cached, guard)
    }

    /// Everybody has been told, and everything fails.
    async fn must_have_failed(self, what: &str) {
        let Bench { locks, guard, losses, waiting, .. } = self;
        let lease: &Lease = &guard;
        let told = |which| format!("{what}: {which} was not told");
        timeout(SECOND, lease.ended()).await.unwrap_or_else(|_| panic!("{}", told("`lost`")));
        assert_eq!(lease.state(), LeaseState::Lost, "{what}");
        assert!(lease.cancellation_token().is_cancelled(), "{what}");
        let waited = timeout(SECOND, waiting).await;
        let waited = waited.unwrap_or_else(|_| panic!("{}", told("the waiter")));
        let says_so = |error: rwlease::Error| {
            assert_eq!(error.kind(), ErrorKind::ClientFailed, "{what}: {error}");
            assert!(error.to_string().contains("panicked: as the test wants"), "{what}: {error}");
        };
        says_so(waited.unwrap().unwrap_err());
        sleep(SECOND).await;
        assert_eq!(*losses.lock().unwrap(), ["held"], "{what}");
        let lock = locks.rwlock("later").unwrap();
        says_so(timeout(SECOND, lock.write().into_future()).await.expect(what).unwrap_err());
        says_so(timeout(SECOND, lock.is_locked()).await.expect(what).unwrap_err());
        assert_eq!(locks.shutdown(SECOND).await, ["held", "taken"], "{what}");
        drop(guard);
    }
}

/// The event at which a task panics, and what happens then. The push is that of a grant, so the
/// waiter has a lock at the server that it never learns of.
#[tokio::test(start_paused = true)]
async fn client_whose_task_panics_loses_all_leases_and_fails() {
    for (event, happens, after) in [
        ("rwlease.renew", "nothing", LEASE / 2),
        ("rwlease.subscribe", "connections are cut", 5 * SECOND),
        ("rwlease.connect", "connections are cut", 5 * SECOND),
        ("rwlease.refresh", "nothing", 40 * SECOND),
        ("rwlease.push", "the lock is released", SECOND),
    ] {
        let panic_at = PanicAt::events(vec![event]);
        let mut bench = Bench::new().await;
        panic_at.arm(true);
        match happens {
            "connections are cut" => bench.engine.faults().kill_connections(0),
            "the lock is released" => drop(bench.taken.take()),
            _ => {}
        }
        sleep(after).await;
        bench.must_have_failed(event).await;
        panic_at.arm(false);
    }
}

/// The events of a request that waits, or upgrades, name the same failure as its error.
#[tokio::test(start_paused = true)]
async fn outcome_of_a_request_of_a_client_that_fails_is_the_failure() {
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let is_armed = Arc::new(AtomicBool::new(false));
    events::on_event({
        let (outcomes, is_armed) = (outcomes.clone(), is_armed.clone());
        move |event| match event.metadata().name() {
            "rwlease.wait" => outcomes.lock().unwrap().extend(events::field(event, "outcome")),
            "rwlease.renew" => assert!(!is_armed.load(Ordering::Relaxed), "as the test wants"),
            _ => {}
        }
    });
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("upgraded").unwrap();
    let _other = lock.read().await.unwrap();
    let reading = lock.read().await.unwrap();
    let upgrading = tokio::spawn(async move { reading.upgrade().await.map_err(|it| it.kind()) });
    sleep(SECOND).await;
    is_armed.store(true, Ordering::Relaxed);
    sleep(LEASE / 2).await;
    assert_eq!(bench.waiting.await.unwrap().unwrap_err().kind(), ErrorKind::ClientFailed);
    assert_eq!(upgrading.await.unwrap().unwrap_err(), ErrorKind::ClientFailed);
    let outcomes = outcomes.lock().unwrap();
    assert_eq!(outcomes[..], ["queued", "queued", "client_failed", "client_failed"]);
}

/// The caller's own task panics between the grant and the guard.
#[tokio::test(start_paused = true)]
async fn grant_whose_event_panics_is_released() {
    for name in ["free", "taken"] {
        let panic_at = PanicAt::events(vec!["rwlease.grant"]);
        let Bench { others, locks, guard, taken, waiting, .. } = Bench::new().await;
        panic_at.arm(true);
        let ended = if name == "taken" {
            drop(taken);
            waiting.await.map(drop)
        } else {
            let lock = locks.rwlock("free").unwrap();
            tokio::spawn(async move { drop(lock.write().await) }).await
        };
        assert!(ended.unwrap_err().is_panic(), "{name}");
        panic_at.arm(false);
        let next = others.rwlock(name).unwrap();
        drop(timeout(LEASE / 2, next.write().into_future()).await.expect(name).unwrap());
        assert!(guard.is_held(), "it concerns one request");
    }
}

/// A connection to a real server is read by a task of its own, which handles the pushes.
#[tokio::test]
async fn client_whose_connection_panics_fails() {
    let panic_at = PanicAt::events(vec!["rwlease.push"]);
    let (server, locks) = single().await;
    let others = connect(&[server.url()]).await.unwrap();
    let guard = locks.rwlock("held").unwrap().write().await.unwrap();
    let taken = others.rwlock("taken").unwrap().write().await.unwrap();
    let waiting = spawn_write(&locks.rwlock("taken").unwrap());
    sleep(SECOND / 2).await;
    panic_at.arm(true);
    let _ = taken.release().await.unwrap();
    timeout(LEASE / 2, guard.ended()).await.expect("it is told");
    let error = timeout(LEASE, waiting).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientFailed);
    assert!(error.to_string().contains("panicked: as the test wants"), "{error}");
    let later = timeout(LEASE, locks.set_nx_mutex("later").unwrap().lock().into_future()).await;
    assert_eq!(later.expect("it ends").unwrap_err().kind(), ErrorKind::ClientFailed);
}

/// The guards of a cached lock are lost together, and reported once.
#[tokio::test(start_paused = true)]
async fn client_that_fails_loses_cached_leases() {
    let panic_at = PanicAt::events(vec!["rwlease.refresh"]);
    let bench = Bench::new().await;
    let (cached, guard) = bench.cached_guard().await;
    let watch = guard.watch();
    panic_at.arm(true);
    timeout(60 * SECOND, watch.ended()).await.expect("it is told");
    assert!(!guard.is_held() && watch.cancellation_token().is_cancelled());
    sleep(SECOND).await;
    assert!(bench.losses.lock().unwrap().contains(&"cached".to_owned()));
    let error = timeout(SECOND, cached.read().into_future()).await.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientFailed);
}

/// The task that looks after a cached lease panics, before the client is known to have failed.
#[tokio::test(start_paused = true)]
async fn cached_lock_whose_task_panics_loses_its_lease() {
    let panic_at = PanicAt::events(vec!["rwlease.recall"]);
    let bench = Bench::new().await;
    let (cached, guard) = bench.cached_guard().await;
    let watch = guard.watch();
    panic_at.arm(true);
    let _other = spawn_write(&bench.others.rwlock("cached").unwrap());
    timeout(SECOND, watch.ended()).await.expect("it is told");
    assert!(!guard.is_held() && watch.cancellation_token().is_cancelled());
    sleep(SECOND).await;
    assert_eq!(*bench.losses.lock().unwrap(), ["cached", "held"]);
    let error = timeout(SECOND, cached.read().into_future()).await.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientFailed);
}

/// Panics when it is called, or when its future is polled.
#[cfg(any(feature = "native", feature = "redis"))]
struct NoCredentials {
    panics_at_once: bool,
}

#[cfg(any(feature = "native", feature = "redis"))]
impl rwlease::CredentialsProvider for NoCredentials {
    fn credentials(&self) -> rwlease::CredentialsFuture<'_> {
        assert!(!self.panics_at_once, "as the test wants");
        Box::pin(async { panic!("as the test wants") })
    }

    fn can_change(&self) -> bool {
        panic!("as the test wants")
    }
}

#[cfg(any(feature = "native", feature = "redis"))]
#[tokio::test]
async fn credentials_provider_that_panics_fails_the_dial() {
    let (server, _locks) = single().await;
    for panics_at_once in [true, false] {
        let builder = Client::builder().urls([server.url()]);
        let connecting = builder.credentials(NoCredentials { panics_at_once }).connect();
        let error = timeout(LEASE, connecting).await.expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let why = "no credentials: `CredentialsProvider::credentials` panicked: as the test wants";
        let source = error.source().unwrap().to_string();
        assert!(source.contains(why), "{source}");
    }
}

/// Everything that is told, panics: also what is told of the failure itself.
#[tokio::test(start_paused = true)]
async fn client_whose_subscriber_always_panics_fails_and_does_not_abort() {
    let panic_at = PanicAt::events(vec![
        "rwlease.renew",
        "rwlease.lost",
        "rwlease.client",
        "rwlease.release",
        "rwlease.wait",
        "rwlease.attempt",
        "rwlease.connect",
        "rwlease.subscribe",
        "rwlease.refresh",
    ]);
    let bench = Bench::new().await;
    panic_at.arm(true);
    sleep(LEASE / 2).await;
    let Bench { locks, guard, losses, waiting, .. } = bench;
    timeout(SECOND, guard.ended()).await.expect("it is told");
    assert!(guard.cancellation_token().is_cancelled());
    assert!(timeout(SECOND, waiting).await.expect("it ends").is_err(), "its event panics");
    sleep(SECOND).await;
    assert_eq!(*losses.lock().unwrap(), ["held"]);
    let later = locks.rwlock("later").unwrap().write().await.unwrap_err();
    assert_eq!(later.kind(), ErrorKind::ClientFailed);
}
