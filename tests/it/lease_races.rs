//! Several operations on one lease at the same time, on embedded servers and in simulated time.

use std::cell::RefCell;
use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use rwlease::embedded::{EmbeddedCluster, ServedCommand};
use rwlease::{
    Client, ClientBuilder, ErrorKind, LeaseState, LockMode, ReadGuard, ReleaseOutcome,
    RenewalPolicy, RwLock,
};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};

use crate::events;
use crate::fixture::{SECOND, client};
use testkit::spawn_write;

const HOUR: Duration = Duration::from_secs(3600);

/// One server, two clients, and the same lock for both.
struct Bench {
    engine: EmbeddedCluster,
    locks: Client,
    lock: RwLock,
    others: RwLock,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with(Client::builder()).await
    }

    /// The servers know the scripts.
    async fn with(settings: ClientBuilder) -> Bench {
        let engine = EmbeddedCluster::builder().masters(1).replicas(1).build();
        let locks = settings.connect_embedded(&engine).await.unwrap();
        let before = locks.rwlock("before").unwrap();
        let _ = before.write().await.unwrap().release().await.unwrap();
        let _ = before.read().await.unwrap().release().await.unwrap();
        let others = client(&engine).await.rwlock("one").unwrap();
        Bench { lock: locks.rwlock("one").unwrap(), engine, locks, others }
    }

    /// Also returns the tokens of the leases that it reports as lost.
    async fn losing(settings: ClientBuilder) -> (Bench, Arc<Mutex<Vec<u64>>>) {
        let losses: Arc<Mutex<Vec<u64>>> = Arc::default();
        let heard = losses.clone();
        let settings = settings.on_lease_lost(move |loss| {
            heard.lock().unwrap().push(loss.fencing_token.map_or(0, u64::from))
        });
        (Bench::with(settings).await, losses)
    }

    /// A reader beside ours, for which an upgrade waits, if it is to wait.
    async fn other_reader(&self, waits: bool) -> Option<ReadGuard> {
        match waits {
            true => Some(self.others.read().await.unwrap()),
            false => None,
        }
    }

    /// The lock has no holder and no waiter: the server has run what a client sent in the
    /// background.
    async fn must_be_free(&self) {
        let next = timeout(5 * SECOND, self.others.write()).await;
        let next = next.expect("nothing is in the way").unwrap();
        assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(self.others.status().await.unwrap().waiter_count, 0);
    }

    /// A reader can acquire the lock, so nobody writes.
    async fn must_be_read(&self) {
        let other = timeout(5 * SECOND, self.others.read()).await.expect("it reads only");
        let _ = other.unwrap().release().await.unwrap();
        let status = self.others.status().await.unwrap();
        assert!(status.writer.is_none() && status.upgrader.is_none(), "{status:?}");
        assert_eq!((status.readers.len(), status.waiter_count), (1, 0), "{status:?}");
    }
}

/// Runs a closure within the event that reports a granted write, before the write has a guard. Each
/// test sets the closure for its own thread.
struct OnGrant;

type Act = Box<dyn FnOnce()>;

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

impl OnGrant {
    fn then(act: impl FnOnce() + 'static) {
        ACT.set(Some(Box::new(act)));
        events::on_event(|event| {
            let mut is_write = IsWrite(false);
            event.record(&mut is_write);
            if event.metadata().name() == "rwlease.grant"
                && is_write.0
                && let Some(act) = ACT.take()
            {
                act();
            }
        });
    }

    fn has_acted() -> bool {
        ACT.with_borrow(Option::is_none)
    }
}

struct IsWrite(bool);

impl Visit for IsWrite {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 |= field.name() == "mode" && value == "write";
    }
}

/// Whether the grant comes in an answer or, after a wait for another reader, by a push.
const WAYS: [bool; 2] = [false, true];

#[tokio::test(start_paused = true)]
async fn reentrant_read_dropped_as_the_upgrade_is_granted_keeps_the_write() {
    for (waits, reads_on) in WAYS.iter().flat_map(|&waits| [(waits, false), (waits, true)]) {
        let bench = Bench::new().await;
        let reentrant = bench.locks.reentrant_owner();
        let read = reentrant.read(&bench.lock).await.unwrap();
        let other_read = match reads_on {
            true => Some(reentrant.read(&bench.lock).await.unwrap()),
            false => None,
        };
        let theirs = bench.other_reader(waits).await;
        OnGrant::then(move || drop(read));
        let (write, _) = tokio::join!(reentrant.write(&bench.lock).into_future(), async {
            sleep(SECOND).await;
            drop(theirs);
        });
        let write = write.unwrap();
        assert!(OnGrant::has_acted());
        sleep(SECOND).await; // the server has run all calls by now
        assert_eq!(write.mode(), Some(LockMode::Write), "waits: {waits}, reads on: {reads_on}");
        assert!(bench.others.try_read().await.unwrap().is_none(), "a reader beside a writer");
        assert_eq!(write.release().await.unwrap(), ReleaseOutcome::Released);
        if let Some(read) = other_read {
            bench.must_be_read().await;
            drop(read);
        }
        bench.must_be_free().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reentrant_second_write_dropped_as_the_upgrade_is_granted_keeps_the_first() {
    let bench = Bench::new().await;
    let reentrant = bench.locks.reentrant_owner();
    let read = reentrant.read(&bench.lock).await.unwrap();
    let (again, lock) = (reentrant.clone(), bench.lock.clone());
    OnGrant::then(move || {
        let second = again.write(&lock).into_future().now_or_never();
        drop(second.expect("it is no round trip").unwrap());
    });
    let write = reentrant.write(&bench.lock).await.unwrap();
    assert!(OnGrant::has_acted());
    sleep(SECOND).await;
    assert_eq!(write.mode(), Some(LockMode::Write));
    assert!(bench.others.try_read().await.unwrap().is_none(), "a reader beside a writer");
    drop(write);
    sleep(SECOND).await;
    bench.must_be_read().await;
    drop(read);
    bench.must_be_free().await;
}

/// A subscriber panics, and so ends the request after its upgrade was granted and before it has a
/// guard.
#[tokio::test(start_paused = true)]
async fn reentrant_upgrade_granted_to_a_panicked_request_is_undone() {
    for (waits, reads_on) in WAYS.iter().flat_map(|&waits| [(waits, false), (waits, true)]) {
        let bench = Bench::new().await;
        let reentrant = bench.locks.reentrant_owner();
        let mut read = Some(reentrant.read(&bench.lock).await.unwrap());
        let theirs = bench.other_reader(waits).await;
        let goes = match reads_on {
            true => None,
            false => read.take(),
        };
        OnGrant::then(move || {
            drop(goes);
            panic!("as the test wants");
        });
        let (lock, writer) = (bench.lock.clone(), reentrant.clone());
        let writing = tokio::spawn(async move {
            writer.write(&lock).await.map(|write| write.fencing_token().get())
        });
        sleep(SECOND).await;
        drop(theirs);
        let ended = timeout(5 * SECOND, writing).await.expect("it ends");
        assert!(ended.unwrap_err().is_panic() && OnGrant::has_acted());
        sleep(SECOND).await;
        if let Some(read) = read {
            assert_eq!(read.mode(), Some(LockMode::Read), "waits: {waits}");
            bench.must_be_read().await;
            // The lock can be written again.
            let write = timeout(5 * SECOND, reentrant.write(&bench.lock)).await.unwrap().unwrap();
            assert_eq!(write.mode(), Some(LockMode::Write));
        }
        bench.must_be_free().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reentrant_upgrade_dropped_at_any_await_leaves_a_read_or_nothing() {
    let bench = Bench::new().await;
    for (polls, way) in (1..16).flat_map(|polls| (0..6).map(move |way| (polls, way))) {
        let reentrant = bench.locks.reentrant_owner();
        let (waits, when_it_goes) = (way % 2 == 1, way / 2);
        let mut read = Some(reentrant.read(&bench.lock).await.unwrap());
        let theirs = bench.other_reader(waits).await;
        let mut request = Box::pin(reentrant.write(&bench.lock).into_future());
        for poll in 0..polls {
            if futures::poll!(&mut request).is_ready() {
                break;
            }
            if when_it_goes == 1 && poll == polls / 2 {
                read = None; // from here on the request alone keeps the lease
            }
            tokio::task::yield_now().await;
        }
        drop(theirs);
        if polls % 3 == 0 {
            sleep(SECOND / 10).await; // it is granted, and not polled since
        }
        drop(request);
        if when_it_goes == 2 {
            read = None;
        }
        sleep(SECOND).await;
        if let Some(read) = read {
            assert_eq!((read.state(), read.mode()), (LeaseState::Held, Some(LockMode::Read)));
            bench.must_be_read().await;
        }
        bench.must_be_free().await;
    }
    assert!(bench.locks.shutdown(10 * SECOND).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reentrant_upgrade_uses_lease_and_replicas_of_the_first_request() {
    let bench = Bench::new().await;
    let reentrant = bench.locks.reentrant_owner();
    let read = reentrant.read(&bench.lock).lease(7 * SECOND).min_replicas(1).await.unwrap();
    let waits = Arc::new(Mutex::new(0));
    let counted = waits.clone();
    bench.engine.set_observer(move |served: &ServedCommand<'_>| {
        *counted.lock().unwrap() += u32::from(served.words()[0] == b"WAIT");
    });
    let write = reentrant.write(&bench.lock).await.unwrap();
    assert!(*waits.lock().unwrap() > 0, "a replica was to confirm the write");
    let status = bench.lock.status().await.unwrap();
    let left = status.writer.unwrap().lease_remaining;
    assert!(left > 6 * SECOND && left <= 7 * SECOND, "{left:?}");
    drop(write);
    sleep(SECOND).await;
    // A write that too few replicas confirm is refused, and the read continues.
    let (faults, replicas) = (bench.engine.faults(), bench.engine.faults().replicas(0));
    assert!(!replicas.is_empty());
    replicas.iter().for_each(|replica| faults.lag_replica(*replica));
    let refused = reentrant.write(&bench.lock).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    replicas.iter().for_each(|replica| faults.sync_replica(*replica));
    sleep(2 * SECOND).await;
    assert_eq!((read.state(), read.mode()), (LeaseState::Held, Some(LockMode::Read)));
    bench.must_be_read().await;
    drop(read);
    bench.must_be_free().await;
}

type Words = Vec<Vec<u8>>;

impl Bench {
    /// Keeps the first call of that script, to send it again.
    fn record(&self, script: &'static str) -> Arc<Mutex<Option<Words>>> {
        let digest = self.locks.scripts().find(|known| known.name() == script).unwrap().digest();
        let kept: Arc<Mutex<Option<Words>>> = Arc::default();
        let keep = kept.clone();
        self.engine.set_observer(move |served: &ServedCommand<'_>| {
            if served.words().get(1).is_some_and(|word| *word == digest.as_bytes()) {
                let words = || served.words().iter().map(|word| word.to_vec()).collect();
                keep.lock().unwrap().get_or_insert_with(words);
            }
        });
        kept
    }

    /// Sends a duplicate of that call to the server, past the client, as if bytes of an abandoned
    /// connection arrived. Returns the status.
    fn again(&self, words: &Mutex<Option<Words>>) -> String {
        let words = words.lock().unwrap().clone().expect("it was sent before");
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.engine.execute(0, &words).concat();
        reply.split(' ').next().unwrap().into()
    }

    /// Another client takes the lock from its holder and releases it. Then the server grants the
    /// duplicate of the holder's first call.
    async fn replace(&self, acquire: &Mutex<Option<Words>>) {
        self.others.force_release().await.unwrap().expect("it was held");
        let next = self.others.try_write().await.unwrap().expect("it is free");
        let _ = next.release().await.unwrap();
        assert_eq!(self.again(acquire), "granted", "before its not_after");
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_that_returns_another_token_is_a_loss() {
    for script in ["acquire_write", "acquire_read"] {
        let (bench, losses) = Bench::losing(Client::builder().lease(3 * SECOND)).await;
        let acquire = bench.record(script);
        let guard: Box<dyn std::ops::Deref<Target = rwlease::Lease>> = match script {
            "acquire_write" => Box::new(bench.lock.write().await.unwrap()),
            _ => Box::new(bench.lock.read().await.unwrap()),
        };
        let token = guard.fencing_token().map_or(0, u64::from);
        bench.replace(&acquire).await;
        timeout(2 * SECOND, guard.ended()).await.expect("it is told of the loss");
        assert_eq!(guard.state(), LeaseState::Lost);
        assert!(guard.cancellation_token().is_cancelled());
        assert_eq!(*losses.lock().unwrap(), [token]);
        // The server keeps nothing of it, although the holder has not noticed the loss and keeps
        // its guard.
        bench.must_be_free().await;
        drop(guard);
        bench.must_be_free().await;
        assert!(bench.locks.shutdown(10 * SECOND).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn lost_lease_replacement_is_released_and_not_reported_as_held() {
    let bench = Bench::with(Client::builder().lease(30 * SECOND)).await;
    for way in ["release", "keep", "drop", "nothing"] {
        let acquire = bench.record("acquire_write");
        let guard = bench.lock.write().await.unwrap();
        bench.replace(&acquire).await;
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost, "{way}");
        match way {
            "release" => assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost),
            "keep" => {
                assert_eq!(guard.let_expire().await.unwrap_err().kind(), ErrorKind::LeaseLost)
            }
            "drop" => drop(guard),
            _ => {
                bench.must_be_free().await;
                drop(guard);
            }
        }
        bench.must_be_free().await;
    }
    // The same where only the renewal of `keep` finds the loss.
    let acquire = bench.record("acquire_write");
    let guard = bench.lock.write().lease(HOUR).await.unwrap();
    bench.replace(&acquire).await;
    assert_eq!(guard.let_expire().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    bench.must_be_free().await;
    assert!(bench.locks.shutdown(10 * SECOND).await.is_empty());
}

/// At first, the server does not answer the release of the lease that replaced the lost one.
#[tokio::test(start_paused = true)]
async fn lost_lease_replacement_is_released_once_the_server_replies_again() {
    let bench = Bench::with(Client::builder().lease(60 * SECOND)).await;
    let acquire = bench.record("acquire_write");
    let guard = bench.lock.write().await.unwrap();
    bench.replace(&acquire).await;
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    bench.engine.faults().reply_with_error(0, Some("ERR as the test wants"));
    sleep(3 * SECOND).await;
    bench.engine.faults().reply_with_error(0, None);
    bench.must_be_free().await;
    drop(guard);
}

/// The upgrade is the first call that finds the loss, and the only one if nothing renews the lease.
#[tokio::test(start_paused = true)]
async fn upgrade_that_finds_the_loss_reports_it() {
    for (renewal, tries) in [RenewalPolicy::Automatic, RenewalPolicy::Manual]
        .into_iter()
        .flat_map(|one| WAYS.map(|way| (one, way)))
    {
        let (bench, losses) = Bench::losing(Client::builder().lease(HOUR)).await;
        let acquire = bench.record("acquire_read");
        let read = bench.lock.read().renewal(renewal).await.unwrap();
        let token = read.fencing_token().get();
        bench.replace(&acquire).await;
        let refused = match tries {
            true => read.try_upgrade().await.unwrap_err(),
            false => read.upgrade().await.unwrap_err(),
        };
        assert_eq!(refused.kind(), ErrorKind::LeaseLost);
        let read = refused.into_guard();
        assert_eq!(read.state(), LeaseState::Lost);
        bench.must_be_free().await;
        assert_eq!(*losses.lock().unwrap(), [token]);
        assert_eq!(read.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    }
}

#[tokio::test(start_paused = true)]
async fn reentrant_upgrade_that_finds_the_loss_allows_a_new_write() {
    let bench = Bench::with(Client::builder().lease(HOUR)).await;
    let acquire = bench.record("acquire_read");
    let reentrant = bench.locks.reentrant_owner();
    let read = reentrant.read(&bench.lock).await.unwrap();
    bench.replace(&acquire).await;
    assert_eq!(reentrant.write(&bench.lock).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(read.state(), LeaseState::Lost);
    let write = timeout(5 * SECOND, reentrant.write(&bench.lock)).await;
    let write = write.expect("what was in its way is released").unwrap();
    drop(read);
    sleep(SECOND).await;
    assert_eq!((write.state(), write.mode()), (LeaseState::Held, Some(LockMode::Write)));
    assert_eq!(write.release().await.unwrap(), ReleaseOutcome::Released);
    bench.must_be_free().await;
}

#[tokio::test(start_paused = true)]
async fn reentrant_downgrade_that_finds_the_loss_releases_the_replacement() {
    let bench = Bench::with(Client::builder().lease(HOUR)).await;
    let acquire = bench.record("acquire_write");
    let reentrant = bench.locks.reentrant_owner();
    let write = reentrant.write(&bench.lock).await.unwrap();
    let read = reentrant.read(&bench.lock).await.unwrap();
    bench.replace(&acquire).await;
    assert_eq!(write.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(read.state(), LeaseState::Lost);
    bench.must_be_free().await;
}

/// The lease that replaced the lost one ends by itself. After that the client sends nothing more
/// for it, however long the guard is kept.
#[tokio::test(start_paused = true)]
async fn lost_lease_replacement_is_not_released_after_it_has_ended() {
    let bench = Bench::with(Client::builder().lease(30 * SECOND)).await;
    let acquire = bench.record("acquire_write");
    let guard = bench.lock.write().await.unwrap();
    bench.replace(&acquire).await;
    // The server refuses each release of it.
    let key = acquire.lock().unwrap().as_ref().unwrap()[3].clone();
    let release = bench.locks.scripts().find(|script| script.name() == "release").unwrap().digest();
    let sent = Arc::new(Mutex::new(0));
    let count = sent.clone();
    bench.engine.set_observer(move |served: &ServedCommand<'_>| {
        let is_release = served.words().get(1).is_some_and(|word| *word == release.as_bytes());
        *count.lock().unwrap() += u32::from(is_release);
    });
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    bench.engine.execute(0, &[b"SET", key.as_slice(), b"what is no lock"]);
    sleep(20 * SECOND).await;
    assert!(*sent.lock().unwrap() > 3, "it is tried again");
    sleep(60 * SECOND).await;
    *sent.lock().unwrap() = 0;
    sleep(HOUR).await;
    assert_eq!(*sent.lock().unwrap(), 0);
    drop(guard);
}

/// A renewal may return the token of an upgrade before the client has learned of that upgrade.
#[tokio::test(start_paused = true)]
async fn renewal_that_returns_the_token_of_a_pending_upgrade_is_no_loss() {
    let bench = Bench::new().await;
    let (read, theirs) = (bench.lock.read().await.unwrap(), bench.others.read().await.unwrap());
    let (lease, token) = (read.clone(), read.fencing_token());
    let mut upgrading = Box::pin(read.upgrade().into_future());
    assert!(futures::poll!(&mut upgrading).is_pending());
    sleep(SECOND / 100).await;
    assert!(futures::poll!(&mut upgrading).is_pending());
    let _ = theirs.release().await.unwrap(); // this grants the upgrade, which is not polled
    assert!(bench.others.status().await.unwrap().writer.is_some());
    lease.renew().await.unwrap();
    assert_eq!((lease.state(), lease.fencing_token()), (LeaseState::Held, Some(token)));
    let write = upgrading.await.unwrap();
    assert!(write.is_held() && write.fencing_token() > token);
    assert_eq!(write.mode(), Some(LockMode::Write));
    write.renew().await.unwrap();
    assert_eq!(write.release().await.unwrap(), ReleaseOutcome::Released);
    bench.must_be_free().await;
}

/// The same for an upgrade that was given up: it is granted, and becomes a read again.
#[tokio::test(start_paused = true)]
async fn renewal_that_returns_the_token_of_an_abandoned_upgrade_is_no_loss() {
    let bench = Bench::new().await;
    let reentrant = bench.locks.reentrant_owner();
    let read = reentrant.read(&bench.lock).await.unwrap();
    let theirs = bench.others.read().await.unwrap();
    let token = read.fencing_token().get();
    let mut upgrading = Box::pin(reentrant.write(&bench.lock).into_future());
    assert!(futures::poll!(&mut upgrading).is_pending());
    sleep(SECOND / 100).await;
    assert!(futures::poll!(&mut upgrading).is_pending());
    let _ = theirs.release().await.unwrap();
    assert!(bench.others.status().await.unwrap().writer.is_some());
    drop(upgrading);
    read.renew().await.unwrap();
    assert_eq!(
        (read.state(), read.fencing_token().get()),
        (LeaseState::Held, token),
        "before the wait was ended"
    );
    sleep(SECOND).await;
    assert_eq!((read.state(), read.mode()), (LeaseState::Held, Some(LockMode::Read)));
    assert!(read.fencing_token().get() > token);
    bench.must_be_read().await;
    read.renew().await.unwrap();
    drop(read);
    bench.must_be_free().await;
}

/// A renewal that was sent before an upgrade is answered after it, with the token of the read.
#[tokio::test(start_paused = true)]
async fn renewal_reply_overtaken_by_an_upgrade_is_no_loss() {
    let bench = Bench::new().await;
    let read = bench.lock.read().lease(HOUR).await.unwrap();
    let lease = read.clone();
    read.renew().await.unwrap(); // the server knows the script
    let mut renewing = Box::pin(lease.renew());
    bench.engine.faults().pause(0);
    assert!(futures::poll!(&mut renewing).is_pending());
    let mut upgrading = Box::pin(read.upgrade().into_future());
    assert!(futures::poll!(&mut upgrading).is_pending());
    bench.engine.faults().resume(0); // it serves both, in this order
    let write = upgrading.await.unwrap();
    assert!(write.fencing_token().get() > 0 && write.mode() == Some(LockMode::Write));
    let renewed = renewing.await;
    assert_eq!(write.state(), LeaseState::Held, "{renewed:?}");
    renewed.unwrap();
    assert_eq!(write.release().await.unwrap(), ReleaseOutcome::Released);
}

/// The new master does not have the upgrade, only the read.
#[tokio::test(start_paused = true)]
async fn upgrade_lost_by_a_failover_is_reported_as_a_loss() {
    let bench = Bench::with(Client::builder().lease(3 * SECOND)).await;
    let read = bench.lock.read().await.unwrap();
    sleep(SECOND / 10).await;
    let write = read.upgrade().await.unwrap();
    bench.engine.faults().promote(0, 1).expect("there is a replica");
    let read = bench.others.read().await.unwrap();
    timeout(2 * SECOND, write.ended()).await.expect("it is told of the loss");
    drop(write);
    sleep(SECOND).await;
    assert!(read.is_held());
    let _ = read.release().await.unwrap();
    bench.must_be_free().await;
}

impl Bench {
    /// A read whose upgrade was given up, before the server knows of it; and the other reader.
    async fn gave_up_an_upgrade(&self) -> (ReadGuard, ReadGuard) {
        let read = self.lock.read().lease(HOUR).await.unwrap();
        let theirs = self.others.read().await.unwrap();
        let waiting = read.upgrade().timeout(SECOND).into_future();
        let refuse = async {
            sleep(SECOND * 9 / 10).await;
            self.engine.faults().reply_with_error(0, Some("ERR as the test wants"));
        };
        let (refused, ()) = tokio::join!(waiting, refuse);
        let read = refused.unwrap_err().into_guard();
        sleep(SECOND / 10).await; // the server has refused the call that ends the wait
        assert!(read.is_held());
        (read, theirs)
    }
}

#[tokio::test(start_paused = true)]
async fn let_expire_after_an_abandoned_upgrade_ends_the_upgrade_first() {
    for ends_before in [false, true] {
        let bench = Bench::new().await;
        let (read, theirs) = bench.gave_up_an_upgrade().await;
        bench.engine.faults().reply_with_error(0, None);
        let mut theirs = Some(theirs);
        if ends_before {
            let _ = theirs.take().unwrap().release().await.unwrap(); // this grants the upgrade
        }
        let left = read.let_expire().await.unwrap();
        assert!(left > HOUR - 10 * SECOND, "{left:?}");
        drop(theirs);
        sleep(SECOND).await;
        let status = bench.others.status().await.unwrap();
        assert!(status.writer.is_none() && status.upgrader.is_none(), "a kept read: {status:?}");
        assert_eq!((status.readers.len(), status.waiter_count), (1, 0));
        assert!(status.readers[0].lease_remaining > HOUR - 10 * SECOND);
        assert!(bench.others.try_read().await.unwrap().is_some());
        assert!(bench.locks.shutdown(10 * SECOND).await.is_empty(), "nothing is left to do");
    }
}

#[tokio::test(start_paused = true)]
async fn let_expire_that_cannot_end_an_abandoned_upgrade_is_rejected() {
    let bench = Bench::with(Client::builder().call_timeout(5 * SECOND)).await;
    let (read, theirs) = bench.gave_up_an_upgrade().await;
    let reentrant = read.id().to_owned();
    let kept = timeout(20 * SECOND, read.let_expire()).await.expect("it ends");
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::Rejected);
    bench.engine.faults().reply_with_error(0, None);
    assert!(bench.locks.shutdown(10 * SECOND).await.is_empty());
    assert!(bench.others.is_held_by(reentrant).await.unwrap(), "it is left to its lease");
    drop(theirs);
}

#[tokio::test(start_paused = true)]
async fn upgrade_never_extends_the_lease_past_max_hold() {
    for waits in WAYS {
        let bench = Bench::with(Client::builder().lease(4 * SECOND)).await;
        let began = bench.engine.now();
        let read = bench.lock.read().max_hold(10 * SECOND).await.unwrap();
        let theirs = bench.other_reader(waits).await;
        sleep(17 * SECOND / 2).await;
        let (write, ()) = tokio::join!(read.upgrade().into_future(), async {
            sleep(SECOND).await;
            drop(theirs);
        });
        let write = write.unwrap();
        let left = began + 10 * SECOND - bench.engine.now();
        assert!(
            write.is_held() && write.remaining() <= left,
            "{:?} of {left:?}",
            write.remaining()
        );
        let status = bench.others.status().await.unwrap();
        let there = status.writer.expect("it writes").lease_remaining;
        // A grant's window is as long as the hold was when the upgrader last polled.
        let looked = if waits { SECOND / 2 } else { SECOND / 100 };
        assert!(there <= left + looked, "{there:?} at the server, {left:?} of the hold");
        timeout(2 * SECOND, write.ended()).await.expect("the hold ends");
        assert!(bench.engine.now() <= began + 10 * SECOND);
        drop(write);
        bench.must_be_free().await;
    }
}

/// A thread of the application may run its futures on a runtime that stands still in between. What
/// one call begins there for others as well, such as a group of confirmed calls, goes on.
#[test]
fn write_with_replicas_does_not_depend_on_the_runtime_of_another_caller() {
    let own = tokio::runtime::Runtime::new().unwrap();
    let caller = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = own.block_on(async { EmbeddedCluster::builder().masters(1).replicas(1).build() });
    let locks = own.block_on(Client::builder().connect_embedded(&engine)).unwrap();
    let lock = locks.rwlock("runtimes").unwrap();
    for cuts in [false, true] {
        engine.faults().pause(0);
        if cuts {
            engine.faults().kill_connections(0);
        }
        let brief = lock.write().min_replicas(1).timeout(Duration::from_millis(50));
        assert!(caller.block_on(brief.into_future()).is_err());
        engine.faults().resume(0);
        let taking = async { timeout(20 * SECOND, lock.write().min_replicas(1)).await };
        drop(own.block_on(taking).expect("the runtime of the other call stands still").unwrap());
    }
}

/// A try ends with the call timeout.
#[tokio::test(start_paused = true)]
async fn write_without_a_timeout_outlasts_the_call_timeout_while_no_server_serves() {
    let bench = Bench::with(Client::builder().call_timeout(5 * SECOND)).await;
    let faults = bench.engine.faults();
    for fault in ["silence", "LOADING Redis is loading the dataset in memory"] {
        match fault {
            "silence" => faults.pause(0),
            error => faults.reply_with_error(0, Some(error)),
        }
        let writing = spawn_write(&bench.lock);
        let tried = timeout(6 * SECOND, bench.lock.try_write().into_future()).await;
        assert_eq!(tried.unwrap().unwrap_err().kind(), ErrorKind::Unavailable, "{fault}");
        sleep(60 * SECOND).await;
        assert!(!writing.is_finished(), "{fault}");
        faults.resume(0);
        faults.reply_with_error(0, None);
        let guard = timeout(10 * SECOND, writing).await.expect("it is served").unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "{fault}");
    }
}
