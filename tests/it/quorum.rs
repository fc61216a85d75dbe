//! A lock on most of five deployments: real servers that die, hang, answer late or lose their
//! answers, and embedded servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Backend, Cluster, ClusterConfig, CutPoint, PollLimit, Proxy, ProxyFlow, StandaloneServer,
    connect, fields,
};
use rwlease::{
    ErrorKind, LeaseState, Locks, Quorum, QuorumAcquire, QuorumGuard, Released, RenewalPolicy,
    Retry,
};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// Long enough for a busy machine, and far shorter than the leases here.
const MEMBER: Duration = Duration::from_millis(400);

struct Bench {
    servers: Vec<StandaloneServer>,
    proxies: Vec<Proxy>,
    members: Vec<Locks>,
    quorum: Quorum,
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
        let quorum = Quorum::new(members.clone()).unwrap();
        Bench { servers, proxies, members, quorum }
    }

    /// Another client of the same five members.
    async fn another(&self) -> Quorum {
        let mut members = Vec::new();
        for proxy in &self.proxies {
            members.push(member(&proxy.url()).await);
        }
        Quorum::new(members).unwrap()
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
        let wait_limit = PollLimit::new(format!("{key} to be gone everywhere"));
        loop {
            match self.keys(key).await {
                0 => return,
                left => wait_limit.pause(format!("at {left} servers")).await.unwrap(),
            }
        }
    }
}

/// Each member has a short time to answer. The whole request has a long one, for busy machines.
async fn taken(request: QuorumAcquire) -> QuorumGuard {
    request.member_timeout(MEMBER).timeout(LONG).await.unwrap()
}

async fn tried(request: QuorumAcquire) -> Option<QuorumGuard> {
    request.member_timeout(MEMBER).try_once().await.unwrap()
}

/// Releases a lock that only three members can confirm. A member that answers late on a busy
/// machine leaves the outcome unknown.
async fn release_by_three(held: QuorumGuard) {
    assert_ne!(held.release().await.unwrap(), Released::AlreadyLost);
}

async fn member(url: &str) -> Locks {
    let settings = Locks::builder().call_timeout(Duration::from_secs(2));
    Backend::chosen().connect(settings, &[url]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_mutex_is_held_on_a_majority_and_released_everywhere() {
    let bench = Bench::new().await;
    let held = taken(bench.quorum.mutex("five")).await;
    assert!(held.leases().len() >= bench.quorum.majority());
    assert_eq!((held.state(), held.token()), (LeaseState::Held, None));
    assert!(
        held.remaining() < Duration::from_secs(30) - Duration::from_millis(300),
        "less the drift"
    );
    assert!(bench.keys("five").await >= 3);
    let other = bench.another().await;
    assert!(tried(other.mutex("five")).await.is_none());
    let retry = Retry::every(Duration::from_millis(2)).tries(3);
    let used_up = other.mutex("five").member_timeout(MEMBER).retry(retry).await.unwrap_err();
    assert_eq!((used_up.kind(), used_up.lock()), (ErrorKind::TriesUsedUp, Some("five")));
    let timed_out = other.mutex("five").timeout(Duration::from_millis(150)).await.unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    let cancelled =
        other.mutex("five").cancel_on(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    held.renew().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Released);
    bench.gone("five").await;
    drop(taken(other.mutex("five")).await);
    bench.gone("five").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_two_of_five_dead_is_granted() {
    let bench = Bench::new().await;
    bench.servers[0].kill().unwrap();
    bench.servers[3].kill().unwrap();
    for name in ["mutex", "again"] {
        let held = taken(bench.quorum.mutex(name)).await;
        assert_eq!(held.leases().len(), 3);
        release_by_three(held).await;
        bench.gone(name).await;
    }
    let writing = taken(bench.quorum.write("lock")).await;
    assert!(writing.token().is_some());
    let reading = tried(bench.quorum.read("lock")).await;
    assert!(reading.is_none());
    drop(writing);
    bench.servers[4].kill().unwrap();
    let started = tokio::time::Instant::now();
    let unavailable = bench.quorum.mutex("three").member_timeout(MEMBER).await.unwrap_err();
    assert_eq!(unavailable.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() >= Duration::from_secs(2), "it is not given up at the first try");
    bench.gone("three").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_two_of_five_hung_releases_them_when_they_wake() {
    let bench = Bench::new().await;
    // Opens all connections, so that later only the answers are missing.
    let _ = taken(bench.quorum.mutex("warm")).await.release().await.unwrap();
    bench.servers[1].freeze().unwrap();
    bench.servers[2].freeze().unwrap();
    let held = taken(bench.quorum.mutex("hang")).await;
    assert_eq!(held.leases().len(), 3);
    release_by_three(held).await;
    bench.gone("hang").await;
    bench.servers[1].thaw().unwrap();
    bench.servers[2].thaw().unwrap();
    // The servers now run the calls that arrived while they hung, or refuse them as stale. The
    // release comes after these calls.
    bench.gone("hang").await;
    let held = taken(bench.quorum.mutex("hang")).await;
    drop(held);
    bench.gone("hang").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_try_once_is_limited_by_its_timeout() {
    let bench = Bench::new().await;
    for proxy in &bench.proxies[..3] {
        proxy.replies(ProxyFlow::Slow(Duration::from_secs(1)));
    }
    let request = bench.quorum.mutex("brief").member_timeout(LONG);
    let error = request.timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Unavailable, Some("brief")));
    let request = bench.quorum.mutex("brief").member_timeout(LONG);
    let error = request.timeout(Duration::from_millis(50)).try_once().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Unavailable, Some("brief")));
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
    let wait_limit = PollLimit::new("the late members to be free");
    for member in &bench.members {
        while member.rwlock("late").unwrap().is_locked().await.unwrap() {
            wait_limit.pause("a late grant is there").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_try_once_with_lost_replies_leaves_nothing() {
    let bench = Bench::new().await;
    let _ = taken(bench.quorum.mutex("warm")).await.release().await.unwrap();
    let script = rwlease::scripts().find(|script| script.name() == "mutex/acquire").unwrap();
    for proxy in &bench.proxies[..3] {
        proxy.replies(ProxyFlow::Paused); // run, and not answered
    }
    let failed = bench.quorum.mutex("lost").member_timeout(MEMBER).try_once().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    bench.proxies.iter().for_each(Proxy::heal);
    bench.gone("lost").await;

    // The connection is cut after the script has run. The client sends the call again, for the same
    // acquisition.
    let sprung = bench.proxies[0].trap(script.digest(), CutPoint::AfterIt);
    bench.servers[3].kill().unwrap();
    bench.servers[4].kill().unwrap();
    let held = taken(bench.quorum.mutex("cut")).await;
    timeout(LONG, sprung).await.unwrap().unwrap();
    assert_eq!(held.leases().len(), 3);
    release_by_three(held).await;
    bench.gone("cut").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_lease_is_held_while_a_majority_renews() {
    let bench = Bench::new().await;
    let lease = Duration::from_secs(2);
    let request =
        || bench.quorum.mutex("renewed").lease(lease).member_timeout(MEMBER).timeout(LONG);
    let wait_limit = PollLimit::new("all five members");
    let held = loop {
        let held = request().await.unwrap();
        if held.leases().len() == 5 {
            break held;
        }
        let _ = held.release().await.unwrap();
        wait_limit.pause("a member was late").await.unwrap();
    };
    bench.servers[0].kill().unwrap();
    bench.servers[1].freeze().unwrap();
    assert!(timeout(3 * lease, held.lost()).await.is_err(), "three are enough");
    assert_eq!(held.state(), LeaseState::Held);
    held.renew().await.unwrap();
    bench.servers[2].kill().unwrap();
    timeout(LONG, held.lost()).await.unwrap();
    assert_eq!((held.state(), held.remaining()), (LeaseState::Lost, Duration::ZERO));
    assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(held.release().await.unwrap(), Released::AlreadyLost);
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_renew_revoked_by_most_members_returns_revoked() {
    let bench = Bench::new().await;
    let held = taken(bench.quorum.write("revoked")).await;
    for member in &bench.members {
        member.rwlock("revoked").unwrap().revoke().await.unwrap();
    }
    assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Revoked);
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_lease_without_renewal_ends_before_its_members() {
    let bench = Bench::new().await;
    let lease = Duration::from_secs(2);
    let held = bench
        .quorum
        .mutex("ends")
        .lease(lease)
        .renewal(RenewalPolicy::Manual)
        .member_timeout(MEMBER);
    let held = held.drift(Duration::from_millis(700)).timeout(LONG).await.unwrap();
    assert!(held.remaining() <= lease - Duration::from_millis(700));
    timeout(LONG, held.lost()).await.unwrap();
    assert!(bench.keys("ends").await >= 3, "the drift is left");
    assert!(held.leases().any(|lease| lease.is_held()));
    drop(held);
    bench.gone("ends").await;
}

/// Sets the last token of a lock at a server.
async fn set_token(server: &StandaloneServer, key: &str, token: u64) {
    let mut line: String = server.run_words(&format!("HGET {key} s")).await.unwrap();
    line.replace_range(15..31, &format!("{token:016}"));
    server.run_words::<u64>(&format!("HSET {key} s {line}")).await.unwrap();
}

/// The greatest token of a majority need not rise by itself. Here the members' last tokens are far
/// apart, and the majorities differ.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_tokens_rise_over_changing_majorities() {
    let bench = Bench::new().await;
    for (place, member) in bench.members.iter().enumerate() {
        let guard = member.rwlock("tokens").unwrap().write().await.unwrap();
        let token = guard.token();
        let _ = guard.release().await.unwrap();
        let ahead = token + 500_000 * (place as u64 * place as u64);
        set_token(&bench.servers[place], "rwlease:tokens", ahead).await;
    }
    let mut last = 0;
    for round in 0..12usize {
        // Two other members are silent in each round, so that the majorities differ.
        let silent = [round % 5, (round + 1 + round / 5) % 5];
        for place in silent {
            bench.proxies[place].close();
        }
        let held = taken(bench.quorum.write("tokens")).await;
        let token = held.token().unwrap();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        release_by_three(held).await;
        for place in silent {
            bench.proxies[place].heal();
        }
    }
}

/// One member's last token is an hour ahead, as if its clock were. The client ignores that token,
/// and does not raise the other members' tokens to it.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_member_with_a_token_far_ahead_is_left_out() {
    const FAR: usize = 3;
    let bench = Bench::new().await;
    let guard = bench.members[FAR].rwlock("far").unwrap().write().await.unwrap();
    let far = guard.token() + 3_600_000_000;
    let _ = guard.release().await.unwrap();
    set_token(&bench.servers[FAR], "rwlease:far", far).await;

    let held = loop {
        let held = taken(bench.quorum.write("far")).await;
        if held.leases().len() == 4 {
            break held;
        }
        let _ = held.release().await.unwrap(); // a member was late
    };
    let token = held.token().unwrap();
    assert!(held.leases().all(|lease| lease.token() <= token));
    assert!(token < far - 3_000_000_000, "{token} of {far}");
    for (place, server) in bench.servers.iter().enumerate().filter(|(place, _)| *place != FAR) {
        let fields = fields(server, "rwlease:far").await.unwrap();
        assert_eq!(fields["fence"].parse(), Ok(token), "member {place}");
        let left: u64 = server.run_words("PTTL rwlease:far").await.unwrap();
        assert!(left < 120_000, "member {place} keeps the lock for {left} ms");
    }
    let wait_limit = PollLimit::new("the member to be given back");
    while bench.members[FAR].rwlock("far").unwrap().is_locked().await.unwrap() {
        wait_limit.pause("locked").await.unwrap();
    }
    let _ = held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_readers_share_and_writers_exclude() {
    let bench = Bench::new().await;
    let other = bench.another().await;
    let first = taken(bench.quorum.read("shared")).await;
    let second = taken(other.read("shared")).await;
    assert!(second.token() > first.token());
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
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (quorum, inside) = (bench.another().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..10 {
                let request = quorum
                    .write("hot")
                    .member_timeout(MEMBER)
                    .retry(Retry::every(Duration::from_millis(20)));
                let held = request.timeout(2 * LONG).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                let token = held.token().unwrap();
                assert!(token > last, "{token} after {last}");
                last = token;
                tokio::time::sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
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

/// A restarted server has lost its data. The guard takes it anew before the next one is restarted.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_guard_of_members_restarted_in_turn_is_held() {
    let (mut servers, mut members) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = StandaloneServer::start().await.unwrap();
        members.push(member(&server.url()).await);
        servers.push(server);
    }
    let quorum = Quorum::new(members).unwrap();
    let lease = Duration::from_secs(6);
    let held = taken(quorum.mutex("restarts").lease(lease)).await;
    let exists = async |server: &StandaloneServer| {
        server.run_words::<bool>("EXISTS restarts").await.unwrap()
    };
    for server in &servers {
        server.restart().await.unwrap();
        let wait_limit = PollLimit::new("the member to be taken anew");
        while !exists(server).await {
            wait_limit.pause("not yet").await.unwrap();
        }
        while !held.leases().all(|lease| lease.is_held()) {
            wait_limit.pause("not counted yet").await.unwrap();
        }
        assert!(held.is_held());
    }
    assert_ne!(held.release().await.unwrap(), Released::AlreadyLost);
    let wait_limit = PollLimit::new("the lock to be gone");
    for server in &servers {
        while exists(server).await {
            wait_limit.pause("at a member").await.unwrap();
        }
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
    assert_eq!(Quorum::new(members[..2].to_vec()).unwrap_err().kind(), ErrorKind::Invalid);
    let quorum = Quorum::new(members).unwrap();
    assert_eq!(quorum.majority(), 2);
    let held = quorum.write("mixed").member_timeout(MEMBER).timeout(LONG).await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Released);
    assert_eq!(quorum.write("").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[cfg(feature = "embedded")]
mod embedded {
    use rwlease::Lease;
    use rwlease::embedded::EmbeddedCluster;

    use super::*;

    async fn engines() -> (Vec<EmbeddedCluster>, Quorum) {
        let engines: Vec<EmbeddedCluster> =
            (0..5).map(|_| EmbeddedCluster::builder().standalone().build()).collect();
        let mut members = Vec::new();
        for engine in &engines {
            let settings = Locks::builder().call_timeout(Duration::from_secs(2));
            members.push(settings.connect_embedded(engine).await.unwrap());
        }
        (engines, Quorum::new(members).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_with_two_of_five_gone_is_renewed_and_released() {
        let (engines, quorum) = engines().await;
        let held = quorum.write("lock").await.unwrap();
        let token = held.token().unwrap();
        engines[0].faults().stop(0);
        engines[1].faults().pause(0);
        tokio::time::sleep(LONG).await;
        assert_eq!(held.state(), LeaseState::Held, "renewed on three");
        assert_eq!(held.release().await.unwrap(), Released::Released, "by three, a majority");
        let again = quorum.write("lock").await.unwrap();
        assert_eq!(again.leases().len(), 3);
        assert!(again.token() > Some(token));
        engines[2].faults().stop(0);
        again.lost().await;
        assert_eq!(again.state(), LeaseState::Lost);
        assert_eq!(
            quorum.mutex("other").try_once().await.unwrap_err().kind(),
            ErrorKind::Unavailable
        );
    }

    /// The members' clocks are far apart. In between, the lock is idle for longer than the members
    /// remember it.
    #[tokio::test(start_paused = true)]
    async fn quorum_tokens_rise_over_members_with_different_clocks() {
        let engines: Vec<EmbeddedCluster> = (0..5u64)
            .map(|place| {
                let epoch =
                    Duration::from_secs(1_735_689_600) + Duration::from_millis(1_900 * place);
                EmbeddedCluster::builder().standalone().start_time(epoch).build()
            })
            .collect();
        let mut members = Vec::new();
        for engine in &engines {
            members.push(Locks::builder().connect_embedded(engine).await.unwrap());
        }
        let quorum = Quorum::new(members).unwrap();
        let mut tokens = std::collections::BTreeSet::new();
        for round in 0..20usize {
            for place in [round % 5, (round + 2) % 5] {
                engines[place].faults().pause(0);
            }
            let held = quorum.write("lock").await.unwrap();
            let token = held.token().unwrap();
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
    async fn with_clocks<const N: usize>(ahead: [i64; N]) -> (Vec<EmbeddedCluster>, Quorum) {
        let (engines, _, quorum) = with_members(ahead).await;
        (engines, quorum)
    }

    async fn with_members<const N: usize>(
        ahead: [i64; N],
    ) -> (Vec<EmbeddedCluster>, Vec<Locks>, Quorum) {
        let epoch = Duration::from_secs(1_735_689_600);
        let (mut engines, mut members) = (Vec::new(), Vec::new());
        for seconds in ahead {
            let engine = EmbeddedCluster::builder().standalone().start_time(epoch).build();
            engine.faults().set_clock(0, seconds * 1_000);
            let settings = Locks::builder().call_timeout(Duration::from_secs(2));
            members.push(settings.connect_embedded(&engine).await.unwrap());
            engines.push(engine);
        }
        let quorum = Quorum::new(members.clone()).unwrap();
        (engines, members, quorum)
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
        let writer = engine.execute(0, &[b"HEXISTS", b"rwlease:lock", b"writer"]);
        writer == ["1"] || line(engine).starts_with("2W")
    }

    const HOUR: i64 = 3_600;

    /// The server forgets the lock, as if it were restarted without persistence.
    fn restart(engine: &EmbeddedCluster) {
        engine.faults().stop(0);
        engine.faults().flush_data(0);
        engine.faults().start(0);
    }

    fn holding(held: &QuorumGuard) -> usize {
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
        assert_eq!(held.release().await.unwrap(), Released::Released);
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
        assert_eq!(held.release().await.unwrap(), Released::Released);
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_raises_the_token_of_a_member_taken_anew() {
        let (engines, quorum) = with_clocks([0, -50, 0]).await;
        let held = quorum.write("lock").await.unwrap();
        restart(&engines[1]);
        tokio::time::sleep(Duration::from_secs(21)).await;
        assert_eq!(holding(&held), 3);
        assert!(tokens(&engines)[1] >= held.token());
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
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!engines[..2].iter().any(is_written));
    }

    /// The members are revoked one after the other, so that each lease ends while the others are a
    /// majority.
    #[tokio::test(start_paused = true)]
    async fn quorum_guard_does_not_take_revoked_members_anew() {
        let (engines, members, quorum) = with_members([0; 3]).await;
        let held = quorum.write("lock").await.unwrap();
        members[0].rwlock("lock").unwrap().revoke().await.unwrap();
        tokio::time::sleep(2 * LONG).await;
        assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 2));
        members[1].rwlock("lock").unwrap().revoke().await.unwrap();
        timeout(LONG, held.lost()).await.unwrap();
        drop(held);
        gone(&engines).await;
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_guard_that_is_lost_takes_no_member_anew() {
        let (engines, quorum) = with_clocks([0; 3]).await;
        let held = quorum.write("lock").await.unwrap();
        // They stay away until the loss: a restarted member could be taken anew before it.
        engines[..2].iter().for_each(|engine| engine.faults().stop(0));
        held.lost().await;
        for engine in &engines[..2] {
            engine.faults().flush_data(0);
            engine.faults().start(0);
        }
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!held.is_held() && !engines[..2].iter().any(is_written));
        }
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!engines[..2].iter().any(is_written));
    }

    /// The drift is so long that the leases are renewed after the lock was lost here.
    #[tokio::test(start_paused = true)]
    async fn quorum_guard_that_was_lost_stays_lost() {
        let (_engines, quorum) = with_clocks([0; 3]).await;
        let held = quorum.write("lock").drift(Duration::from_secs(25)).await.unwrap();
        held.lost().await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!held.is_held() && held.leases().all(|lease| lease.is_held()));
        }
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(held.release().await.unwrap(), Released::AlreadyLost);
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
        for (request, limit) in [
            (request().max_hold(seconds(20)), seconds(20)),
            (request().renewal(RenewalPolicy::Limited(5)), seconds(20)),
        ] {
            let held = request.await.unwrap();
            restart(&engines[0]);
            tokio::time::sleep(seconds(8)).await;
            assert_eq!((held.state(), holding(&held)), (LeaseState::Held, 3));
            tokio::time::sleep(limit - seconds(8)).await;
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
                let token = held.token().unwrap();
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
        assert_eq!(tokens(&engines), [held.token(); 5]);
        let _ = held.release().await.unwrap();
    }

    /// A member that is behind all others does not take over their tokens, and is not needed.
    #[tokio::test(start_paused = true)]
    async fn quorum_with_one_clock_behind_is_granted() {
        let (engines, quorum) = with_clocks([0, 0, -HOUR, 0, 0]).await;
        let mut last = None;
        for _ in 0..3 {
            let held = quorum.write("lock").await.unwrap();
            assert!(held.token() > last);
            last = held.token();
            let kept = tokens(&engines);
            assert!(kept[2] < last, "{kept:?}");
            assert!(
                kept.iter().enumerate().all(|(place, kept)| place == 2 || *kept == last),
                "{kept:?}"
            );
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
            let held = quorum.write("lock").try_once().await.unwrap().unwrap();
            assert_eq!(held.leases().len(), 3);
            let kept = tokens(&engines[..4]);
            assert!(kept[0] > held.token(), "{kept:?}");
            assert_eq!(kept[1..], [held.token(); 3]);
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
                true => request.try_once().await.unwrap_err(),
                false => request.await.unwrap_err(),
            };
            assert_eq!((error.kind(), error.lock()), (ErrorKind::Unavailable, Some("lock")));
            let said = error.to_string();
            assert!(said.contains("member 2 (embedded:7000) of 3"), "{said}");
            assert!(said.contains("3600 s ahead of the clock of member 1"), "{said}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for engine in &engines[..2] {
            assert!(!is_written(engine));
        }
        assert!(tokens(&engines)[0] <= Some(engines[0].now().as_micros() as u64));
        // The clock does not matter to a lock without tokens.
        let _ = quorum.mutex("lock").await.unwrap().release().await.unwrap();
    }
}
