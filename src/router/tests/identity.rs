//! Whose view of the cluster counts: servers of another cluster at known addresses, two histories,
//! nodes that lag or know little.

use super::*;
use crate::backend::fake::{cluster_info, server_error, slots};
use crate::router::RefreshSource;

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
async fn a_seed_that_comes_back_without_cluster_mode_takes_over_nothing() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.restart("a", "again");
    bench.fakes.set_standalone("a");
    for _ in 0..5 {
        refresh(&bench, "a").await;
        assert_eq!(master_of(&bench, "x").as_deref(), Some("b"));
    }
    let error = bench.router.call(&call("k"), bench.within(2)).await.unwrap_err();
    assert_eq!(error.in_doubt, None, "nothing was sent there: {error}");
    let said = error.last_error.unwrap().to_string();
    assert!(said.contains("without cluster mode"), "{said}");
    assert_eq!(bench.fakes.count("a", "EVAL"), 0);
    bench.call("x").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_cluster_at_a_known_address_is_sent_nothing() {
    let bench = Bench::new(&HALVES).await;
    // A node that calls itself `z` has the address now, and a cluster of its own.
    bench.fakes.restart("a", "z");
    bench.fakes.set_id_of("a", text("z-id"));
    let node = RespValue::Array(vec![text("a"), RespValue::Int(1), text("z-id")]);
    let all = RespValue::Array(vec![RespValue::Int(0), RespValue::Int(16383), node]);
    bench.fakes.set_slots_of("a", RespValue::Array(vec![all]));
    for _ in 0..5 {
        refresh(&bench, "a").await;
        assert_eq!(master_of(&bench, "x").as_deref(), Some("b"));
    }
    let error = bench.router.call(&call("k"), bench.within(2)).await.unwrap_err();
    let said = error.last_error.unwrap().to_string();
    assert!(said.contains("another cluster"), "{said}");
    assert_eq!(bench.fakes.count("a", "EVAL"), 0);
    // As soon as the others name another master, calls go there.
    bench.fakes.set_slots_of("b", slots(&TAKEN_OVER));
    bench.fakes.set_slots_of("c", slots(&TAKEN_OVER));
    assert_eq!(bench.call("k").await.unwrap().server, address("c"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_opened_before_the_map_was_known_is_judged_by_it() {
    let fakes = FakeCluster::new(&HALVES);
    // It is at the address of a node of the cluster, is queried first, and knows no slots.
    fakes.set_id_of("a", text("z-id"));
    fakes.set_slots_of("a", RespValue::Array(vec![]));
    let router = connect(&fakes, &["a", "b"]).await.unwrap();
    let clock = TestClock::start();
    let deadline = clock.now().saturating_add(Duration::from_secs(1));
    router.call(&call("k"), deadline).await.unwrap_err();
    assert_eq!(fakes.count("a", "EVAL"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_old_master_of_a_partition_is_not_believed_after_a_takeover() {
    let fakes = FakeCluster::new(&HALVES);
    for host in ["b", "c"] {
        fakes.set_slots_of(host, slots(&TAKEN_OVER));
        fakes.set_info_of(host, cluster_info("ok", 2));
    }
    // Both sides report that all is well. The client's first node does not matter.
    let router = connect(&fakes, &["a"]).await.unwrap();
    let lower = Slot::of("k");
    assert_eq!(router.topology.master_of(lower), Some(address("c")));
    for _ in 0..10 {
        router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
        assert_eq!(router.topology.master_of(lower), Some(address("c")));
    }
    // Even if it is the only one to answer.
    for host in ["b", "c"] {
        fakes.stop(host, true);
    }
    router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
    assert_eq!(router.topology.master_of(lower), Some(address("c")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_and_does_not_serve_is_not_believed() {
    let bench = Bench::new(&HALVES).await;
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
        bench.fakes.set_info_of(host, cluster_info("ok", 2));
    }
    // On its side it requests votes in vain, each time at a higher epoch.
    bench.fakes.set_info_of("a", cluster_info("fail", 9));
    for _ in 0..5 {
        refresh(&bench, "a").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_of_a_lower_epoch_counts_if_most_nodes_have_it() {
    let bench = Bench::with(&HALVES, |_| ()).await;
    bench.fakes.set_info_of("b", cluster_info("ok", 9));
    bench.fakes.set_slots_of("b", slots(&TAKEN_OVER));
    bench.fakes.set_slots_of("c", slots(&TAKEN_OVER));
    refresh(&bench, "b").await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
    // The cluster was set up again from older files.
    for host in ["a", "b", "c"] {
        bench.fakes.set_info_of(host, cluster_info("ok", 3));
        bench.fakes.set_slots_of(host, slots(&HALVES));
    }
    refresh(&bench, "b").await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn dead_seeds_and_replicas_have_no_say_in_an_older_epoch() {
    let seeds = ["a", "s1", "s2", "s3"];
    let bench = Bench::with(&HALVES, |settings| settings.seeds = seeds.map(address).into()).await;
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
        bench.fakes.set_info_of(host, cluster_info("ok", 9));
    }
    refresh(&bench, "b").await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
    // Both masters were set up again from older files, and there is no other.
    for host in seeds {
        bench.fakes.stop(host, true);
        bench.fakes.break_connections(host);
    }
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&[(0, 16383, "b")]));
        bench.fakes.set_info_of(host, cluster_info("ok", 3));
    }
    refresh(&bench, "b").await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn replicas_have_no_say_in_an_older_epoch_though_they_answer() {
    let seeds = ["a", "r1", "r2"];
    let bench = Bench::with(&HALVES, |settings| settings.seeds = seeds.map(address).into()).await;
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
        bench.fakes.set_info_of(host, cluster_info("ok", 9));
    }
    refresh(&bench, "b").await;
    // On the client's side of a partition there are the old master and its other replicas.
    for host in ["b", "c"] {
        bench.fakes.stop(host, true);
    }
    for host in ["r1", "r2"] {
        bench.fakes.set_slots_of(host, slots(&HALVES));
    }
    refresh(&bench, "a").await;
    assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn masters_that_are_gone_have_no_say_in_an_older_epoch() {
    for is_stranger in [false, true] {
        let bench = Bench::new(&HALVES).await;
        for host in ["b", "c"] {
            bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
            bench.fakes.set_info_of(host, cluster_info("ok", 9));
        }
        refresh(&bench, "b").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("c"));
        if is_stranger {
            bench.fakes.set_standalone("c");
        } else {
            bench.fakes.set_dial_behavior("c", DialBehavior::Refuse);
        }
        bench.fakes.break_connections("c");
        for host in ["a", "b"] {
            bench.fakes.set_slots_of(host, slots(&HALVES));
            bench.fakes.set_info_of(host, cluster_info("ok", 3));
        }
        refresh(&bench, "b").await;
        assert_eq!(master_of(&bench, "k").as_deref(), Some("a"), "stranger: {is_stranger}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_for_a_master_that_is_gone_takes_its_say() {
    let bench = Bench::new(&HALVES).await;
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
        bench.fakes.set_info_of(host, cluster_info("ok", 9));
    }
    refresh(&bench, "b").await;
    bench.fakes.set_dial_behavior("c", DialBehavior::Refuse);
    bench.fakes.break_connections("c");
    for host in ["a", "b"] {
        bench.fakes.set_slots_of(host, slots(&HALVES));
        bench.fakes.set_info_of(host, cluster_info("ok", 3));
    }
    bench.call("k").await.unwrap();
    assert_eq!(master_of(&bench, "k").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lags_is_outvoted() {
    let ranges = [(0, 8191, "a"), (8192, 12287, "b"), (12288, 16383, "c")];
    let bench = Bench::new(&ranges).await;
    let moved = [(0, 99, "b"), (100, 8191, "a"), (8192, 12287, "b"), (12288, 16383, "c")];
    let early = Slot::new(7).unwrap();
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&moved));
    }
    refresh(&bench, "b").await;
    assert_eq!(bench.router.topology.master_of(early), Some(address("b")));
    for _ in 0..5 {
        refresh(&bench, "a").await;
        assert_eq!(bench.router.topology.master_of(early), Some(address("b")));
    }
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
    let connected = bench.router.connections.connect(&address("b")).await.unwrap();
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
    let denied =
        || RespValue::Error(server_error("NOPERM this user has no permissions to run the command"));
    let unknown =
        || RespValue::Error(server_error("ERR unknown subcommand 'MYID'. Try CLUSTER HELP."));
    for reply in [denied(), unknown()] {
        let fakes = FakeCluster::new(&HALVES);
        for host in ["a", "b"] {
            fakes.set_id_of(host, reply.clone());
            fakes.set_info_of(host, reply.clone());
        }
        let router = connect(&fakes, &["a"]).await.unwrap();
        let clock = TestClock::start();
        for key in ["k", "x"] {
            let deadline = clock.now().saturating_add(Duration::from_secs(1));
            router.call(&call(key), deadline).await.unwrap();
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
    let took = bench.clock.now().saturating_duration_since(start);
    assert!(took <= Duration::from_millis(700), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_heard_of_in_the_background_though_the_old_master_denies_it() {
    let bench =
        Bench::with(&HALVES, |settings| settings.refresh_interval = Duration::from_secs(10)).await;
    for host in ["b", "c"] {
        bench.fakes.set_slots_of(host, slots(&TAKEN_OVER));
        bench.fakes.set_info_of(host, cluster_info("ok", 2));
    }
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
    bench.router.call(&call("k"), bench.within(2)).await.unwrap_err();
    assert_eq!(bench.fakes.count("a", "EVAL"), 0);
}
