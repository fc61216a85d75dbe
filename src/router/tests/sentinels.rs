//! A server that sentinels watch: which sentinel is believed, and that answers of a former master
//! do not count.

mod foreign_sentinels;

use super::*;
use crate::backend::PubSubEvent;
use crate::backend::fake::FakeSentinel;
use crate::router::SentinelTargets;
use crate::router::cluster::refresh::RefreshSource;
use crate::router::connections::unexpected_server::UnexpectedServer;

const SENTINELS: [&str; 3] = ["s1", "s2", "s3"];

/// The knowledge of one of three sentinels.
fn knows(epoch: u64, master: &'static str) -> FakeSentinel {
    FakeSentinel { epoch, master: Some(master), peers: &SENTINELS, ..FakeSentinel::default() }
}

/// Three sentinels, `a` the master and `b` its replica.
fn servers() -> FakeCluster {
    let fakes = FakeCluster::new(&[]);
    for host in ["a", "b"] {
        fakes.set_standalone(host);
    }
    fakes.set_replica("b", true);
    SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, knows(1, "a")));
    fakes
}

fn settings_by(fakes: &FakeCluster, sentinels: &[&str]) -> RouterConfig {
    RouterConfig {
        sentinels: Some(SentinelTargets {
            master: "m".into(),
            nodes: sentinels.iter().map(|host| address(host)).collect(),
            connector: Arc::new(fakes.clone()),
        }),
        // The map is refreshed by other means.
        refresh_interval: Duration::from_secs(3600),
        scripts: scripts(),
        ..RouterConfig::default()
    }
}

async fn connect_by(fakes: &FakeCluster, sentinels: &[&str]) -> Result<Arc<Router>, Error> {
    let settings = settings_by(fakes, sentinels);
    Router::connect(Arc::new(fakes.clone()), TestClock::start(), settings).await
}

/// A client of the servers.
async fn watched() -> Bench {
    watched_by(servers()).await
}

async fn watched_by(fakes: FakeCluster) -> Bench {
    let router = connect_by(&fakes, &SENTINELS).await.unwrap();
    Bench { fakes, clock: router.clock.clone(), router }
}

impl Bench {
    /// Makes `b` the master, as these sentinels know.
    fn fail_over(&self, known_by: &[&str]) {
        self.fakes.set_replica("b", false);
        for sentinel in known_by {
            self.fakes.set_sentinel(sentinel, knows(2, "b"));
        }
    }

    /// Notifies the subscribers of the sentinels.
    fn announce(&self) {
        for sentinel in SENTINELS {
            let (channel, payload) = ("+switch-master".into(), "m a 1 b 1".into());
            self.fakes.notify(sentinel, PubSubEvent::Message { channel, payload });
        }
    }

    /// Fails over, as one sentinel alone knows, and makes a call by this router.
    async fn must_follow_a_failover(&self, router: &Router) {
        self.fail_over(&["s3"]);
        self.fakes.refuse("a");
        router.call_within("k", 5).await.unwrap();
        assert_eq!(self.fakes.count("b", "EVAL"), 1);
    }

    fn master(&self) -> String {
        self.router.masters()[0].host.to_string()
    }
}

/// The reason in an error for which a server was refused.
fn stranger(error: &dyn std::error::Error) -> Option<UnexpectedServer> {
    let mut source = error.source();
    while let Some(found) = source {
        if let Some(stranger) = found.downcast_ref::<UnexpectedServer>() {
            return Some(*stranger);
        }
        source = found.source();
    }
    None
}

#[tokio::test(start_paused = true)]
async fn address_translator_maps_addresses_from_sentinels() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a.out");
    let run_id = Some("a.out-0123456789abcdef");
    for (outside, id) in [("s1.out", "s1"), ("s2.out", "s2"), ("s3.out", "s3")] {
        let sentinel = FakeSentinel { id: Some(id), run_id, ..knows(1, "a") };
        fakes.set_sentinel(outside, sentinel);
    }
    let settings = RouterConfig {
        address_translator: Some(Arc::new(|host, port| (format!("{host}.out"), port))),
        ..settings_by(&fakes, &["s1.out"])
    };
    let clock = TestClock::start();
    let router = Router::connect(Arc::new(fakes.clone()), clock.clone(), settings).await.unwrap();
    let deadline = clock.now().saturating_add(Duration::from_secs(1));
    assert_eq!(router.call(&call("k"), deadline).await.unwrap().server, address("a.out"));
    for outside in ["s1.out", "s2.out", "s3.out"] {
        assert!(fakes.count(outside, "SENTINEL") > 0, "{outside}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_sentinel_knows_is_told() {
    let fakes = servers();
    fakes.set_sentinel("s1", FakeSentinel::default());
    connect_by(&fakes, &["s1", "s2"]).await.unwrap();
    SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, FakeSentinel::default()));
    let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("`m`"), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// The first answer does not say how many sentinels there are, and the others are slow.
#[tokio::test(start_paused = true)]
async fn connect_with_one_sentinel_without_master_asks_the_others() {
    let fakes = servers();
    fakes.set_sentinel("s1", FakeSentinel::default());
    for sentinel in ["s2", "s3"] {
        let slow = FakeSentinel { takes: Duration::from_millis(110), ..knows(1, "a") };
        fakes.set_sentinel(sentinel, slow);
    }
    let router = connect_by(&fakes, &SENTINELS).await.unwrap();
    assert_eq!(router.masters(), [address("a")]);
}

/// It was not configured, and names only the others.
#[tokio::test(start_paused = true)]
async fn the_last_sentinel_that_answers_is_asked_again() {
    let watched = watched().await;
    let router = connect_by(&watched.fakes, &["s1"]).await.unwrap();
    for sentinel in ["s1", "s2"] {
        watched.fakes.refuse(sentinel);
    }
    for _ in 0..3 {
        router.topology.refresh(RefreshSource::Several).await;
    }
    watched.must_follow_a_failover(&router).await;
}

/// Two of them get other addresses, as containers do, and the client learns the new ones from the
/// third.
#[tokio::test(start_paused = true)]
async fn sentinels_that_moved_are_asked_when_no_configured_address_answers() {
    const MOVED: [&str; 3] = ["s1@t1", "s2@t2", "s3"];
    let watched = watched().await;
    let set = |epoch, master| {
        for (host, id) in [("t1", "s1"), ("t2", "s2"), ("s3", "s3")] {
            let knows = FakeSentinel { id: Some(id), peers: &MOVED, ..knows(epoch, master) };
            watched.fakes.set_sentinel(host, knows);
        }
    };
    set(1, "a");
    watched.fakes.refuse("s1");
    watched.fakes.refuse("s2");
    watched.router.topology.refresh(RefreshSource::Several).await;
    watched.fakes.refuse("s3");
    watched.fakes.set_replica("b", false);
    set(2, "b");
    watched.fakes.refuse("a");
    watched.call_within("k", 5).await.unwrap();
    assert_eq!(watched.calls(), (0, 1));
}

/// It knows no other sentinel until it has discovered them again.
#[tokio::test(start_paused = true)]
async fn sentinel_reset_does_not_forget_the_other_sentinels() {
    let watched = watched().await;
    let router = connect_by(&watched.fakes, &["s1"]).await.unwrap();
    for sentinel in ["s2", "s3"] {
        watched.fakes.stop(sentinel, true);
    }
    watched.fakes.set_sentinel("s1", FakeSentinel { peers: &[], ..knows(1, "a") });
    router.topology.refresh(RefreshSource::Several).await;
    watched.fakes.refuse("s1");
    for sentinel in ["s2", "s3"] {
        watched.fakes.stop(sentinel, false);
    }
    watched.must_follow_a_failover(&router).await;
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_is_queried_over_the_connection_that_there_is() {
    let watched = watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let dials = || SENTINELS.map(|sentinel| watched.fakes.dials(sentinel));
    watched.router.topology.refresh(RefreshSource::Several).await;
    let before = dials();
    for _ in 0..5 {
        watched.router.topology.refresh(RefreshSource::Several).await;
    }
    assert_eq!(dials(), before);
}

#[tokio::test(start_paused = true)]
async fn sentinels_that_cannot_be_reached_are_told_apart() {
    let fakes = servers();
    for door in [DialBehavior::Refuse, DialBehavior::Hang, DialBehavior::Unreachable] {
        SENTINELS.iter().for_each(|sentinel| fakes.set_dial_behavior(sentinel, door));
        let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
        assert!(error.to_string().starts_with("no sentinel can be used"), "{door:?}: {error:?}");
        let named = error.to_string();
        assert!(named.ends_with("(tried s1:1, s2:1, s3:1)"), "{named}");
    }
    SENTINELS
        .iter()
        .for_each(|sentinel| fakes.set_dial_behavior(sentinel, DialBehavior::WrongPassword));
    let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    let error = connect_by(&fakes, &["a"]).await.map(drop).unwrap_err();
    assert!(error.to_string().starts_with("no sentinel can be used"), "it is none: {error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_highest_epoch_counts_when_a_client_connects() {
    let fakes = servers();
    fakes.set_replica("b", false);
    for behind in [["s1", "s2"], ["s2", "s3"], ["s1", "s3"]] {
        SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, knows(2, "b")));
        behind.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, knows(1, "a")));
        for named in [&SENTINELS[..], &behind[..1]] {
            let router = connect_by(&fakes, named).await.unwrap();
            assert_eq!(router.masters(), [address("b")], "{behind:?}");
        }
    }
    // It takes a little longer to answer than most.
    let slow = FakeSentinel { takes: Duration::from_millis(20), ..knows(2, "b") };
    for (sentinel, knows) in SENTINELS.iter().zip([knows(1, "a"), knows(1, "a"), slow]) {
        fakes.set_sentinel(sentinel, knows);
    }
    let router = connect_by(&fakes, &SENTINELS).await.unwrap();
    assert_eq!(router.masters(), [address("b")]);
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_masters_are_none_of_ours() {
    let watched = watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = || -> usize { SENTINELS.iter().map(|s| watched.fakes.count(s, "SENTINEL")).sum() };
    let before = asked();
    for sentinel in SENTINELS {
        let (channel, payload) = ("+switch-master".into(), "mm a 1 b 1".into());
        watched.fakes.notify(sentinel, PubSubEvent::Message { channel, payload });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked(), before);
    watched.announce();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(asked() > before);
}

#[tokio::test(start_paused = true)]
async fn a_change_in_silence_is_found_when_a_subscription_is_made_anew() {
    let watched = watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    SENTINELS.iter().for_each(|sentinel| watched.fakes.stop(sentinel, true));
    tokio::time::sleep(Duration::from_secs(8)).await;
    watched.fail_over(&SENTINELS);
    SENTINELS.iter().for_each(|sentinel| watched.fakes.stop(sentinel, false));
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(watched.master(), "b");
}

#[tokio::test(start_paused = true)]
async fn sentinels_are_asked_when_the_master_says_that_it_is_a_replica_now() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    watched.fail_over(&["s1"]);
    watched.fakes.set_replica("a", true);
    watched
        .fakes
        .queue_replies("a", [refusal("READONLY You can't write against a read only replica.")]);
    watched.call_within("k", 1).await.unwrap();
    assert_eq!(watched.calls(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_master_that_stands_still_is_left_when_the_sentinels_name_another() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    watched.fakes.stop("a", true);
    watched.call_within("k", 3).await.unwrap_err();
    watched.fail_over(&["s1"]);
    watched.call_within("k", 3).await.unwrap();
    assert_eq!(watched.calls().1, 1);
}

/// It was restarted as a master, before the sentinels made it a replica.
#[tokio::test(start_paused = true)]
async fn a_former_master_gets_no_calls_though_it_says_that_it_is_one() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    watched.fail_over(&["s1"]);
    watched.fakes.set_dial_behavior("b", DialBehavior::Refuse);
    watched.fakes.restart("a", "again");
    let error = watched.call_within("k", 3).await.unwrap_err();
    assert_eq!(watched.calls(), (1, 0), "{error:?}");
    // Nor while all sentinels that answer are behind.
    watched.fakes.refuse("s1");
    watched.call_within("k", 3).await.unwrap_err();
    assert_eq!(watched.calls(), (1, 0));
    watched.fakes.set_dial_behavior("b", DialBehavior::Accept);
    watched.call_within("k", 3).await.unwrap();
    assert_eq!(watched.calls(), (1, 1));
}

/// Its run id cannot tell, since the sentinels do not know it.
#[tokio::test(start_paused = true)]
async fn a_former_master_is_known_by_its_address() {
    let unknown = |epoch, master| FakeSentinel { run_id: Some(""), ..knows(epoch, master) };
    let fakes = servers();
    SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, unknown(1, "a")));
    let watched = watched_by(fakes).await;
    watched.call_within("k", 1).await.unwrap();
    watched.fakes.set_replica("b", false);
    SENTINELS.iter().for_each(|sentinel| watched.fakes.set_sentinel(sentinel, unknown(2, "b")));
    watched.fakes.break_connections("a");
    watched.call_within("k", 3).await.unwrap();
    assert_eq!(watched.calls(), (1, 1));
}

/// The sentinel that named it knows no better, and it became a replica long ago.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_named_is_not_connected_to() {
    let fakes = servers();
    fakes.set_replica("a", true);
    let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
    assert_eq!(stranger(&error), Some(UnexpectedServer::Replica), "{error:?}");
    fakes.set_replica("a", false);
    connect_by(&fakes, &SENTINELS).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_needs_the_word_of_a_sentinel() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    SENTINELS.iter().for_each(|sentinel| watched.fakes.refuse(sentinel));
    watched.call_within("k", 1).await.expect("the connection that is open serves on");
    watched.fakes.break_connections("a");
    watched.call_within("k", 3).await.unwrap_err();
    assert_eq!(watched.calls(), (2, 0));
    watched.fakes.set_dial_behavior("s2", DialBehavior::Accept);
    watched.call_within("k", 3).await.unwrap();
    assert_eq!(watched.calls(), (3, 0));
}

/// The address leads to another server than for the sentinels, for example in a network of
/// containers.
#[tokio::test(start_paused = true)]
async fn another_process_than_the_sentinels_know_is_a_stranger() {
    let fakes = servers();
    let elsewhere = FakeSentinel { run_id: Some("another-0123456789"), ..knows(1, "a") };
    SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, elsewhere));
    let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
    assert_eq!(stranger(&error), Some(UnexpectedServer::OtherProcess), "{error:?}");
    let unknown = FakeSentinel { run_id: Some(""), ..knows(1, "a") };
    SENTINELS.iter().for_each(|sentinel| fakes.set_sentinel(sentinel, unknown));
    connect_by(&fakes, &SENTINELS).await.unwrap();
}

/// Sentinels learn its new run id some seconds later.
#[tokio::test(start_paused = true)]
async fn a_master_that_was_restarted_serves_on_while_the_sentinels_name_it() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    let before = FakeSentinel { run_id: Some("a-0123456789abcdef"), ..knows(1, "a") };
    SENTINELS.iter().for_each(|sentinel| watched.fakes.set_sentinel(sentinel, before));
    watched.fakes.restart("a", "again");
    watched.call_within("k", 3).await.unwrap();
    assert_eq!(watched.calls(), (2, 0));
}

/// It may have run after the other one took over, and then it is lost.
#[tokio::test(start_paused = true)]
async fn an_answer_of_a_former_master_does_not_count() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let late = Duration::from_millis(400);
    let answer = script_reply(watched.fakes.server_ms());
    watched.fakes.queue_replies("a", [FakeReply::Delayed(late, answer)]);
    let calling = watched.call_within("k", 3);
    let changing = async {
        tokio::time::sleep(late / 4).await;
        watched.fail_over(&["s3"]);
        watched.announce();
    };
    let (answer, ()) = tokio::join!(calling, changing);
    let answer = answer.unwrap();
    assert_eq!(answer.server, address("b"));
    assert_eq!(answer.in_doubt, Doubt::Unbounded, "the first attempt may have been carried out");
    assert_eq!(watched.calls(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_former_master_can_be_the_master_again() {
    let watched = watched().await;
    watched.call_within("k", 1).await.unwrap();
    watched.fail_over(&["s1"]);
    watched.announce();
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.call_within("k", 1).await.unwrap();
    watched.fakes.set_sentinel("s2", knows(3, "a"));
    watched.announce();
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.call_within("k", 1).await.unwrap();
    assert_eq!(watched.calls(), (2, 1));
    assert_eq!(watched.fakes.dials("a"), 2, "the connection of before does not serve");
}

#[tokio::test(start_paused = true)]
async fn sentinels_that_cannot_be_reached_are_dialled_more_and_more_seldom() {
    let watched = watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    SENTINELS.iter().for_each(|sentinel| watched.fakes.refuse(sentinel));
    let dials_in = async |seconds| {
        let dials = || -> usize { SENTINELS.iter().map(|it| watched.fakes.dials(it)).sum() };
        let before = dials();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        dials() - before
    };
    let first = dials_in(1).await;
    let ten = dials_in(10).await;
    assert!(ten < 50, "two subscriptions dial, each every 0.5 to 1 s: {ten}");
    assert!(first > ten / 5, "{first}, {ten}");
}

/// A sentinel that restarts ends the subscriptions of all clients at once.
#[tokio::test(start_paused = true)]
async fn sentinel_subscriptions_that_end_together_are_dialled_one_after_the_other() {
    const CLIENTS: usize = 20;
    let (fakes, mut routers) = (servers(), Vec::new());
    for _ in 0..CLIENTS {
        routers.push(connect_by(&fakes, &SENTINELS).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let dials = || -> usize { SENTINELS.iter().map(|it| fakes.dials(it)).sum() };
    let before = dials();
    for sentinel in SENTINELS {
        fakes.notify(sentinel, PubSubEvent::Unsubscribed { channel: "+switch-master".into() });
    }
    tokio::time::sleep(Duration::from_millis(25)).await;
    let soon = dials() - before;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(dials() - before, 2 * CLIENTS);
    assert!(soon < CLIENTS, "{soon} of {} in 25 ms", 2 * CLIENTS);
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_that_stands_still_holds_up_nobody() {
    let watched = watched().await;
    watched.fakes.stop("s1", true);
    watched.fail_over(&["s2", "s3"]);
    watched.fakes.refuse("a");
    watched.call_within("k", 1).await.unwrap();
    assert_eq!(watched.calls().1, 1);
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_after_failover_goes_to_the_new_master() {
    let watched = watched().await;
    let confirmed = async |seconds| {
        let deadline = watched.clock.now().saturating_add(Duration::from_secs(seconds));
        watched.router.call_replicated(&call("k"), ONE_REPLICA, deadline).await
    };
    assert_eq!(confirmed(1).await.unwrap().server, address("a"));
    watched.fail_over(&["s1"]);
    watched.announce();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(confirmed(1).await.unwrap().server, address("b"));
}

#[tokio::test(start_paused = true)]
async fn router_close_ends_sentinel_subscriptions_and_queries() {
    let watched = watched().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let subscribers = || SENTINELS.map(|sentinel| watched.fakes.subscribers(sentinel));
    assert_eq!(subscribers(), [1, 1, 0]);
    watched.router.close();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(subscribers(), [0; 3]);
    let questions =
        || -> usize { SENTINELS.iter().map(|s| watched.fakes.count(s, "SENTINEL")).sum() };
    let (asked, dials) = (questions(), watched.fakes.dials("s1"));
    // For example one that was under way.
    watched.router.topology.refresh(RefreshSource::Several).await;
    assert_eq!((questions(), watched.fakes.dials("s1")), (asked, dials));
}

/// They lost their files, so that their ids and epochs are new.
#[tokio::test(start_paused = true)]
async fn sentinels_that_were_set_up_anew_are_believed_again() {
    const ANEW: [&str; 3] = ["n1", "n2", "n3"];
    let watched = watched().await;
    let set_up = |master| {
        for (sentinel, anew) in SENTINELS.iter().zip(ANEW) {
            let knows = FakeSentinel { id: Some(anew), peers: &ANEW, ..knows(0, master) };
            watched.fakes.set_sentinel(sentinel, knows);
            watched.fakes.set_name(anew, &[sentinel]);
        }
    };
    set_up("a");
    for _ in 0..3 {
        watched.router.topology.refresh(RefreshSource::Several).await;
    }
    assert_eq!(watched.master(), "a");
    watched.call_within("k", 1).await.unwrap();
    watched.fakes.set_replica("b", false);
    set_up("b");
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watched.router.topology.refresh(RefreshSource::Several).await;
    }
    assert_eq!(watched.master(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_with_a_malformed_master_tells_of_the_others_all_the_same() {
    let fakes = servers();
    fakes.set_sentinel("s1", FakeSentinel { bad_master: true, ..knows(1, "a") });
    let router = connect_by(&fakes, &["s1"]).await.unwrap();
    assert_eq!(router.masters(), [address("a")]);
    SENTINELS.iter().for_each(|sentinel| {
        fakes.set_sentinel(sentinel, FakeSentinel { bad_master: true, ..knows(1, "a") })
    });
    let error = connect_by(&fakes, &SENTINELS).await.map(drop).unwrap_err();
    assert!(error.to_string().starts_with("no sentinel can be used"), "{error:?}");
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.contains("malformed master address"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn call_waits_for_silent_sentinels_beside_one_that_refuses_the_user() {
    let bench = watched().await;
    bench.call("k").await.unwrap();
    bench.fakes.set_dial_behavior("s1", DialBehavior::WrongPassword);
    bench.fakes.break_connections("s1");
    for silent in ["s2", "s3"] {
        bench.fakes.stop(silent, true);
    }
    bench.fakes.break_connections("a");
    let resume = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        for silent in ["s2", "s3"] {
            bench.fakes.stop(silent, false);
        }
    };
    let (reply, ()) = tokio::join!(bench.call_within("k", 10), resume);
    assert_eq!(reply.unwrap().server, address("a"));
}
