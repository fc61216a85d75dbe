//! Seeds of several deployments, and seeds that are not of the cluster that the others are of.

use super::*;
use crate::backend::fake::{cluster_info, server_error, slots};
use crate::router::RefreshSource;
use crate::router::tests::events::Events;

/// A kind of deployment, with one server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Cluster,
    Standalone,
}

/// All slots on one node, at that epoch.
fn cluster_of(fakes: &FakeCluster, host: &str, epoch: u64) {
    fakes.set_slots_of(host, slots(&[(0, 16383, host)]));
    fakes.set_info_of(host, cluster_info("ok", epoch));
}

/// `a` and `b`, each a deployment of its own.
fn two(kinds: [Kind; 2], epochs: [u64; 2]) -> FakeCluster {
    let fakes = FakeCluster::new(&[]);
    for ((host, kind), epoch) in ["a", "b"].into_iter().zip(kinds).zip(epochs) {
        match kind {
            Kind::Cluster => cluster_of(&fakes, host, epoch),
            Kind::Standalone => fakes.set_standalone(host),
        }
    }
    fakes
}

fn invalid(outcome: Result<Arc<Router>, CallError>) -> String {
    match outcome.map(|router| router.masters()) {
        Err(CallError { kind: CallErrorKind::InvalidDeployment(why), .. }) => why,
        Err(error) => panic!("{error:?}"),
        Ok(masters) => panic!("connected to {masters:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn connect_to_seeds_of_two_deployments_is_invalid_and_names_both() {
    use Kind::{Cluster, Standalone};
    for kinds in
        [[Cluster, Cluster], [Cluster, Standalone], [Standalone, Cluster], [Standalone, Standalone]]
    {
        for epochs in [[6, 100], [100, 6], [6, 6]] {
            for slow in [None, Some("a"), Some("b")] {
                for _ in 0..10 {
                    let fakes = two(kinds, epochs);
                    if let Some(slow) = slow {
                        let pause = Duration::from_millis(fastrand::u64(0..900));
                        fakes.set_dial_behavior(slow, DialBehavior::AcceptDelayed(pause));
                    }
                    let why = invalid(connect(&fakes, &["a", "b"]).await);
                    let named = why.contains("a:1") && why.contains("b:1");
                    assert!(named, "{kinds:?} {epochs:?} {slow:?}: {why}");
                }
            }
        }
    }
}

/// Several nodes of one and a single node of the other.
#[tokio::test(start_paused = true)]
async fn connect_to_a_cluster_and_one_node_of_another_is_invalid() {
    for seeds in [["a", "b", "z"], ["z", "b", "a"], ["a", "z", "b"]] {
        let fakes = FakeCluster::new(&HALVES);
        cluster_of(&fakes, "z", 100);
        for _ in 0..20 {
            let why = invalid(connect(&fakes, &seeds).await);
            assert!(why.contains("z:1"), "{why}");
        }
    }
}

/// The map of the cluster names it in vain: another server is at that address.
#[tokio::test(start_paused = true)]
async fn connect_passes_by_a_stranger_at_the_address_of_a_node() {
    for kind in [Kind::Cluster, Kind::Standalone] {
        for seeds in [&["a", "b"][..], &["b", "a"], &["a"]] {
            for _ in 0..20 {
                let fakes = FakeCluster::new(&HALVES);
                match kind {
                    Kind::Standalone => fakes.set_standalone("b"),
                    Kind::Cluster => {
                        let node =
                            RespValue::Array(vec![text("b"), RespValue::Int(1), text("z-id")]);
                        let all =
                            RespValue::Array(vec![RespValue::Int(0), RespValue::Int(16383), node]);
                        fakes.set_slots_of("b", RespValue::Array(vec![all]));
                        fakes.set_id_of("b", text("z-id"));
                        fakes.set_info_of("b", cluster_info("ok", 100));
                    }
                }
                let router = connect(&fakes, seeds).await.unwrap();
                let deadline = router.clock.now().saturating_add(Duration::from_secs(1));
                router.call(&call("k"), deadline).await.unwrap();
                router.call(&call("x"), deadline).await.unwrap_err();
                assert_eq!(fakes.count("b", "EVAL"), 0, "{kind:?} {seeds:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connect_waits_for_no_seed_that_the_map_lists() {
    for _ in 0..20 {
        let fakes = FakeCluster::new(&HALVES);
        fakes.set_dial_behavior("b", DialBehavior::Hang);
        let clock = TestClock::start();
        connect(&fakes, &["a", "b"]).await.unwrap();
        let took = clock.now().saturating_duration_since(LocalInstant::default());
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

/// What it would have said is unknown.
#[tokio::test(start_paused = true)]
async fn connect_with_a_seed_that_does_not_answer_ends_after_the_connect_timeout() {
    for seeds in [["a", "z"], ["z", "a"]] {
        let fakes = FakeCluster::new(&HALVES);
        fakes.set_dial_behavior("z", DialBehavior::Hang);
        let clock = TestClock::start();
        let router = connect(&fakes, &seeds).await.unwrap();
        let took = clock.now().saturating_duration_since(LocalInstant::default());
        assert!(took >= Duration::from_secs(1), "{took:?}: it may be of another cluster");
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(router.topology.master_of(Slot::of("k")), Some(address("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn connect_with_a_seed_that_may_not_tell_its_map_succeeds() {
    let denied = || RespValue::Error(server_error("NOPERM this user has no permissions"));
    for seeds in [["a", "z"], ["z", "a"]] {
        let fakes = FakeCluster::new(&HALVES);
        fakes.set_slots_of("z", denied());
        fakes.set_id_of("z", denied());
        connect(&fakes, &seeds).await.unwrap();
    }
}

/// It answers only after the client has connected.
#[tokio::test(start_paused = true)]
async fn a_seed_of_another_cluster_that_answers_late_gets_no_calls() {
    let fakes = FakeCluster::new(&HALVES);
    cluster_of(&fakes, "z", 100);
    fakes.stop("z", true);
    let router = connect(&fakes, &["a", "z"]).await.unwrap();
    fakes.stop("z", false);
    let (events, _recording) = Events::record();
    for _ in 0..3 {
        router.topology.refresh(RefreshSource::Several).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let strangers = events.of("rwlease.stranger");
    assert!(!strangers.is_empty(), "it is found to be one");
    assert!(strangers.iter().all(|it| it.contains("node=z:1 outcome=\"other_cluster\"")));
    for key in ["k", "x"] {
        let deadline = router.clock.now().saturating_add(Duration::from_secs(1));
        router.call(&call(key), deadline).await.unwrap();
    }
    assert_eq!(fakes.count("z", "EVAL"), 0);
}

/// Whatever the order in which they are queried.
#[tokio::test(start_paused = true)]
async fn connect_to_dead_seeds_and_one_that_refuses_us_is_permanent() {
    for _ in 0..20 {
        let fakes = FakeCluster::new(&[]);
        fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
        fakes.set_dial_behavior("b", DialBehavior::Refuse);
        let error = connect(&fakes, &["a", "b"]).await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::PermanentConnectionError), "{error:?}");
        fakes.set_dial_behavior("a", DialBehavior::Refuse);
        fakes.set_dial_behavior("b", DialBehavior::Unreachable);
        let error = connect(&fakes, &["a", "b"]).await.unwrap_err().to_string();
        let expected = "no server can be reached (tried a:1, b:1): a:1: connection refused";
        assert_eq!(error, expected);
    }
}

/// A node that died, whose address another node has.
#[tokio::test(start_paused = true)]
async fn a_node_without_an_address_costs_only_its_slots() {
    let without_b = |upper: &str| {
        let lower =
            RespValue::Array(vec![text(upper), RespValue::Int(1), text(&format!("{upper}-id"))]);
        let dead = RespValue::Array(vec![text(""), RespValue::Int(0), text("b-id")]);
        RespValue::Array(vec![
            RespValue::Array(vec![RespValue::Int(0), RespValue::Int(8191), lower]),
            RespValue::Array(vec![RespValue::Int(8192), RespValue::Int(16383), dead]),
        ])
    };
    let (events, _recording) = Events::record();
    let bench = Bench::new(&HALVES).await;
    let fakes = &bench.fakes;
    fakes.set_id_of("b", text("z-id"));
    cluster_of(fakes, "b", 100);
    let node = RespValue::Array(vec![text("b"), RespValue::Int(1), text("z-id")]);
    let all = RespValue::Array(vec![RespValue::Int(0), RespValue::Int(16383), node]);
    fakes.set_slots_of("b", RespValue::Array(vec![all]));
    fakes.restart("b", "z");
    for host in ["a", "c"] {
        fakes.set_slots_of(host, without_b("c"));
        fakes.set_info_of(host, cluster_info("ok", 2));
    }
    // A client that was there before follows the failover of the other shard.
    bench.router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
    assert_eq!(bench.call("k").await.unwrap().server, address("c"));
    bench.router.call(&call("x"), bench.within(1)).await.unwrap_err();
    for _ in 0..5 {
        bench.router.topology.refresh(RefreshSource::Several).await;
    }
    let bad = events.of("rwlease.bad_entry");
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert!(bad[0].ends_with("entry=\"node b-id\" why=\"it has no address\""), "{bad:?}");
    // A new one connects.
    let newcomer = connect(fakes, &["a"]).await.unwrap();
    let soon = || newcomer.clock.now().saturating_add(Duration::from_secs(1));
    newcomer.call(&call("k"), soon()).await.unwrap();
    let error = newcomer.call(&call("x"), soon()).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::SlotUnassigned(_)), "{error:?}");
    // One whose seeds include the stranger does not guess.
    for _ in 0..20 {
        invalid(connect(fakes, &["a", "b"]).await);
    }
    assert_eq!(fakes.count("b", "EVAL"), 0);
}

/// Its server answers by a redirect to nowhere until it knows the new master's address.
#[tokio::test(start_paused = true)]
async fn a_redirect_to_a_node_without_an_address_is_waited_out() {
    for target in [":0", "b:0", ":65536", "b:99999"] {
        for kind in ["MOVED", "ASK"] {
            let bench = Bench::new(&HALVES).await;
            let refused = format!("{kind} {} {target}", Slot::of("k"));
            bench.fakes.queue_replies("a", [refusal(&refused), refusal(&refused)]);
            let answer = bench.call("k").await.unwrap();
            assert_eq!((answer.server, answer.in_doubt), (address("a"), None), "{refused}");
            assert_eq!(bench.fakes.dials("a"), 1, "{refused}: the connection is good");
        }
    }
}
