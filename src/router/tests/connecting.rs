//! Finding the cluster, and keeping the slot map fresh.

use super::*;
use crate::router::cluster::refresh::RefreshSource;

#[tokio::test(start_paused = true)]
async fn slot_map_refreshes_share_one_query_in_flight() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.log("a");
    let refreshes =
        (0..50).map(|_| bench.router.topology.refresh(RefreshSource::Prefer(address("a"))));
    futures::future::join_all(refreshes).await;
    assert_eq!(
        bench.fakes.count("a", "CLUSTER SLOTS") + bench.fakes.count("b", "CLUSTER SLOTS"),
        1
    );
    // And they are not back to back.
    let start = bench.clock.now();
    for _ in 0..10 {
        bench.router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
    }
    assert!(bench.since(start) >= Duration::from_millis(400));
}

/// The refresh under way would begin after a second or more.
#[tokio::test(start_paused = true)]
async fn a_call_in_trouble_makes_a_rare_refresh_begin_earlier() {
    let bench = Bench::new(&HALVES).await;
    let topology = &bench.router.topology;
    for _ in 0..8 {
        topology.refresh(RefreshSource::Any).await;
    }
    let _rare = topology.refresh(RefreshSource::Any);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    let start = bench.clock.now();
    topology.wait_master_changed(Slot::of("k"), &address("a")).await;
    let took = bench.since(start);
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_passes_by_nodes_that_do_not_answer() {
    let bench = Bench::new(&[(0, 5000, "a"), (5001, 10000, "b"), (10001, 16383, "c")]).await;
    bench.fakes.stop("a", true);
    bench.fakes.set_slots_of("b", RespValue::Array(vec![]));
    bench.fakes.set_slots_of("c", crate::backend::fake::slots(&[(0, 16383, "c")]));
    let start = bench.clock.now();
    bench.router.topology.refresh(RefreshSource::Prefer(address("a"))).await;
    assert!(bench.since(start) < Duration::from_millis(400), "nor waits for them");
    assert_eq!(bench.router.topology.master_of(Slot::of("k")), Some(address("c")));
}

#[tokio::test(start_paused = true)]
async fn slot_map_refresh_is_periodic_and_ends_with_the_router() {
    let bench =
        Bench::with(&[ALL], |settings| settings.refresh_interval = Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let refreshes = bench.fakes.count("a", "CLUSTER SLOTS");
    assert!((5..=12).contains(&refreshes), "{refreshes}");
    let Bench { fakes, router, .. } = bench;
    let connections = Arc::downgrade(&router.connections);
    drop(router);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fakes.count("a", "CLUSTER SLOTS") <= refreshes + 1);
    assert!(connections.upgrade().is_none(), "nothing holds the connections");
}

#[tokio::test(start_paused = true)]
async fn connecting_tries_all_seeds_and_says_what_is_wrong() {
    let fakes = FakeCluster::new(&[ALL]);
    fakes.set_dial_behavior("dead", DialBehavior::Refuse);
    fakes.set_dial_behavior("slow", DialBehavior::Hang);
    fakes.set_dial_behavior("locked", DialBehavior::WrongPassword);
    let connect = |seeds: &'static [&str]| connect(&fakes, seeds);
    assert!(connect(&["slow", "dead", "a"]).await.is_ok());
    let error = connect(&["slow", "dead"]).await.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("no server can be used (tried "), "{error}");
    assert!(error.contains("slow:1") && error.contains("dead:1"), "{error}");
    let error = connect(&["locked"]).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert_eq!(error.to_string(), "cannot connect to locked:1: WRONGPASS");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_not_tried_until_the_deadline() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.break_connections("a");
    bench.fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
    for _ in 0..3 {
        let error = bench.call("x").await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Unconnected { .. }), "{error}");
    }
    let deadline = bench.clock.now().saturating_add(Duration::from_millis(300));
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unconnected { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn address_translator_maps_addresses_announced_by_the_cluster() {
    let bench = Bench::with(&[ALL], |settings| {
        settings.address_translator = Some(Arc::new(|host, port| (format!("{host}.out"), port)));
    })
    .await;
    bench.fakes.set_slots_of("a.out", crate::backend::fake::slots(&[ALL]));
    assert_eq!(bench.call("x").await.unwrap().server, address("a.out"));
}

#[tokio::test(start_paused = true)]
async fn slot_map_refresh_without_news_backs_off() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.log("a");
    let spent = async |refreshes: u32| {
        let start = bench.clock.now();
        for _ in 0..refreshes {
            bench.router.topology.refresh(RefreshSource::Any).await;
        }
        bench.since(start)
    };
    assert_eq!(spent(1).await, Duration::ZERO, "the first one begins at once");
    // 50, 100, 200, 400, 800, 1600 ms, and half of that at the least.
    let six = spent(6).await;
    assert!(
        (Duration::from_millis(1_500)..=Duration::from_millis(3_150)).contains(&six),
        "{six:?}"
    );
    let four = spent(4).await;
    assert!((Duration::from_secs(4)..=Duration::from_secs(8)).contains(&four), "{four:?}");
    // A redirect that teaches something ends that.
    bench.fakes.set_slots(&[(0, 8191, "a"), (8192, 16383, "b")]);
    bench.fakes.queue_replies("a", [redirect("MOVED", "x", "b")]);
    bench.call("x").await.unwrap();
    assert!(spent(1).await <= Duration::from_millis(50));
    // After a quiet time the next one begins at once, too.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(spent(1).await, Duration::ZERO);
}

/// A server that was reached is away. Only one that never was may need another address.
#[tokio::test(start_paused = true)]
async fn address_is_doubted_only_until_its_server_was_reached() {
    for was_reached in [false, true] {
        let fakes = FakeCluster::new(&HALVES);
        if !was_reached {
            fakes.refuse("b");
        }
        let bench = Bench::of(fakes, &["a"]).await;
        if was_reached {
            bench.call("x").await.unwrap();
        }
        bench.fakes.refuse("b");
        let error = bench.call("x").await.unwrap_err();
        let source = error.source.unwrap().to_string();
        assert!(source.contains("cannot connect to b:1"), "{source}");
        assert_eq!(source.contains("announced by"), !was_reached, "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn connect_that_waits_for_servers_ends_at_once_at_a_wrong_password() {
    let fakes = FakeCluster::new(&[ALL]);
    fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
    let clock = TestClock::start();
    let settings = RouterConfig {
        seeds: vec![address("a")],
        scripts: scripts(),
        wait_for_servers: Some(Duration::from_secs(60)),
        ..RouterConfig::default()
    };
    let start = clock.now();
    assert!(Router::connect(Arc::new(fakes), clock.clone(), settings).await.is_err());
    assert!(clock.now().saturating_duration_since(start) < Duration::from_secs(1));
}
