//! A lease that is given back has ended for every observer before another client has the lock.
//!
//! Each round has an observer that keeps clones of the lease, and checks them as soon as another
//! client is granted the lock.

use std::time::Duration;

use rwlease::{Client, Lease, LockMode, Redlock, RetryPolicy};
use tokio::time::sleep;

use testkit::{ConnectBuilder, Proxy, ProxyFlow, StandaloneServer, connect};

const ROUNDS: usize = 1_000;

/// A quorum polls, so that each round takes longer.
const QUORUM_ROUNDS: usize = 100;

/// How long replies take in a slow round. The next client's arrive at once.
const SLOW: Duration = Duration::from_secs(8);

/// Two clients of one server. The replies to the first can be delayed.
struct Pair {
    _server: StandaloneServer,
    proxy: Proxy,
    first: Client,
    next: Client,
}

impl Pair {
    async fn new() -> Pair {
        let server = StandaloneServer::start().await.unwrap();
        let proxy = Proxy::start(&server).await.unwrap();
        let patient = Client::builder()
            .lease(Duration::from_secs(60))
            .response_timeout(2 * SLOW)
            .call_timeout(2 * SLOW);
        let first = patient.connect_to(&[proxy.url()]).await.unwrap();
        let next = connect(&[server.url()]).await.unwrap();
        Pair { _server: server, proxy, first, next }
    }

    /// Lets the next client begin to wait, and then delays the replies to the first one.
    async fn slow_down(&self, delay: Duration) {
        sleep(Duration::from_millis(1)).await;
        if !delay.is_zero() {
            sleep(Duration::from_millis(100)).await;
            self.proxy.replies(ProxyFlow::Slow(delay));
        }
    }

    /// Gives back while `next` waits, and checks the observers once it has the lock.
    async fn hand_over<N: Send + 'static, R: Send + 'static>(
        &self,
        observers: Vec<Lease>,
        give_back: impl Future<Output = R> + Send + 'static,
        next: impl Future<Output = N> + Send + 'static,
        delay: Duration,
    ) -> N {
        let next = tokio::spawn(next);
        self.slow_down(delay).await;
        let given = tokio::spawn(give_back);
        let granted = next.await.unwrap();
        observers.iter().for_each(check_ended);
        self.proxy.heal();
        given.await.unwrap();
        granted
    }
}

fn check_ended(lease: &Lease) {
    let name = lease.name();
    assert!(!lease.is_held(), "{name} is held: {lease:?}");
    assert_eq!(lease.mode(), None, "{name}");
    assert!(lease.remaining().is_zero(), "{name}");
    assert!(lease.cancellation_token().is_cancelled(), "{name}");
}

/// A thousand rounds, and one with slow replies.
fn delays() -> impl Iterator<Item = Duration> {
    std::iter::repeat_n(Duration::ZERO, ROUNDS).chain([SLOW])
}

/// Makes a test of how each lock is taken and released. The next client takes it in the same way.
macro_rules! release_tests {
    ($($test:ident: |$locks:ident| $take:expr, $release:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            let take = |$locks: Client| async move { $take.await.unwrap() };
            let pair = Pair::new().await;
            for delay in delays() {
                let held = take(pair.first.clone()).await;
                let (observers, next) = (vec![held.clone()], take(pair.next.clone()));
                let granted = pair.hand_over(observers, held.$release(), next, delay).await;
                let _ = granted.$release().await.unwrap();
            }
        }
    )*};
}

/// Often enough for a lock whose waiters poll.
fn often() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(1))
}

release_tests! {
    release_has_ended_the_lease_before_the_next_grant:
        |locks| locks.rwlock("release").unwrap().write(), release;
    semaphore_release_has_ended_the_lease_before_the_next_grant:
        |locks| locks.semaphore("permits", 2).unwrap().acquire(2), release;
    resign_has_ended_the_lease_before_the_next_leader:
        |locks| locks.election("leader").unwrap().campaign(), resign;
    mutex_release_has_ended_the_lease_before_the_next_grant:
        |locks| locks.set_nx_mutex("mutex").unwrap().lock().retry_policy(often()), release;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_has_ended_the_lease_before_the_next_grant() {
    let pair = Pair::new().await;
    for delay in delays() {
        let lock = pair.first.rwlock("run").unwrap();
        let (show, shown) = tokio::sync::oneshot::channel();
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            let work = async |lease: Lease| {
                show.send(lease).unwrap();
                wait.await.unwrap();
            };
            lock.write().run_while_held(work).await.unwrap();
        });
        let observers = vec![shown.await.unwrap()];
        let end = async move {
            go_on.send(()).unwrap();
            running.await.unwrap();
        };
        let lock = pair.next.rwlock("run").unwrap();
        let next = async move { lock.write().await.unwrap() };
        let _ = pair.hand_over(observers, end, next, delay).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn downgrade_shows_a_read_before_the_next_grant() {
    let pair = Pair::new().await;
    for delay in delays() {
        let held = pair.first.rwlock("downgrade").unwrap().write().await.unwrap();
        let observer = held.clone();
        let lock = pair.next.rwlock("downgrade").unwrap();
        let next = tokio::spawn(async move { lock.read().await.unwrap() });
        pair.slow_down(delay).await;
        let downgraded = tokio::spawn(held.downgrade());
        let reading = next.await.unwrap();
        assert_eq!(observer.mode(), Some(LockMode::Read));
        assert!(observer.is_held());
        pair.proxy.heal();
        let held = downgraded.await.unwrap().unwrap();
        assert_eq!(held.mode(), Some(LockMode::Read));
        assert_eq!(Some(held.fencing_token()), observer.fencing_token());
        let _ = reading.release().await.unwrap();
        let _ = held.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_release_has_ended_all_leases_before_the_next_grant() {
    let pair = Pair::new().await;
    for delay in delays() {
        let request = pair.first.multi_lock().write("one").write("two").set_nx_mutex("three");
        let held = request.await.unwrap();
        let observers = held.leases().cloned().collect();
        let lock = pair.next.rwlock("one").unwrap();
        let next = async move { lock.write().await.unwrap() };
        let _ =
            pair.hand_over(observers, held.release(), next, delay).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_release_has_ended_all_leases_before_the_next_grant() {
    let (mut servers, mut first, mut next) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = StandaloneServer::start().await.unwrap();
        first.push(connect(&[server.url()]).await.unwrap());
        next.push(connect(&[server.url()]).await.unwrap());
        servers.push(server);
    }
    let (first, next) = (Redlock::new(first).unwrap(), Redlock::new(next).unwrap());
    for _ in 0..QUORUM_ROUNDS {
        let held = first.write("quorum").await.unwrap();
        let observers: Vec<Lease> = held.leases().collect();
        let waiting = tokio::spawn({
            let next = next.clone();
            async move { next.write("quorum").retry_policy(often()).await.unwrap() }
        });
        sleep(Duration::from_millis(2)).await;
        let given = tokio::spawn(held.release());
        let granted = waiting.await.unwrap();
        observers.iter().for_each(check_ended);
        let _ = given.await.unwrap().unwrap();
        let _ = granted.release().await.unwrap();
    }
}
