//! Servers without a cluster: how the client finds the first one again by a name or an address, and
//! which server replaces it.

use super::*;
use crate::backend::fake::slots;
use crate::router::address_translation::AddressTranslator;
use crate::router::cluster::cluster_slots;
use crate::router::cluster::membership::Membership;
use crate::router::cluster::node_view::{ClusterView, NodeView, ReportedTopology};
use crate::router::connections::limits::ConnectionLimits;
use crate::router::connections::server_info::ServerProcess;
use crate::router::connections::unexpected_server::UnexpectedServer;
use crate::router::tests::events::LockProbe;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connect_timeout: Duration::from_secs(1),
    response_timeout: Duration::from_millis(500),
    max_in_flight: 1,
};

/// Two servers without a cluster that have the name `both`; the client met `a`.
async fn of_two() -> Bench {
    let fakes = two();
    fakes.set_name("both", &["a", "b"]);
    Bench::of(fakes, &["both"]).await
}

/// `a` and `b`, without a cluster.
fn two() -> FakeCluster {
    let fakes = FakeCluster::new(&[]);
    for host in ["a", "b"] {
        fakes.set_standalone(host);
    }
    fakes
}

#[tokio::test(start_paused = true)]
async fn connect_with_one_of_two_seeds_silent_fails() {
    let fakes = two();
    for (stopped, seeds) in [("a", ["a", "b"]), ("b", ["a", "b"]), ("a", ["b", "a"])] {
        fakes.stop(stopped, true);
        assert!(connect(&fakes, &seeds).await.is_err(), "{stopped} stands still");
        fakes.stop(stopped, false);
    }
}

#[tokio::test(start_paused = true)]
async fn host_name_of_two_servers_keeps_the_first_until_it_is_gone() {
    let name = of_two().await;
    name.call_within("k", 1).await.unwrap();
    // The name leads to the other one now, but the first one is still there.
    name.fakes.set_name("both", &["b", "a"]);
    name.fakes.break_connections("a");
    name.call_within("k", 1).await.unwrap();
    assert_eq!(name.calls(), (2, 0));
    // It is frozen: it cannot be known to be gone.
    name.fakes.stop("a", true);
    name.fakes.break_connections("a");
    name.call_within("k", 3).await.unwrap_err();
    assert_eq!(name.fakes.count("b", "EVAL"), 0);
    // It is gone.
    name.fakes.refuse("a");
    name.call_within("k", 10).await.unwrap();
    assert_eq!(name.fakes.count("b", "EVAL"), 1);
}

#[tokio::test(start_paused = true)]
async fn plain_and_confirmed_calls_leave_a_server_together_when_its_name_has_moved() {
    for is_confirmed_first in [false, true] {
        let name = of_two().await;
        let call_once = async |is_confirmed: bool| {
            let confirmation = if is_confirmed { ONE_REPLICA } else { Confirmation::default() };
            name.router.call_replicated(&call("k"), confirmation, name.within(3)).await
        };
        call_once(true).await.unwrap();
        call_once(false).await.unwrap();
        name.fakes.set_name("both", &["b"]);
        name.fakes.queue_replies("a", [FakeReply::Hang]);
        call_once(is_confirmed_first).await.unwrap();
        name.fakes.log("a");
        name.fakes.log("b");
        call_once(!is_confirmed_first).await.unwrap();
        let scripts = |host| name.fakes.count(host, "EVAL");
        assert_eq!((scripts("a"), scripts("b")), (0, 1), "confirmed first: {is_confirmed_first}");
    }
}

/// The former primary is fenced, and still answers over the connection that there is.
#[tokio::test(start_paused = true)]
async fn server_that_refuses_for_good_is_left_when_its_name_has_moved() {
    for reply in ["NOREPLICAS x", "MASTERDOWN x", "LOADING x"] {
        for is_confirmed in [false, true] {
            let name = of_two().await;
            let call_once = async || {
                let confirmation = if is_confirmed { ONE_REPLICA } else { Confirmation::default() };
                name.router.call_replicated(&call("k"), confirmation, name.within(3)).await
            };
            call_once().await.unwrap();
            name.fakes.set_reply("a", refusal(reply));
            let dials = name.fakes.dials("a");
            call_once().await.unwrap_err();
            let dials = name.fakes.dials("a") - dials;
            let max_dials = if is_confirmed { 24 } else { 12 }; // of each pool
            assert!((1..max_dials).contains(&dials), "{dials} in 3 s: {reply}, {is_confirmed}");
            name.fakes.set_name("both", &["b"]);
            let answer = call_once().await;
            assert!(answer.is_ok(), "{answer:?}: {reply}, {is_confirmed}");
            assert_eq!(name.fakes.count("b", "EVAL"), 1);
        }
    }
}

/// No such call lasts until the pauses between its attempts are long.
#[tokio::test(start_paused = true)]
async fn server_that_refuses_short_calls_is_left_when_its_name_has_moved() {
    let name = of_two().await;
    name.call_within("k", 3).await.unwrap();
    name.fakes.set_reply("a", refusal("NOREPLICAS x"));
    name.fakes.set_name("both", &["b"]);
    let dials = name.fakes.dials("b");
    for _ in 0..30 {
        let deadline = name.clock.now().saturating_add(Duration::from_millis(60));
        if name.router.call(&call("k"), deadline).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((name.fakes.count("b", "EVAL"), name.fakes.dials("b") - dials), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_single_server_may_be_restarted() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a");
    let router = connect(&fakes, &["a"]).await.unwrap();
    for process in ["a", "again"] {
        fakes.restart("a", process);
        router.call_within("k", 2).await.unwrap();
    }
    assert!(fakes.log("a").iter().any(|line| line.contains("again-")));
}

#[tokio::test(start_paused = true)]
async fn no_lock_is_held_at_the_event_of_a_restart() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a");
    let router = connect(&fakes, &["a"]).await.unwrap();
    let (probe, _probing) = LockProbe::install(&router);
    fakes.restart("a", "again");
    router.call_within("k", 2).await.unwrap();
    probe.assert_free_at(&["rwlease.restart"]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_cannot_be_reached_does_not_keep_a_restarted_server_out() {
    for door in [DialBehavior::Unreachable, DialBehavior::Hang] {
        let fakes = FakeCluster::new(&[]);
        fakes.set_standalone("a");
        fakes.set_dial_behavior("b", door);
        fakes.set_name("both", &["b", "a"]);
        let name = Bench::of(fakes, &["both"]).await;
        name.fakes.restart("a", "again");
        name.call_within("k", 10).await.unwrap();
        assert!(name.fakes.log("a").iter().any(|line| line.contains("again-")), "{door:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_server_that_cannot_be_reached_is_not_gone() {
    let name = of_two().await;
    for door in [DialBehavior::Unreachable, DialBehavior::Hang] {
        name.fakes.set_dial_behavior("a", door);
        name.fakes.break_connections("a");
        name.call_within("k", 3).await.unwrap_err();
    }
    // The name belongs to the other one alone now: the first one cannot be found there.
    name.fakes.set_name("both", &["b"]);
    name.call_within("k", 3).await.unwrap();
    assert_eq!(name.calls(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_server_at_the_place_of_the_first_one_takes_over_from_it() {
    let name = of_two().await;
    // The name leads to the other one, and both are new to the client.
    name.fakes.set_name("both", &["b", "a"]);
    for process in ["again", "once more"] {
        name.fakes.restart("a", process);
        name.call_within("k", 3).await.unwrap();
    }
    assert_eq!(name.calls(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_place_of_the_first_server_is_where_it_was_found_last() {
    let fakes = FakeCluster::new(&[]);
    for host in ["a", "b"] {
        fakes.set_standalone(host);
        fakes.restart(host, "first"); // one server with two addresses
    }
    fakes.set_name("both", &["a", "b"]);
    let name = Bench::of(fakes, &["both"]).await;
    // The first address cannot be reached any more, and the client continues at the second.
    name.fakes.set_dial_behavior("a", DialBehavior::Hang);
    name.fakes.break_connections("a");
    name.fakes.set_name("both", &["b", "a"]);
    name.call_within("k", 3).await.unwrap();
    name.fakes.restart("b", "again");
    name.call_within("k", 3).await.unwrap();
    // Now that one hangs, and another server is at the first address.
    name.fakes.restart("a", "another");
    name.fakes.set_dial_behavior("a", DialBehavior::Accept);
    name.fakes.set_dial_behavior("b", DialBehavior::Hang);
    name.fakes.break_connections("b");
    name.fakes.set_name("both", &["a", "b"]);
    name.call_within("k", 3).await.unwrap_err();
    assert_eq!(name.calls(), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_node_does_not_take_the_place_of_a_single_server_that_may_come_back() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a");
    fakes.set_name("both", &["a", "b"]);
    let name = Bench::of(fakes, &["both"]).await;
    name.fakes.set_slots_of("b", slots(&[(0, 16383, "both")]));
    name.fakes.set_id_of("b", RespValue::String("b's id".into()));
    name.fakes.restart("b", "of a cluster");
    name.fakes.set_dial_behavior("a", DialBehavior::Hang);
    name.fakes.break_connections("a");
    name.call_within("k", 3).await.unwrap_err();
    assert_eq!(name.fakes.count("b", "EVAL"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_search_for_the_first_server_does_not_undo_what_was_learned_meanwhile() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a");
    fakes.set_name("both", &["a", "b"]);
    fakes.set_dial_behavior("b", DialBehavior::AcceptDelayed(Duration::from_millis(200)));
    let (at, clock): (_, Arc<dyn Clock>) = (address("both"), TestClock::start());
    let told = |process: &str| {
        let (name, place) = (process.into(), Some("a".into()));
        ReportedTopology::Standalone(Some(ServerProcess { name, resolved_addr: place }))
    };
    let map = cluster_slots::read(&slots(&[(0, 16383, "both")]), &at, &AddressTranslator(None));
    let map = map.unwrap().map;
    let (epoch, serves) = (Some(1), Some(true));
    for (events, stranger) in [
        (
            ReportedTopology::Cluster(ClusterView { map, epoch, serves }),
            UnexpectedServer::Standalone,
        ),
        (told("another"), UnexpectedServer::OtherServer),
    ] {
        let membership = Membership::new(AddressTranslator(None), LIMITS, None);
        let install = |told| {
            let node = at.clone();
            membership.known_mut().install(NodeView { node, topology: told }, 0);
        };
        install(told("first"));
        let opening = membership.open(&fakes, &clock, &at, LIMITS);
        let learning = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            install(events);
            membership.known().kind.clone()
        };
        let (opened, learned) = tokio::join!(opening, learning);
        assert_eq!(membership.known().kind, learned);
        let why = opened.map(drop).unwrap_err().source.unwrap();
        assert_eq!(why.downcast_ref::<UnexpectedServer>(), Some(&stranger));
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_resolves_is_not_waited_for_without_end() {
    let fakes = FakeCluster::new(&[]);
    fakes.set_standalone("a");
    fakes.set_name("both", &["b", "a"]);
    fakes.set_dial_behavior("b", DialBehavior::Refuse);
    let name = Bench::of(fakes, &["both"]).await;
    name.fakes.hang_names(true);
    name.fakes.restart("a", "again");
    name.call_within("k", 5).await.expect_err("the first one may be anywhere");
    name.fakes.hang_names(false);
    name.call_within("k", 5).await.unwrap();
}
