//! Seeds of several deployments, and seeds that are not of the cluster that the others are of.

use super::*;
use crate::backend::fake::{all_slots_of, cluster_info, server_error};
use crate::error::ErrorChain;
use crate::router::cluster::refresh::RefreshSource;
use crate::router::tests::events::{Events, LockProbe};

/// A kind of deployment, with one server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Cluster,
    Standalone,
}

/// All slots on one node, at that epoch.
fn cluster_of(fakes: &FakeCluster, host: &str, epoch: u64) {
    fakes.report(&[host], &[(0, 16383, host)], epoch);
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

fn invalid(outcome: Result<Arc<Router>, Error>) -> String {
    match outcome.map(|router| router.masters()) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => error.to_string(),
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
                        fakes.set_slots_of("b", all_slots_of("b", "z-id"));
                        fakes.set_id_of("b", text("z-id"));
                        fakes.set_info_of("b", cluster_info("ok", 100));
                    }
                }
                let router = connect(&fakes, seeds).await.unwrap();
                router.call_within("k", 1).await.unwrap();
                router.call_within("x", 1).await.unwrap_err();
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
    let unexpected = events.of("rwlease.unexpected_server");
    assert!(!unexpected.is_empty(), "it is found to be one");
    assert!(unexpected.iter().all(|it| it.contains("server=z:1 outcome=\"other_cluster\"")));
    for key in ["k", "x"] {
        router.call_within(key, 1).await.unwrap();
    }
    assert_eq!(fakes.count("z", "EVAL"), 0);
}

#[tokio::test(start_paused = true)]
async fn no_lock_is_held_at_the_event_of_an_unexpected_server() {
    let bench = Bench::new(&HALVES).await;
    cluster_of(&bench.fakes, "z", 100);
    let (probe, _probing) = LockProbe::install(&bench.router);
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "z")]);
    let _ = bench.call_within("k", 2).await;
    probe.assert_free_at(&["rwlease.redirect", "rwlease.unexpected_server"]);
    assert_eq!(bench.fakes.count("z", "EVAL"), 0);
}

/// Whatever the order in which they are queried.
#[tokio::test(start_paused = true)]
async fn connect_to_dead_seeds_and_one_that_refuses_us_is_permanent() {
    for _ in 0..20 {
        let fakes = FakeCluster::new(&[]);
        fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
        fakes.set_dial_behavior("b", DialBehavior::Refuse);
        let error = connect(&fakes, &["a", "b"]).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
        fakes.set_dial_behavior("a", DialBehavior::Refuse);
        fakes.set_dial_behavior("b", DialBehavior::Unreachable);
        let error = connect(&fakes, &["a", "b"]).await.map(drop).unwrap_err();
        assert_eq!(
            ErrorChain(&error).to_string(),
            "no server can be used (tried a:1, b:1): cannot connect to a:1: connection refused"
        );
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
    fakes.set_slots_of("b", all_slots_of("b", "z-id"));
    fakes.restart("b", "z");
    for host in ["a", "c"] {
        fakes.set_slots_of(host, without_b("c"));
        fakes.set_info_of(host, cluster_info("ok", 2));
    }
    // A client that was there before follows the failover of the other shard.
    bench.router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
    assert_eq!(bench.call("k").await.unwrap().server, address("c"));
    bench.call_within("x", 1).await.unwrap_err();
    for _ in 0..5 {
        bench.router.topology.refresh(RefreshSource::Several).await;
    }
    let bad = events.of("rwlease.bad_entry");
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert!(bad[0].ends_with("entry=\"node b-id\" error=\"it has no address\""), "{bad:?}");
    // A new one connects.
    let newcomer = connect(fakes, &["a"]).await.unwrap();
    newcomer.call_within("k", 1).await.unwrap();
    let error = newcomer.call_within("x", 1).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::SlotUnassigned(_)), "{error:?}");
    // One whose seeds include the stranger does not guess.
    for _ in 0..20 {
        invalid(connect(fakes, &["a", "b"]).await);
    }
    assert_eq!(fakes.count("b", "EVAL"), 0);
}
