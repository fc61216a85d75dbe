//! A lock on most of five deployments: real servers that die, hang, answer late or lose their
//! answers, and embedded servers.

use std::sync::Arc;
use std::time::Duration;

use rwlease::request::RedlockAcquire;
use rwlease::{
    Client, ErrorKind, LeaseState, Redlock, RedlockGuard, ReleaseOutcome, RenewalPolicy,
    RetryPolicy,
};
use testkit::{
    Backend, Cluster, ClusterConfig, CutPoint, ExclusionCheck, Proxy, ProxyFlow, StandaloneServer,
    connect,
};
use tokio::time::timeout;

use crate::fixture::{LONG, eventually};

/// Long enough for a busy machine, and far shorter than the leases here.
const MEMBER: Duration = Duration::from_millis(400);

struct Bench {
    servers: Vec<StandaloneServer>,
    proxies: Vec<Proxy>,
    members: Vec<Client>,
    quorum: Redlock,
}

impl Bench {
    async fn new() -> Bench {
        let (mut servers, mut proxies, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..5 {
            let server = StandaloneServer::start().await.unwrap();
            let proxy = Proxy::start(&server).await.unwrap();
            members.push(member(&proxy.url()).await);
            servers.push(server);
            proxies.push(proxy);
        }
        let quorum = Redlock::new(members.clone()).unwrap();
        Bench { servers, proxies, members, quorum }
    }

    /// Another client of the same five members.
    async fn another(&self) -> Redlock {
        let mut members = Vec::new();
        for proxy in &self.proxies {
            members.push(member(&proxy.url()).await);
        }
        Redlock::new(members).unwrap()
    }

    /// The number of running servers that have the key.
    async fn keys(&self, key: &str) -> usize {
        let mut found = 0;
        for server in self.servers.iter().filter(|server| server.is_running()) {
            found += server.run_words::<usize>(&format!("EXISTS {key}")).await.unwrap();
        }
        found
    }

    async fn gone(&self, key: &str) {
        eventually("it is gone everywhere", async || self.keys(key).await == 0).await;
    }
}

/// Each member has a short time to answer. The whole request has a long one, for busy machines.
async fn taken(request: RedlockAcquire) -> RedlockGuard {
    request.member_timeout(MEMBER).timeout(LONG).await.unwrap()
}

async fn tried(request: RedlockAcquire) -> Option<RedlockGuard> {
    request.member_timeout(MEMBER).try_acquire().await.unwrap()
}

/// Releases a lock that only three members can confirm. A member that answers late on a busy
/// machine leaves the outcome unknown.
async fn release_by_three(held: RedlockGuard) {
    assert_ne!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
}

async fn member(url: &str) -> Client {
    let settings = Client::builder().call_timeout(Duration::from_secs(2));
    Backend::chosen().connect(settings, &[url]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_mutex_is_held_on_a_majority_and_released_everywhere() {
    let bench = Bench::new().await;
    let held = taken(bench.quorum.set_nx_mutex("five")).await;
    assert!(held.leases().len() >= bench.quorum.majority());
    assert_eq!((held.state(), held.fencing_token().map(u64::from)), (LeaseState::Held, None));
    assert!(
        held.remaining() < Duration::from_secs(30) - Duration::from_millis(300),
        "less the drift"
    );
    assert!(bench.keys("five").await >= 3);
    let other = bench.another().await;
    assert!(tried(other.set_nx_mutex("five")).await.is_none());
    let retry = RetryPolicy::fixed(Duration::from_millis(2)).max_attempts(3);
    let used_up =
        other.set_nx_mutex("five").member_timeout(MEMBER).retry_policy(retry).await.unwrap_err();
    assert_eq!((used_up.kind(), used_up.lock()), (ErrorKind::AttemptsExhausted, Some("five")));
    let timed_out =
        other.set_nx_mutex("five").timeout(Duration::from_millis(150)).await.unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    let cancelled =
        other.set_nx_mutex("five").cancel_when(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    held.renew().await.unwrap();
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    bench.gone("five").await;
    drop(taken(other.set_nx_mutex("five")).await);
    bench.gone("five").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_two_of_five_hung_releases_them_when_they_wake() {
    let bench = Bench::new().await;
    // Opens all connections, so that later only the answers are missing.
    let _ = taken(bench.quorum.set_nx_mutex("warm")).await.release().await.unwrap();
    bench.servers[1].freeze().unwrap();
    bench.servers[2].freeze().unwrap();
    let held = taken(bench.quorum.set_nx_mutex("hang")).await;
    assert_eq!(held.leases().len(), 3);
    release_by_three(held).await;
    bench.gone("hang").await;
    bench.servers[1].thaw().unwrap();
    bench.servers[2].thaw().unwrap();
    // The servers now run the calls that arrived while they hung, or refuse them as stale. The
    // release comes after these calls.
    bench.gone("hang").await;
    let held = taken(bench.quorum.set_nx_mutex("hang")).await;
    drop(held);
    bench.gone("hang").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_try_once_is_limited_by_its_timeout() {
    let bench = Bench::new().await;
    for proxy in &bench.proxies[..3] {
        proxy.replies(ProxyFlow::Slow(Duration::from_secs(1)));
    }
    let brief = Duration::from_millis(50);
    let request = || bench.quorum.set_nx_mutex("brief").member_timeout(LONG).timeout(brief);
    for error in [request().await.unwrap_err(), request().try_acquire().await.unwrap_err()] {
        assert_eq!((error.kind(), error.lock()), (ErrorKind::Unavailable, Some("brief")));
    }
    bench.proxies.iter().for_each(Proxy::heal);
    bench.gone("brief").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_two_of_five_late_is_granted() {
    let bench = Bench::new().await;
    for late in [1, 4] {
        bench.proxies[late].replies(ProxyFlow::Slow(Duration::from_secs(1)));
    }
    for _ in 0..3 {
        let held = taken(bench.quorum.write("late")).await;
        assert_eq!(held.leases().len(), 3, "the late ones are not waited for");
        release_by_three(held).await;
    }
    bench.proxies.iter().for_each(Proxy::heal);
    for member in &bench.members {
        let lock = member.rwlock("late").unwrap();
        eventually("it is free", async || !lock.is_locked().await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_try_once_with_lost_replies_leaves_nothing() {
    let bench = Bench::new().await;
    let _ = taken(bench.quorum.set_nx_mutex("warm")).await.release().await.unwrap();
    let script = rwlease::scripts().find(|script| script.name() == "set_nx/acquire").unwrap();
    for proxy in &bench.proxies[..3] {
        proxy.replies(ProxyFlow::Paused); // run, and not answered
    }
    let failed =
        bench.quorum.set_nx_mutex("lost").member_timeout(MEMBER).try_acquire().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    bench.proxies.iter().for_each(Proxy::heal);
    bench.gone("lost").await;

    // The connection is cut after the script has run. The client sends the call again, for the same
    // acquisition.
    let sprung = bench.proxies[0].trap(script.digest(), CutPoint::AfterIt);
    bench.servers[3].kill().unwrap();
    bench.servers[4].kill().unwrap();
    let held = taken(bench.quorum.set_nx_mutex("cut")).await;
    timeout(LONG, sprung).await.unwrap().unwrap();
    assert_eq!(held.leases().len(), 3);
    release_by_three(held).await;
    bench.gone("cut").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_renew_revoked_by_most_members_returns_revoked() {
    let bench = Bench::new().await;
    let held = taken(bench.quorum.write("revoked")).await;
    for member in &bench.members {
        member.rwlock("revoked").unwrap().revoke().await.unwrap();
    }
    assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseRevoked);
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_lease_without_renewal_ends_before_its_members() {
    let bench = Bench::new().await;
    let lease = Duration::from_secs(2);
    let held = bench
        .quorum
        .set_nx_mutex("ends")
        .lease(lease)
        .renewal(RenewalPolicy::Manual)
        .member_timeout(MEMBER);
    let held = held.drift(Duration::from_millis(700)).timeout(LONG).await.unwrap();
    assert!(held.remaining() <= lease - Duration::from_millis(700));
    timeout(LONG, held.ended()).await.unwrap();
    assert!(bench.keys("ends").await >= 3, "the drift is left");
    assert!(held.leases().any(|lease| lease.is_held()));
    drop(held);
    bench.gone("ends").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_readers_share_and_writers_exclude() {
    let bench = Bench::new().await;
    let other = bench.another().await;
    let first = taken(bench.quorum.read("shared")).await;
    let second = taken(other.read("shared")).await;
    assert!(second.fencing_token().map(u64::from) > first.fencing_token().map(u64::from));
    assert!(tried(other.write("shared")).await.is_none());
    let _ = first.release().await.unwrap();
    assert!(tried(other.write("shared")).await.is_none());
    let _ = second.release().await.unwrap();
    let writing = taken(other.write("shared")).await;
    assert!(tried(bench.quorum.read("shared")).await.is_none());
    let _ = writing.release().await.unwrap();
}

/// Several clients lock while members die, hang and come back, one at a time. Never are two of them
/// inside.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_excludes_while_members_come_and_go() {
    let bench = Bench::new().await;
    let inside = Arc::new(ExclusionCheck::default());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (quorum, inside) = (bench.another().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..10 {
                let request = quorum
                    .write("hot")
                    .member_timeout(MEMBER)
                    .retry_policy(RetryPolicy::fixed(Duration::from_millis(20)));
                let held = request.timeout(2 * LONG).await.unwrap();
                inside.writes().await;
                let token = held.fencing_token().map(u64::from).unwrap();
                assert!(token > last, "{token} after {last}");
                last = token;
                let _ = held.release().await.unwrap();
            }
        }));
    }
    let mut turn = 0;
    while !tasks.iter().all(|task| task.is_finished()) {
        // A frozen server forgets nothing. A killed server does, and would have to stay away for a
        // lease.
        let server = &bench.servers[turn % 5];
        server.freeze().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.thaw().unwrap();
        turn += 1;
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_accepts_a_cluster_as_member_and_needs_three_members() {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let single = StandaloneServer::start().await.unwrap();
    let second = StandaloneServer::start().await.unwrap();
    let members = [
        connect(&cluster.urls()).await.unwrap(),
        connect(&[single.url()]).await.unwrap(),
        connect(&[second.url()]).await.unwrap(),
    ];
    assert_eq!(Redlock::new(members[..2].to_vec()).unwrap_err().kind(), ErrorKind::InvalidInput);
    let quorum = Redlock::new(members).unwrap();
    assert_eq!(quorum.majority(), 2);
    let held = quorum.write("mixed").member_timeout(MEMBER).timeout(LONG).await.unwrap();
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(quorum.write("").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[cfg(feature = "embedded")]
mod embedded {
    use std::sync::Mutex;

    use rwlease::embedded::EmbeddedCluster;
    use rwlease::{ClientBuilder, Lease, LeaseLoss, LockMode};

    use super::*;
    use crate::fixture::client;

    #[tokio::test(start_paused = true)]
    async fn quorum_with_two_of_five_gone_is_renewed_and_released() {
        let (engines, quorum) = with_clocks([0; 5]).await;
        let held = quorum.write("lock").await.unwrap();
        let token = held.fencing_token().map(u64::from).unwrap();
        engines[0].faults().stop(0);
        engines[1].faults().pause(0);
        tokio::time::sleep(LONG).await;
        assert_eq!(held.state(), LeaseState::Held, "renewed on three");
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released, "by three, a majority");
        let again = quorum.write("lock").await.unwrap();
        assert_eq!(again.leases().len(), 3);
        assert!(again.fencing_token().map(u64::from) > Some(token));
        engines[2].faults().stop(0);
        again.ended().await;
        assert_eq!((again.state(), again.remaining()), (LeaseState::Lost, Duration::ZERO));
        assert_eq!(again.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(again.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
        let started = tokio::time::Instant::now();
        let request = || quorum.set_nx_mutex("other");
        for error in [request().try_acquire().await.unwrap_err(), request().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        assert!(started.elapsed() >= Duration::from_secs(2), "it is not given up at the first try");
        tokio::time::sleep(Duration::from_secs(5)).await; // released in the background
        assert_eq!(engines[3].execute(0, &[b"EXISTS", b"other"]), ["0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_try_that_is_cancelled_keeps_none() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        engines[..2].iter().for_each(|engine| engine.faults().pause(0));
        let request = || quorum.write("lock").member_timeout(Duration::from_secs(5));
        let soon = || tokio::time::sleep(Duration::from_millis(50));
        let cancelled = request().cancel_when(soon()).try_acquire().await.unwrap_err();
        assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
        engines[..2].iter().for_each(|engine| engine.faults().resume(0));
        gone(&engines).await;
        drop(request().cancel_when(soon()).try_acquire().await.unwrap().expect("free"));

        let retried = request().retry_policy(RetryPolicy::default()).try_acquire().await;
        assert_eq!(retried.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_request_that_no_member_can_grant_returns_invalid_and_sends_nothing() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        engines.iter().for_each(EmbeddedCluster::reset_script_stats);
        let request = || quorum.write("lock").lease(Duration::from_secs(1));
        let each: [fn(RedlockAcquire) -> RedlockAcquire; 7] = [
            |request| request.drift(Duration::from_millis(501)),
            |request| request.drift(Duration::from_millis(501)).renewal(RenewalPolicy::Limited(1)),
            |request| request.drift(Duration::from_secs(1)).renewal(RenewalPolicy::Manual),
            |request| request.drift(Duration::MAX),
            |request| {
                request.drift(Duration::from_millis(500)).max_hold(Duration::from_millis(500))
            },
            |request| request.member_timeout(Duration::ZERO),
            |request| request.member_timeout(Duration::from_micros(999)),
        ];
        for set in each {
            let error = set(request()).await.unwrap_err();
            assert_eq!((error.kind(), error.lock()), (ErrorKind::InvalidInput, Some("lock")));
            let error = set(request()).try_acquire().await.unwrap_err();
            assert_eq!((error.kind(), error.lock()), (ErrorKind::InvalidInput, Some("lock")));
        }
        assert!(engines.iter().all(|engine| engine.script_stats().scripts == 0));
        let (half, least) = (Duration::from_millis(500), Duration::from_millis(1));
        drop(request().drift(half).member_timeout(least).await.unwrap());
        // The key holds other data, which more attempts do not change.
        for engine in &engines {
            engine.execute(0, &[b"SET", b"rwlease:user", b"data"]);
        }
        assert_eq!(quorum.write("user").await.unwrap_err().kind(), ErrorKind::WrongType);
        let manual = request().renewal(RenewalPolicy::Manual);
        drop(manual.drift(Duration::from_millis(900)).await.unwrap());
    }

    /// A member without memory is no reason to give up while another member is away for a moment.
    #[tokio::test(start_paused = true)]
    async fn quorum_with_one_member_that_refuses_waits_for_a_member_that_is_away() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        engines[0].faults().set_out_of_memory(0, true);
        engines[1].faults().pause(0);
        let faults = engines[1].faults();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(800)).await;
            faults.resume(0);
        });
        let held = quorum.write("lock").timeout(LONG).await.unwrap();
        assert_eq!(holding(&held), 2);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
        engines[1].faults().set_out_of_memory(0, true);
        let refused = quorum.write("lock").timeout(LONG).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected, "by a majority");
    }

    /// The answers of the others say that the lock is busy, whoever answers last.
    #[tokio::test(start_paused = true)]
    async fn quorum_that_is_busy_is_so_beside_a_member_that_refuses() {
        for refusing in 0..3 {
            let (engines, quorum) = with_clocks([0; 3]).await;
            let other = quorum_of(&engines, |_, settings| settings).await;
            let faults = engines[refusing].faults();
            faults.set_out_of_memory(0, true);
            let held = other.write("lock").await.unwrap();
            assert!(quorum.write("lock").try_acquire().await.unwrap().is_none(), "{refusing}");
            let waited = quorum.write("lock").timeout(Duration::from_secs(15)).await.unwrap_err();
            assert_eq!(waited.kind(), ErrorKind::TimedOut, "{refusing}");
            drop(held);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_release_refused_by_a_minority_is_unknown() {
        for (refusing, outcome) in [(1, Ok(ReleaseOutcome::Unknown)), (2, Err(ErrorKind::Rejected))]
        {
            let (engines, quorum) = with_clocks([0; 3]).await;
            let held = quorum.write("lock").await.unwrap();
            for engine in &engines[..refusing] {
                engine.faults().reply_with_error(0, Some("NOPERM not now"));
            }
            engines[2].faults().pause(0);
            assert_eq!(held.release().await.map_err(|error| error.kind()), outcome);
        }
    }

    /// The members' clocks are far apart. In between, the lock is idle for longer than the members
    /// remember it.
    #[tokio::test(start_paused = true)]
    async fn quorum_tokens_rise_over_members_with_different_clocks() {
        let (engines, quorum) = with_clocks([0, 2, 4, 6, 8]).await;
        let mut tokens = std::collections::BTreeSet::new();
        for round in 0..20usize {
            for place in [round % 5, (round + 2) % 5] {
                engines[place].faults().pause(0);
            }
            let held = quorum.write("lock").await.unwrap();
            let token = held.fencing_token().map(u64::from).unwrap();
            assert!(tokens.last().is_none_or(|last| token > *last), "round {round}");
            tokens.insert(token);
            let _ = held.release().await.unwrap();
            for place in [round % 5, (round + 2) % 5] {
                engines[place].faults().resume(0);
            }
            if round % 3 == 2 {
                tokio::time::sleep(LONG).await;
            }
        }
    }

    /// Members whose clocks are ahead by these numbers of seconds.
    async fn with_clocks<const N: usize>(ahead: [i64; N]) -> (Vec<EmbeddedCluster>, Redlock) {
        let epoch = Duration::from_secs(1_735_689_600);
        let (mut engines, mut members) = (Vec::new(), Vec::new());
        for seconds in ahead {
            let engine = EmbeddedCluster::builder().standalone().start_time(epoch).build();
            engine.faults().set_clock(0, seconds * 1_000);
            let settings = Client::builder().call_timeout(Duration::from_secs(2));
            members.push(settings.connect_embedded(&engine).await.unwrap());
            engines.push(engine);
        }
        (engines, Redlock::new(members).unwrap())
    }

    /// Another quorum of these members, with the settings for each position.
    async fn quorum_of(
        engines: &[EmbeddedCluster],
        settings: impl Fn(usize, ClientBuilder) -> ClientBuilder,
    ) -> Redlock {
        Redlock::new(clients_of(engines, settings).await).unwrap()
    }

    /// A client of each of these members, with the settings for its position.
    async fn clients_of(
        engines: &[EmbeddedCluster],
        settings: impl Fn(usize, ClientBuilder) -> ClientBuilder,
    ) -> Vec<Client> {
        let mut members = Vec::new();
        for (place, engine) in engines.iter().enumerate() {
            let settings = settings(place, Client::builder());
            members.push(settings.connect_embedded(engine).await.unwrap());
        }
        members
    }

    /// Losses that the listeners of members heard of, with the member's position.
    type Losses = Arc<Mutex<Vec<(usize, LeaseLoss)>>>;

    fn heard(losses: &Losses, place: usize, settings: ClientBuilder) -> ClientBuilder {
        let losses = losses.clone();
        settings.on_lease_lost(move |loss| losses.lock().unwrap().push((place, loss.clone())))
    }

    /// The last token at each member that knows the lock.
    fn tokens(engines: &[EmbeddedCluster]) -> Vec<Option<u64>> {
        engines.iter().map(|engine| line(engine).get(15..31)?.parse().ok()).collect()
    }

    fn line(engine: &EmbeddedCluster) -> String {
        engine.execute(0, &[b"HGET", b"rwlease:lock", b"s"]).concat()
    }

    /// Whether a writer is in the state line or in a field beside it.
    fn is_written(engine: &EmbeddedCluster) -> bool {
        let entries = engine.execute(0, &[b"HGETALL", b"rwlease:lock"]);
        entries.iter().any(|entry| entry == "writer") || line(engine).starts_with("2W")
    }

    const HOUR: i64 = 3_600;

    /// The server forgets the lock, as if it were restarted without persistence.
    fn restart(engine: &EmbeddedCluster) {
        engine.faults().stop(0);
        engine.faults().flush_data(0);
        engine.faults().start(0);
    }

    fn holding(held: &RedlockGuard) -> usize {
        held.leases().filter(Lease::is_held).count()
    }

    async fn gone(engines: &[EmbeddedCluster]) {
        tokio::time::sleep(Duration::from_secs(5)).await; // released in the background
        assert!(!engines.iter().any(is_written));
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_takes_restarted_members_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let held = quorum.write("lock").await.unwrap();
        for engine in [&engines[0], &engines[1], &engines[2], &engines[0]] {
            restart(engine);
            tokio::time::sleep(LONG).await;
            assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 3));
        }
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
        gone(&engines).await;
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_takes_a_member_that_did_not_grant() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        engines[1].faults().stop(0);
        let held = quorum.read("lock").await.unwrap();
        assert_eq!(held.leases().len(), 2);
        engines[1].faults().start(0);
        tokio::time::sleep(LONG).await;
        assert_eq!(held.leases().len(), 3);
        engines[0].faults().stop(0);
        tokio::time::sleep(LONG).await;
        assert_eq!(held.state(), LeaseState::Held);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_raises_the_token_of_a_member_taken_anew() {
        let (engines, quorum) = with_clocks([0, -50, 0]).await;
        let held = quorum.write("lock").await.unwrap();
        restart(&engines[1]);
        tokio::time::sleep(Duration::from_secs(21)).await;
        assert_eq!(holding(&held), 3);
        assert!(tokens(&engines)[1] >= held.fencing_token().map(u64::from));
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_does_not_count_a_member_that_refuses_the_token() {
        let (engines, quorum) = with_clocks([0, 0, -HOUR]).await;
        let held = quorum.write("lock").await.unwrap();
        restart(&engines[2]);
        tokio::time::sleep(LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        drop(held);
        gone(&engines).await;
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_does_not_take_a_member_with_a_wrong_clock_anew() {
        let (engines, quorum) = with_clocks([0, HOUR, 0]).await;
        let held = quorum.write("lock").await.unwrap();
        tokio::time::sleep(LONG).await;
        held.renew().await.unwrap();
        assert_eq!((held.state(), held.leases().len()), (LeaseState::Held, 2));
        assert!(!is_written(&engines[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_renew_takes_restarted_members_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let manual = || quorum.write("lock").renewal(RenewalPolicy::Manual);
        let held = manual().await.unwrap();
        for engine in &engines {
            restart(engine);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(!is_written(engine));
            held.renew().await.unwrap();
            assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 3));
        }
        engines[..2].iter().for_each(restart);
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert!(!engines[..2].iter().any(is_written));
    }

    /// The members are revoked one after the other, so that each lease ends while the others are a
    /// majority.
    #[tokio::test(start_paused = true)]
    async fn quorum_guard_does_not_take_revoked_members_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let revoke = async |engine: &EmbeddedCluster| {
            client(engine).await.rwlock("lock").unwrap().revoke().await.unwrap();
        };
        let held = quorum.write("lock").await.unwrap();
        revoke(&engines[0]).await;
        tokio::time::sleep(2 * LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        revoke(&engines[1]).await;
        timeout(LONG, held.ended()).await.unwrap();
        drop(held);
        gone(&engines).await;
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_that_is_lost_takes_no_member_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let held = quorum.write("lock").await.unwrap();
        // They stay away until the loss: a restarted member could be taken anew before it.
        engines[..2].iter().for_each(|engine| engine.faults().stop(0));
        held.ended().await;
        for engine in &engines[..2] {
            engine.faults().flush_data(0);
            engine.faults().start(0);
        }
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!held.is_held() && !engines[..2].iter().any(is_written));
        }
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert!(!engines[..2].iter().any(is_written));
    }

    /// The drift is so long that the leases are renewed after the lock was lost here. They end with
    /// the drift.
    #[tokio::test(start_paused = true)]
    async fn quorum_guard_that_was_lost_stays_lost() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let request = quorum.write("lock").renewal(RenewalPolicy::Manual);
        let held = request.drift(Duration::from_secs(25)).await.unwrap();
        held.ended().await;
        for _ in 0..24 {
            for lease in held.leases() {
                lease.renew().await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!held.is_held() && holding(&held) == 3);
        }
        gone(&engines).await;
        assert_eq!((held.state(), held.leases().len()), (LeaseState::Lost, 0));
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    }

    /// The work under the lost lock hangs, and its guard lives. Without the member that it still
    /// had there is no majority, because another member has died since.
    #[tokio::test(start_paused = true)]
    async fn quorum_that_is_lost_is_granted_again_while_its_guard_lives() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let other = quorum_of(&engines, |_, settings| settings).await;
        for request in [quorum.write("lock"), quorum.set_nx_mutex("lock")] {
            let held = request.await.unwrap();
            engines[1..].iter().for_each(|engine| engine.faults().stop(0));
            held.ended().await;
            engines[1].faults().start(0);
            let next = match held.fencing_token() {
                Some(_) => other.write("lock"),
                None => other.set_nx_mutex("lock"),
            };
            let next = next.timeout(LONG).await.unwrap();
            assert_eq!(next.leases().len(), 2);
            assert!(!held.is_held());
            assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
            engines[2].faults().start(0);
            tokio::time::sleep(LONG).await;
        }
    }

    /// The guard is held without the member that has lost its lease.
    #[tokio::test(start_paused = true)]
    async fn on_lost_is_called_once_for_a_lost_quorum_and_not_for_a_member() {
        let (engines, _) = with_clocks([0; 3]).await;
        let losses: Losses = Arc::default();
        let quorum = quorum_of(&engines, |place, settings| heard(&losses, place, settings)).await;
        let held = quorum.write("lock").await.unwrap();
        restart(&engines[1]);
        tokio::time::sleep(LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 3));
        engines[2].faults().stop(0);
        tokio::time::sleep(LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        assert_eq!(losses.lock().unwrap().len(), 0);

        engines[1].faults().stop(0);
        held.ended().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let lost = std::mem::take(&mut *losses.lock().unwrap());
        let [(0, loss)] = &lost[..] else { panic!("{lost:?}") };
        assert_eq!((&*loss.lock, loss.mode), ("lock", LockMode::Write));
        assert_eq!((loss.fencing_token, loss.guard_count), (held.fencing_token(), 1));
        assert!(loss.held_for > 2 * LONG);
        drop(held);
        tokio::time::sleep(LONG).await;
        assert_eq!(losses.lock().unwrap().len(), 0);
    }

    /// Nothing runs between the end of the lease and the drop, which finds the loss.
    #[tokio::test]
    async fn on_lost_is_called_for_a_quorum_whose_guard_is_dropped_too_late() {
        let engines: [_; 3] =
            std::array::from_fn(|_| EmbeddedCluster::builder().standalone().build());
        let losses: Losses = Arc::default();
        let quorum = quorum_of(&engines, |place, settings| heard(&losses, place, settings)).await;
        let lease = Duration::from_millis(500);
        let request = quorum.read("lock").lease(lease).renewal(RenewalPolicy::Manual);
        let held = taken(request).await;
        std::thread::sleep(lease);
        drop(held);
        eventually("it is heard of", async || losses.lock().unwrap().len() == 1).await;
    }

    /// The quorum goes on without a client that shut down. That is not why it is lost later.
    #[tokio::test(start_paused = true)]
    async fn on_lost_is_called_for_a_quorum_that_a_server_ends_after_a_shutdown() {
        let (engines, _) = with_clocks([0; 3]).await;
        let losses: Losses = Arc::default();
        let members = clients_of(&engines, |place, settings| heard(&losses, place, settings)).await;
        let held = Redlock::new(members.clone()).unwrap().write("lock").await.unwrap();
        members[2].shutdown(LONG).await;
        tokio::time::sleep(LONG).await;
        assert_eq!(held.state(), LeaseState::Held);
        engines[1].faults().stop(0);
        held.ended().await;
        tokio::time::sleep(LONG).await;
        assert_eq!(losses.lock().unwrap().len(), 1);
    }

    /// A release in time, and a client that shuts down, lose nothing.
    #[tokio::test(start_paused = true)]
    async fn on_lost_is_not_called_for_a_quorum_that_is_released_or_shut_down() {
        let (engines, _) = with_clocks([0; 3]).await;
        let losses: Losses = Arc::default();
        let members = clients_of(&engines, |place, settings| heard(&losses, place, settings)).await;
        let quorum = Redlock::new(members.clone()).unwrap();
        let held = quorum.write("lock").await.unwrap();
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
        let held = quorum.write("lock").await.unwrap();
        for member in &members {
            assert_eq!(member.shutdown(LONG).await, Vec::<String>::new());
        }
        held.ended().await;
        tokio::time::sleep(LONG).await;
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
        assert_eq!(losses.lock().unwrap().len(), 0);
    }

    /// Without its shutdowns, the quorum would be held, as it was without the third member.
    #[tokio::test(start_paused = true)]
    async fn on_lost_is_not_called_for_a_quorum_that_is_shut_down_without_a_member() {
        let (engines, _) = with_clocks([0; 3]).await;
        let losses: Losses = Arc::default();
        let members = clients_of(&engines, |place, settings| heard(&losses, place, settings)).await;
        let held = Redlock::new(members.clone()).unwrap().write("lock").await.unwrap();
        engines[2].faults().stop(0);
        tokio::time::sleep(LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        for member in &members {
            drop(member.shutdown(LONG).await);
        }
        held.ended().await;
        tokio::time::sleep(LONG).await;
        let of_quorum = losses.lock().unwrap().iter().filter(|(place, _)| *place == 0).count();
        assert_eq!(of_quorum, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_work_runs_while_the_lock_is_held_and_is_cancelled_at_the_loss() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let request = || quorum.write("lock");
        let held = request().run_while_held(async |guard| (guard.is_held(), guard.fencing_token()));
        assert!(matches!(held.await.unwrap(), (true, Some(_))));
        gone(&engines).await;

        // The members lose the lock, and only the release finds that.
        let late = request().run_while_held(async |_guard| engines[..2].iter().for_each(restart));
        let lost = late.await.unwrap_err();
        assert_eq!((lost.kind(), lost.lock()), (ErrorKind::LeaseLost, Some("lock")));
        gone(&engines).await;

        let shared = Arc::new(());
        let cancelled = request().run_while_held(async |_guard| {
            let _kept = shared.clone();
            engines[..2].iter().for_each(|engine| engine.faults().stop(0));
            std::future::pending::<()>().await;
        });
        let lost = cancelled.await.unwrap_err();
        assert_eq!((lost.kind(), lost.lock()), (ErrorKind::LeaseLost, Some("lock")));
        assert_eq!(Arc::strong_count(&shared), 1, "the work is dropped");

        let unreached = request().try_acquire().await.unwrap_err().kind();
        let failed = request().run_while_held(async |_guard| panic!("it is not held")).await;
        assert_eq!((failed.unwrap_err().kind(), unreached), (ErrorKind::Unavailable, unreached));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_quorum_guard_leaves_nothing_at_members_taken_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let held = quorum.write("lock").await.unwrap();
        restart(&engines[0]);
        tokio::time::sleep(LONG).await;
        assert!(is_written(&engines[0]));
        drop(held);
        gone(&engines).await;

        // Here it is dropped while a member that hangs is being taken anew.
        let timeout = Duration::from_secs(15);
        let held = quorum.write("lock").member_timeout(timeout).await.unwrap();
        restart(&engines[0]);
        engines[0].faults().pause(0);
        tokio::time::sleep(Duration::from_secs(42)).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        drop(held);
        engines[0].faults().resume(0);
        gone(&engines).await;
        tokio::time::sleep(LONG).await;
        gone(&engines).await;
    }

    /// The limits of the renewals are those of the other leases.
    #[tokio::test(start_paused = true)]
    async fn quorum_member_taken_anew_is_held_no_longer_than_the_others() {
        let seconds = Duration::from_secs;
        let (engines, quorum) = with_clocks([0; 3]).await;
        let request = || quorum.write("lock").lease(seconds(6));
        for request in
            [request().max_hold(seconds(20)), request().renewal(RenewalPolicy::Limited(5))]
        {
            let held = request.await.unwrap();
            restart(&engines[0]);
            tokio::time::sleep(seconds(8)).await;
            assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 3));
            tokio::time::sleep(seconds(12)).await;
            assert_eq!((held.state(), holding(&held)), (LeaseState::Lost, 0));
        }
    }

    /// The clocks of the other members decide the grant, and members that are left out are free
    /// again.
    #[tokio::test(start_paused = true)]
    async fn quorum_members_with_clocks_ahead_are_left_out() {
        for ahead in
            [[0, HOUR, 0, 0, 0], [2 * HOUR, 0, 0, HOUR, 0], [HOUR, 0, 0, 0, HOUR], [0, 61, 0, 0, 0]]
        {
            let (engines, quorum) = with_clocks(ahead).await;
            let right = ahead.iter().filter(|seconds| **seconds == 0).count();
            let mut last = 0;
            for _ in 0..3 {
                let held = quorum.write("lock").await.unwrap();
                assert_eq!(held.leases().len(), right, "{ahead:?}");
                let token = held.fencing_token().map(u64::from).unwrap();
                assert!(token > last && token <= engines[0].now().as_micros() as u64, "{ahead:?}");
                last = token;
                for (seconds, kept) in ahead.iter().zip(tokens(&engines)) {
                    assert_eq!(
                        kept == Some(token),
                        *seconds == 0,
                        "{ahead:?}: {kept:?} after {token}"
                    );
                }
                // The client releases in the background.
                tokio::time::sleep(Duration::from_secs(1)).await;
                for (seconds, engine) in ahead.iter().zip(&engines) {
                    assert_eq!(is_written(engine), *seconds == 0, "{ahead:?}");
                    let life: i64 =
                        engine.execute(0, &[b"PTTL", b"rwlease:lock"])[0].parse().unwrap();
                    assert!(
                        *seconds > 0 || life < 120_000,
                        "{ahead:?}: the key lives for {life} ms"
                    );
                }
                let _ = held.release().await.unwrap();
            }
        }
    }

    /// A token may be up to a minute ahead.
    #[tokio::test(start_paused = true)]
    async fn quorum_raises_tokens_to_a_clock_less_than_a_minute_ahead() {
        let (engines, quorum) = with_clocks([0, 59, 0, 0, 0]).await;
        let held = quorum.write("lock").await.unwrap();
        assert_eq!(held.leases().len(), 5);
        assert_eq!(tokens(&engines), [held.fencing_token().map(u64::from); 5]);
        let _ = held.release().await.unwrap();
    }

    /// A member that is behind all others does not take over their tokens, and is not needed.
    #[tokio::test(start_paused = true)]
    async fn quorum_with_one_clock_behind_is_granted() {
        let (engines, quorum) = with_clocks([0, 0, -HOUR, 0, 0]).await;
        let mut last = None;
        for _ in 0..3 {
            let held = quorum.write("lock").await.unwrap();
            let token = held.fencing_token().map(u64::from);
            let kept = tokens(&engines);
            assert!(token > last && kept[2] < token, "{kept:?}");
            assert_eq!([&kept[..2], &kept[3..]].concat(), [token; 4]);
            last = token;
            let _ = held.release().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The token of the member that is left out is within a minute of one other member's token.
    /// That member does not take it over, because its own tokens would then be too far ahead for
    /// the rest.
    #[tokio::test(start_paused = true)]
    async fn quorum_member_left_out_does_not_raise_the_tokens_of_others() {
        let (engines, quorum) = with_clocks([59, 0, -30, -30, 0]).await;
        engines[4].faults().stop(0);
        for _ in 0..5 {
            let held = quorum.write("lock").try_acquire().await.unwrap().unwrap();
            assert_eq!(held.leases().len(), 3);
            let kept = tokens(&engines[..4]);
            assert!(kept[0] > held.fencing_token().map(u64::from), "{kept:?}");
            assert_eq!(kept[1..], [held.fencing_token().map(u64::from); 3]);
            let _ = held.release().await.unwrap();
            // The client releases in the background.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Without the member that is ahead there is no majority. The error names that member, and
    /// nothing is held.
    #[tokio::test(start_paused = true)]
    async fn quorum_without_a_majority_names_the_member_whose_clock_is_ahead() {
        let (engines, quorum) = with_clocks([0, HOUR, 0]).await;
        engines[2].faults().stop(0);
        for tried_once in [true, false] {
            let request = quorum.write("lock");
            let error = match tried_once {
                true => request.try_acquire().await.unwrap_err(),
                false => request.await.unwrap_err(),
            };
            assert_eq!((error.kind(), error.lock()), (ErrorKind::Unavailable, Some("lock")));
            let said = error.to_string();
            assert!(said.contains("member 2 (embedded:7000) of 3"), "{said}");
            assert!(said.contains("3600 s ahead of the clock of member 1"), "{said}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!engines[..2].iter().any(is_written));
        assert!(tokens(&engines)[0] <= Some(engines[0].now().as_micros() as u64));
        // The clock does not matter to a lock without tokens.
        let _ = quorum.set_nx_mutex("lock").await.unwrap().release().await.unwrap();
    }
}
