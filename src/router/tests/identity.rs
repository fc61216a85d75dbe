//! Whose view of the cluster counts: servers of another cluster at known addresses, two histories,
//! nodes that lag or know little.

use super::*;
use crate::backend::fake::{all_slots_of, cluster_info, server_error, slots};
use crate::error::ErrorChain;
use crate::router::cluster::refresh::RefreshSource;

/// A third node, which serves the lower half after a change.
const TAKEN_OVER: [(u16, u16, &str); 2] = [(0, 8191, "c"), (8192, 16383, "b")];

/// The node that serves the key's slot, as far as the router knows.
fn master_of(bench: &Bench, key: &str) -> Option<String> {
    let master = bench.router.topology.master_of(Slot::of(key));
    master.map(|address| address.host.to_string())
}

async fn refresh(bench: &Bench, first: &str) {
    bench.router.topology.refresh(RefreshSource::Prefer(address(first))).await;
}

#[tokio::test(start_paused = true)]
async fn a_stranger_at_a_known_address_is_sent_nothing_and_takes_over_nothing() {
    for (has_cluster_mode, reason) in [(false, "without cluster mode"), (true, "another cluster")] {
        let bench = Bench::new(&HALVES).await;
        bench.fakes.restart("a", "z");
        if has_cluster_mode {
            // A node that calls itself `z` has the address now, and a cluster of its own.
            bench.fakes.set_id_of("a", text("z-id"));
            bench.fakes.set_slots_of("a", all_slots_of("a", "z-id"));
        } else {
            bench.fakes.set_standalone("a");
        }
        for _ in 0..5 {
            refresh(&bench, "a").await;
            assert_eq!(master_of(&bench, "x").as_deref(), Some("b"));
        }
        let error = bench.call_within("k", 2).await.unwrap_err();
        assert_eq!(error.in_doubt, Doubt::None, "nothing was sent there: {error}");
        let said = ErrorChain(&error).to_string();
        assert!(said.contains(reason), "{said}");
        assert_eq!(bench.fakes.count("a", "EVAL"), 0);
        bench.call("x").await.unwrap();
        // As soon as the others name another master, calls go there.
        bench.fakes.set_slots_of("b", slots(&TAKEN_OVER));
        bench.fakes.set_slots_of("c", slots(&TAKEN_OVER));
        assert_eq!(bench.call("k").await.unwrap().server, address("c"));
    }
}

#[tokio::test(start_paused = true)]
async fn call_refused_by_a_former_master_for_good_goes_to_the_new_one() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.fakes.break_connections("a");
    bench.fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
}

#[tokio::test(start_paused = true)]
async fn call_refused_for_good_by_the_target_of_an_ask_fails_before_its_deadline() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.fakes.set_reply("a", redirect("ASK", "k", "b"));
    bench.fakes.break_connections("b");
    bench.fakes.set_dial_behavior("b", DialBehavior::WrongPassword);
    let start = bench.clock.now();
    let error = bench.call_within("k", 10).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unconnected { .. }), "{error}");
    assert!(bench.since(start) < Duration::from_secs(5), "{:?}", bench.since(start));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_opened_before_the_map_was_known_is_judged_by_it() {
    let fakes = FakeCluster::new(&HALVES);
    // It is at the address of a node of the cluster, is queried first, and knows no slots.
    fakes.set_id_of("a", text("z-id"));
    fakes.set_slots_of("a", RespValue::Array(vec![]));
    let router = connect(&fakes, &["a", "b"]).await.unwrap();
    router.call_within("k", 1).await.unwrap_err();
    assert_eq!(fakes.count("a", "EVAL"), 0);
}

#[tokio::test(start_paused = true)]
async fn masters_that_are_gone_have_no_say_in_an_older_epoch() {
    for is_stranger in [false, true] {
        let bench = Bench::new(&HALVES).await;
        bench.fakes.report(&["b", "c"], &TAKEN_OVER, 9);
        refresh(&bench, "b").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
        if is_stranger {
            bench.fakes.set_standalone("c");
        } else {
            bench.fakes.set_dial_behavior("c", DialBehavior::Refuse);
        }
        bench.fakes.break_connections("c");
        bench.fakes.report(&["a", "b"], &HALVES, 3);
        refresh(&bench, "b").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("a"), "stranger: {is_stranger}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_for_a_master_that_is_gone_takes_its_say() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.report(&["b", "c"], &TAKEN_OVER, 9);
    refresh(&bench, "b").await;
    bench.fakes.refuse("c");
    bench.fakes.report(&["a", "b"], &HALVES, 3);
    bench.call("k").await.unwrap();
    assert_eq!(master_of(&bench, "k").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn moved_redirect_outlives_a_refresh_that_began_before() {
    let bench = Bench::new(&HALVES).await;
    // Two slots move; the map that is under way knows of the first one only.
    let (moved, other) = (Slot::of("k").get(), 9000);
    let events =
        [(0, 8191, "a"), (8192, other - 1, "b"), (other, other, "a"), (other + 1, 16383, "b")];
    bench.fakes.set_slots(&events);
    for host in ["a", "b"] {
        bench.fakes.set_slots_take(host, Duration::from_millis(50));
        bench.fakes.set_info_of(host, cluster_info("ok", 2));
    }
    let begun = bench.router.topology.refresh(RefreshSource::Prefer(address("b")));
    tokio::time::sleep(Duration::from_millis(20)).await;
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
    begun.await;
    assert_eq!(bench.router.topology.master_of(Slot::new(other).unwrap()), Some(address("a")));
    assert_eq!(bench.router.topology.master_of(Slot::new(moved).unwrap()), Some(address("b")));
}

#[tokio::test(start_paused = true)]
async fn refresh_by_a_fresh_node_keeps_the_slots_that_it_does_not_know() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.stop("b", true);
    bench.fakes.set_slots_of("c", slots(&[(0, 99, "c"), (100, 8191, "a")]));
    bench.fakes.set_slots_of("a", slots(&[(0, 99, "c"), (100, 8191, "a")]));
    refresh(&bench, "c").await;
    assert_eq!(bench.router.topology.master_of(Slot::new(7).unwrap()), Some(address("c")));
    assert_eq!(master_of(&bench, "x").as_deref(), Some("b"));
    // A node that knows nothing at all is skipped.
    bench.fakes.set_slots_of("c", RespValue::Array(vec![]));
    refresh(&bench, "c").await;
    assert_eq!(master_of(&bench, "x").as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_came_new_to_the_cluster_is_served_by() {
    let bench = Bench::new(&HALVES).await;
    for host in ["a", "b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
    }
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "c")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("c"));
}

#[tokio::test(start_paused = true)]
async fn the_connection_to_a_node_that_left_the_cluster_is_closed() {
    let interval = Duration::from_secs(10);
    let bench = Bench::with(&HALVES, |settings| settings.refresh_interval = interval).await;
    let connected = bench.router.connections.connect(&address("b"), false).await.unwrap();
    let connection = Arc::downgrade(&connected);
    drop(connected);
    tokio::time::sleep(2 * interval).await;
    assert!(connection.upgrade().is_some());
    for host in ["a", "b", "c"] {
        bench.fakes.set_slots_of(host, slots(&[(0, 8191, "a"), (8192, 16383, "c")]));
    }
    tokio::time::sleep(2 * interval).await;
    assert_eq!(bench.call("x").await.unwrap().server, address("c"));
    assert!(connection.upgrade().is_none(), "nothing holds it");
}

#[tokio::test(start_paused = true)]
async fn the_connection_to_a_node_that_only_redirects_name_outlives_the_maps_of_those_that_lag() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.set_slots_of("c", slots(&TAKEN_OVER));
    bench.fakes.set_reply("a", redirect("MOVED", "k", "c"));
    for _ in 0..3 {
        assert_eq!(bench.call("k").await.unwrap().server, address("c"));
        refresh(&bench, "a").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("a"), "most of them lag");
    }
    assert_eq!(bench.fakes.dials("c"), 1);
}

#[tokio::test(start_paused = true)]
async fn connect_with_node_ids_denied_or_unknown_succeeds() {
    let denied = "NOPERM this user has no permissions to run the command";
    let unknown = "ERR unknown subcommand 'MYID'. Try CLUSTER HELP.";
    for error in [denied, unknown] {
        let fakes = FakeCluster::new(&HALVES);
        for host in ["a", "b"] {
            fakes.set_id_of(host, RespValue::Error(server_error(error)));
            fakes.set_info_of(host, RespValue::Error(server_error(error)));
        }
        let router = connect(&fakes, &["a"]).await.unwrap();
        for key in ["k", "x"] {
            router.call_within(key, 1).await.unwrap();
        }
        // Changes are noticed all the same.
        fakes.set_slots(&[(0, 16383, "b")]);
        router.topology.refresh(RefreshSource::Prefer(address("b"))).await;
        assert_eq!(router.topology.master_of(Slot::of("k")), Some(address("b")));
    }
}

#[tokio::test(start_paused = true)]
async fn refresh_with_all_known_nodes_gone_soon_queries_a_seed() {
    let many: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let ranges: Vec<_> =
        (0..40u16).map(|at| (at * 400, at * 400 + 399, &*many[usize::from(at)])).collect();
    let bench =
        Bench::with(&ranges, |settings| settings.seeds = vec![address("n0"), address("seed")])
            .await;
    bench.fakes.set_slots_of("seed", slots(&[(0, 16383, "seed")]));
    let whole = RespValue::Array(vec![
        RespValue::Int(0),
        RespValue::Int(16383),
        RespValue::Array(vec![text("seed"), RespValue::Int(1), text("n0-id")]),
    ]);
    bench.fakes.set_slots_of("seed", RespValue::Array(vec![whole]));
    bench.fakes.set_id_of("seed", text("n0-id"));
    // All known servers are gone; the name of the seed leads to their successors.
    for host in &many {
        bench.fakes.stop(host, true);
    }
    bench.fakes.set_info_of("seed", cluster_info("ok", 2));
    let start = bench.clock.now();
    bench.router.topology.refresh(RefreshSource::Any).await;
    assert_eq!(master_of(&bench, "x").as_deref(), Some("seed"));
    let took = bench.since(start);
    assert!(took <= Duration::from_millis(700), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_heard_of_in_the_background_though_the_old_master_denies_it() {
    let bench =
        Bench::with(&HALVES, |settings| settings.refresh_interval = Duration::from_secs(10)).await;
    bench.fakes.report(&["b", "c"], &TAKEN_OVER, 2);
    // The old master is queried first: it is the one that is connected.
    bench.fakes.break_connections("b");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_is_sent_nothing_before_it_tells_what_it_is() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.restart("a", "again");
    bench.fakes.set_standalone("a");
    let loading = server_error("LOADING Redis is loading the dataset in memory");
    bench.fakes.set_id_of("a", RespValue::Error(loading));
    bench.call_within("k", 2).await.unwrap_err();
    assert_eq!(bench.fakes.count("a", "EVAL"), 0);
}

/// Whichever node a new client queries first.
#[tokio::test(start_paused = true)]
async fn connect_at_a_node_with_an_old_map_follows_the_takeover() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.report(&["b", "c"], &TAKEN_OVER, 2);
    for seed in ["a", "b", "c"] {
        let newcomer = connect(&bench.fakes, &[seed]).await.unwrap();
        let master = newcomer.topology.master_of(Slot::of("k")).unwrap();
        assert_eq!(&*master.host, "c", "by {seed}");
    }
}
