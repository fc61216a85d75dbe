//! The router against servers that answer what they are told to.
#![allow(clippy::disallowed_methods)]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::node::fake::{Act, Door, EPOCH_MS, Fakes, TestClock, address, refusal, text};
use crate::node::{Reply, Words};
use crate::router::{Answer, Call, CallError, Reason, Router, RouterSettings, Script, Slot};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script {
    name: "test",
    text: "return {}".into(),
    digest: "digest".into(),
});

const ALL: (u16, u16, &str) = (0, 16383, "a");
/// The key `k` is of the lower half, `x` of the upper one.
const HALVES: [(u16, u16, &str); 2] = [(0, 8191, "a"), (8192, 16383, "b")];

struct Bench {
    fakes: Fakes,
    clock: Arc<TestClock>,
    router: Arc<Router>,
}

impl Bench {
    async fn new(ranges: &[(u16, u16, &str)]) -> Bench {
        Bench::with(ranges, |_| ()).await
    }

    async fn with(ranges: &[(u16, u16, &str)], change: impl FnOnce(&mut RouterSettings)) -> Bench {
        let fakes = Fakes::new(ranges);
        let clock = TestClock::start();
        let mut settings = RouterSettings {
            seeds: vec![address(ranges[0].2)],
            ..RouterSettings::default()
        };
        change(&mut settings);
        let router = Router::connect(Arc::new(fakes.clone()), clock.clone(), settings)
            .await
            .unwrap();
        let bench = Bench { fakes, clock, router };
        for (.., host) in ranges {
            bench.fakes.log(host);
        }
        bench
    }

    fn within(&self, seconds: u64) -> Moment {
        self.clock.now().after(Duration::from_secs(seconds))
    }

    async fn call(&self, key: &str) -> Result<Answer, CallError> {
        self.router.call(&call(key), self.within(10)).await
    }
}

fn call(key: &str) -> Call {
    Call {
        script: &SCRIPT,
        slot: Slot::of(key),
        key: bytes::Bytes::copy_from_slice(key.as_bytes()),
        args: Words::of(["arg"]),
        not_after: None,
    }
}

fn redirect(kind: &str, key: &str, host: &str) -> Act {
    refusal(&format!("{kind} {} {host}:1", Slot::of(key)))
}

fn line(command: &str, key: &str, host: &str) -> String {
    let name: String = format!("{host}-0123456789abcdef").chars().take(12).collect();
    format!("{command} 1 {key} {name} 0 arg")
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_to_the_owner_of_its_slot_in_one_command() {
    let bench = Bench::new(&HALVES).await;
    for (key, host, other) in [("k", "a", "b"), ("x", "b", "a")] {
        let answer = bench.call(key).await.unwrap();
        assert_eq!(answer.address, address(host));
        assert_eq!(answer.loose, None);
        assert!(matches!(&answer.reply, Reply::List(items) if items[1] == text("ok")));
        assert_eq!(bench.fakes.log(host), [line("EVALSHA digest", key, host)]);
        assert!(bench.fakes.log(other).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn not_after_is_told_in_the_time_of_the_server() {
    let bench = Bench::new(&[ALL]).await;
    let not_after = bench.clock.now().after(Duration::from_millis(700));
    bench
        .router
        .call(
            &Call {
                not_after: Some(not_after),
                ..call("x")
            },
            bench.within(1),
        )
        .await
        .unwrap();
    let log = bench.fakes.log("a");
    let told: u64 = log[0].split(' ').nth(5).unwrap().parse().unwrap();
    let expected = EPOCH_MS + 700;
    assert!((expected..expected + 5).contains(&told), "{told}");
}

#[tokio::test(start_paused = true)]
async fn every_reply_feeds_the_bound() {
    let bench = Bench::new(&[ALL]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    bench
        .fakes
        .script("a", [Act::Answer(Reply::List(vec![Reply::Int(5_000)]))]);
    bench.call("x").await.unwrap();
    // The server's clock was set back; what it said 100 s ago no longer counts.
    let bound = bench.router.bound(&address("a")).unwrap();
    assert!(bound.server_ms_at_most(bench.clock.now()).unwrap() < 6_000);
    assert!(bench.router.bound(&address("b")).is_none());
}

#[tokio::test(start_paused = true)]
async fn moved_is_followed_and_remembered() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.script("a", [redirect("MOVED", "k", "b")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    assert_eq!(bench.call("k").await.unwrap().address, address("b"));
    assert_eq!(bench.call("k").await.unwrap().address, address("b"));
    assert_eq!(bench.fakes.log("a"), [line("EVALSHA digest", "k", "a")]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The rest of the map was fetched aside, from the node that was named.
    assert_eq!(bench.router.topology.owner(Slot::of("m")), Some(address("b")));
    assert_eq!(bench.fakes.count("b", "CLUSTER"), 1);
}

#[tokio::test(start_paused = true)]
async fn moved_without_a_host_is_the_same_host() {
    let bench = Bench::new(&[ALL]).await;
    bench
        .fakes
        .script("a", [refusal(&format!("MOVED {} :1", Slot::of("x")))]);
    assert_eq!(bench.call("x").await.unwrap().address, address("a"));
}

#[tokio::test(start_paused = true)]
async fn ask_is_followed_once_and_not_remembered() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.script("a", [redirect("ASK", "k", "b")]);
    assert_eq!(bench.call("k").await.unwrap().address, address("b"));
    assert_eq!(
        bench.fakes.log("b"),
        ["ASKING".to_string(), line("EVALSHA digest", "k", "b")]
    );
    assert_eq!(bench.call("k").await.unwrap().address, address("a"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_script_is_sent_whole_to_the_same_server() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [refusal("NOSCRIPT No matching script.")]);
    bench.call("x").await.unwrap();
    assert_eq!(
        bench.fakes.log("a"),
        [line("EVALSHA digest", "x", "a"), line("EVAL return {}", "x", "a")]
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_script_under_ask_is_sent_whole_with_a_fresh_asking() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.script("a", [redirect("ASK", "k", "b")]);
    bench.fakes.script("b", [refusal("NOSCRIPT No matching script.")]);
    assert_eq!(bench.call("k").await.unwrap().address, address("b"));
    let asking = "ASKING".to_string();
    assert_eq!(
        bench.fakes.log("b"),
        [
            asking.clone(),
            line("EVALSHA digest", "k", "b"),
            asking,
            line("EVAL return {}", "k", "b")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_waited_for() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script(
        "a",
        [
            "TRYAGAIN x",
            "CLUSTERDOWN x",
            "LOADING x",
            "MASTERDOWN x",
            "READONLY x",
            "BUSY x",
        ]
        .map(refusal),
    );
    let answer = bench.call("x").await.unwrap();
    assert_eq!(answer.loose, None, "a refusal is an answer");
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 7);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_ends_by_the_deadline_and_says_why() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.always("a", refusal("CLUSTERDOWN The cluster is down"));
    let deadline = bench.within(3);
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(
        matches!(&error.reason, Reason::TimedOut(Some(last)) if last.code == "CLUSTERDOWN"),
        "{error}"
    );
    assert_eq!(error.loose, None);
    assert!(bench.clock.now() < deadline.after(Duration::from_millis(50)));
    let attempts = bench.fakes.count("a", "EVALSHA");
    assert!((25..80).contains(&attempts), "{attempts}: neither a storm nor asleep");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_it() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [refusal("OOM command not allowed")]);
    let error = bench.call("x").await.unwrap_err();
    assert!(
        matches!(&error.reason, Reason::Refused(last) if last.code == "OOM"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn garbage_is_a_typed_error() {
    let bench = Bench::new(&[ALL]).await;
    for act in [
        refusal("MOVED"),
        refusal("MOVED 1 a:1"),
        refusal("ASK x"),
        Act::Answer(Reply::Nil),
        Act::Answer(Reply::List(vec![])),
        Act::Answer(text("OK")),
    ] {
        bench.fakes.script("a", [act.clone()]);
        let error = bench.call("x").await.unwrap_err();
        assert!(matches!(error.reason, Reason::Garbled(_)), "{act:?} gave {error}");
        assert_eq!(error.loose, Some(0), "it may have been run");
    }
}

#[tokio::test(start_paused = true)]
async fn half_an_answer_is_none() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.script("a", [redirect("ASK", "k", "b")]);
    bench.fakes.script("b", [Act::Short]);
    // [ASKING, EVALSHA] gets one answer: the outcome is unknown, the connection is replaced, the call repeated.
    let answer = bench.call("k").await.unwrap();
    assert_eq!(answer.address, address("a"));
    assert_eq!(answer.loose, Some(0));
    assert_eq!(bench.fakes.dials("b"), 1);
    bench.call("x").await.unwrap();
    assert_eq!(bench.fakes.dials("b"), 2);
}

#[tokio::test(start_paused = true)]
async fn masters_that_name_each_other_end_soon_in_a_typed_error() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.always("a", redirect("MOVED", "k", "b"));
    bench.fakes.always("b", redirect("MOVED", "k", "a"));
    let start = bench.clock.now();
    let error = bench.call("k").await.unwrap_err();
    assert!(matches!(error.reason, Reason::TooManyRedirects(16)), "{error}");
    assert_eq!(error.loose, None);
    assert_eq!(
        bench.fakes.count("a", "EVALSHA") + bench.fakes.count("b", "EVALSHA"),
        17
    );
    assert!(bench.clock.now().since(start) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn silence_makes_the_outcome_unknown_and_the_call_is_repeated() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [Act::Hang]);
    let not_after = bench.clock.now().after(Duration::from_secs(2));
    let answer = bench
        .router
        .call(
            &Call {
                not_after: Some(not_after),
                ..call("x")
            },
            bench.within(5),
        )
        .await
        .unwrap();
    let told = |line: &String| line.split(' ').nth(5).unwrap().parse::<u64>().unwrap();
    let told: Vec<u64> = bench
        .fakes
        .log("a")
        .iter()
        .filter(|line| line.starts_with("EVALSHA"))
        .map(told)
        .collect();
    assert_eq!(told.len(), 2);
    assert_eq!(answer.loose, Some(told[0]));
    assert_eq!(
        bench.fakes.dials("a"),
        2,
        "nothing was heard on that connection, so it was replaced"
    );
}

#[tokio::test(start_paused = true)]
async fn silence_until_the_deadline_is_told() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [Act::Hang]);
    let deadline = bench.clock.now().after(Duration::from_millis(100));
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(matches!(error.reason, Reason::TimedOut(None)), "{error}");
    assert_eq!(error.loose, Some(0));
    assert_eq!(bench.clock.now(), deadline);
    // A short deadline alone is no reason to give the connection up.
    bench.call("x").await.unwrap();
    assert_eq!(bench.fakes.dials("a"), 1);
    // And a call that is late already is not sent.
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::TimedOut(None)) && error.loose.is_none(),
        "{error}"
    );
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_made_again() {
    let bench = Bench::new(&[ALL]).await;
    for (maybe_sent, loose) in [(true, Some(0)), (false, None)] {
        let start = bench.clock.now();
        bench.fakes.script("a", [Act::Break { maybe_sent }]);
        assert_eq!(bench.call("x").await.unwrap().loose, loose);
        assert!(bench.clock.now().since(start) < Duration::from_millis(5), "at once");
    }
    assert_eq!(bench.fakes.dials("a"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_known_to_be_broken_is_not_used() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.cut("a");
    assert_eq!(bench.call("x").await.unwrap().loose, None);
    assert_eq!(bench.fakes.dials("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_dialled_seldom_and_its_replacement_found() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.cut("a");
    bench.fakes.set_door("a", Door::Refuses);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let router = bench.router.clone();
            let deadline = bench.within(10);
            tokio::spawn(async move { router.call(&call("k"), deadline).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let dials = bench.fakes.dials("a");
    assert!(dials < 20, "{dials} dials of 50 calls in 4 s");
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    for call in calls {
        let answer = call.await.unwrap().unwrap();
        assert_eq!((answer.address, answer.loose), (address("b"), None));
    }
}

#[tokio::test(start_paused = true)]
async fn one_dial_serves_all_who_wait() {
    let bench = Bench::new(&HALVES).await;
    let calls = (0..20).map(|_| bench.call("x"));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(bench.fakes.dials("b"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_hangs_is_left_as_soon_as_another_names_the_new_owner() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let fakes = bench.fakes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        fakes.set_slots(&[(0, 16383, "b")]);
    });
    let start = bench.clock.now();
    let answer = bench.call("k").await.unwrap();
    let took = bench.clock.now().since(start);
    assert_eq!(answer.address, address("b"));
    assert_eq!(answer.loose, Some(0), "the stopped master may still run it");
    assert!(took < Duration::from_millis(4300), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_to_one_shard_go_on_while_another_hangs() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.stop("a", true);
    let stuck = {
        let (router, deadline) = (bench.router.clone(), bench.within(5));
        tokio::spawn(async move { router.call(&call("k"), deadline).await })
    };
    for _ in 0..100 {
        let start = bench.clock.now();
        bench.call("x").await.unwrap();
        assert_eq!(bench.clock.now(), start, "not a moment later");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let error = stuck.await.unwrap().unwrap_err();
    assert!(
        matches!(error.reason, Reason::TimedOut(None)) && error.loose == Some(0),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_refresh_is_in_flight_at_a_time() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.log("a");
    let refreshes = (0..50).map(|_| bench.router.topology.refresh(super::Whom::First(address("a"))));
    futures::future::join_all(refreshes).await;
    assert_eq!(bench.fakes.count("a", "CLUSTER") + bench.fakes.count("b", "CLUSTER"), 1);
    // And they are not back to back.
    let start = bench.clock.now();
    for _ in 0..10 {
        bench.router.topology.refresh(super::Whom::First(address("a"))).await;
    }
    assert!(bench.clock.now().since(start) >= Duration::from_millis(400));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_passes_by_nodes_that_do_not_answer() {
    let bench = Bench::new(&[(0, 5000, "a"), (5001, 10000, "b"), (10001, 16383, "c")]).await;
    bench.fakes.stop("a", true);
    bench.fakes.set_slots_of("b", Reply::List(vec![]));
    bench
        .fakes
        .set_slots_of("c", crate::node::fake::slots(&[(0, 16383, "c")]));
    bench.router.topology.refresh(super::Whom::First(address("a"))).await;
    assert_eq!(bench.router.topology.owner(Slot::of("k")), Some(address("c")));
}

#[tokio::test(start_paused = true)]
async fn the_map_is_refreshed_slowly_and_no_more_after_the_router_is_gone() {
    let bench = Bench::with(&[ALL], |settings| settings.refresh_interval = Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let refreshes = bench.fakes.count("a", "CLUSTER");
    assert!((5..=12).contains(&refreshes), "{refreshes}");
    let Bench { fakes, router, .. } = bench;
    let connections = Arc::downgrade(&router.connections);
    drop(router);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fakes.count("a", "CLUSTER") <= refreshes + 1);
    assert!(connections.upgrade().is_none(), "nothing holds the connections");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_nobody_serves() {
    let bench = Bench::new(&[(0, 8191, "a")]).await;
    let error = bench.router.call(&call("x"), bench.within(1)).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::NoNode(slot) if slot == Slot::of("x")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_cluster_serves_all_slots() {
    let fakes = Fakes::new(&[ALL]);
    fakes.set_slots_of(
        "a",
        Reply::Error(crate::node::fake::server_error(
            "ERR This instance has cluster support disabled",
        )),
    );
    let settings = RouterSettings {
        seeds: vec![address("a")],
        ..RouterSettings::default()
    };
    let clock = TestClock::start();
    let router = Router::connect(Arc::new(fakes), clock.clone(), settings).await.unwrap();
    let answer = router
        .call(&call("x"), clock.now().after(Duration::from_secs(1)))
        .await
        .unwrap();
    assert_eq!(answer.address, address("a"));
}

#[tokio::test(start_paused = true)]
async fn connecting_tries_all_seeds_and_says_what_is_wrong() {
    let fakes = Fakes::new(&[ALL]);
    fakes.set_door("dead", Door::Refuses);
    fakes.set_door("slow", Door::Hangs);
    fakes.set_door("locked", Door::Locked);
    let connect = |seeds: &[&str]| {
        let seeds = seeds.iter().map(|host| address(host)).collect();
        let settings = RouterSettings {
            seeds,
            ..RouterSettings::default()
        };
        Router::connect(Arc::new(fakes.clone()), TestClock::start(), settings)
    };
    assert!(connect(&["slow", "dead", "a"]).await.is_ok());
    assert!(matches!(
        connect(&["slow", "dead"]).await.unwrap_err().reason,
        Reason::Unreachable
    ));
    let error = connect(&["locked"]).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Permanent), "{error}");
    assert_eq!(error.last.unwrap().message, "WRONGPASS");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_not_tried_until_the_deadline() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.cut("a");
    bench.fakes.set_door("a", Door::Locked);
    let error = bench.call("x").await.unwrap_err();
    assert!(matches!(error.reason, Reason::Permanent), "{error}");
}

#[tokio::test(start_paused = true)]
async fn after_closing_every_call_fails() {
    let bench = Bench::new(&[ALL]).await;
    bench.router.close().await;
    assert!(matches!(bench.call("x").await.unwrap_err().reason, Reason::Closed));
}

#[tokio::test(start_paused = true)]
async fn announced_addresses_are_translated() {
    let bench = Bench::with(&[ALL], |settings| {
        settings.translate = Some(Arc::new(|host, port| (format!("{host}.out"), port)));
    })
    .await;
    bench.fakes.set_slots_of("a.out", crate::node::fake::slots(&[ALL]));
    assert_eq!(bench.call("x").await.unwrap().address, address("a.out"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_pipeline_per_node_and_redirected_one_by_one() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.log("a");
    bench.fakes.log("b");
    bench.fakes.script(
        "a",
        [redirect("MOVED", "k", "b"), refusal("NOSCRIPT x"), refusal("OOM x")],
    );
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    let keys = ["k", "x", "{k}2", "{x}2", "{k}3", "{x}3"];
    let calls: Vec<Call> = keys.iter().map(|key| call(key)).collect();
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    let hosts: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().map(|answer| answer.address.host.to_string()))
        .collect();
    assert_eq!(hosts[0].as_deref().unwrap(), "b");
    assert_eq!(hosts[1].as_deref().unwrap(), "b");
    assert_eq!(hosts[2].as_deref().unwrap(), "a", "EVAL at the same node");
    assert!(matches!(&outcomes[4].as_ref().unwrap_err().reason, Reason::Refused(error) if error.code == "OOM"));
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 3);
    assert_eq!(bench.fakes.count("a", "EVAL "), 1);
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_answered_in_order() {
    let bench = Bench::new(&HALVES).await;
    let calls: Vec<Call> = (0..1000).map(|number| call(&number.to_string())).collect();
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    assert_eq!(outcomes.len(), 1000);
    for (call, outcome) in calls.iter().zip(outcomes) {
        let host = if call.slot.get() < 8192 { "a" } else { "b" };
        assert_eq!(outcome.unwrap().address, address(host));
    }
    assert!(bench.router.batch(&[], bench.within(5)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sick_node_delays_only_its_own_part_of_a_batch() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.script("a", [Act::Hang]);
    let calls = [call("k"), call("x"), call("{k}2")];
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    let outcomes: Vec<Answer> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes[1].received, outcomes[1].sent);
    assert_eq!(outcomes[1].loose, None);
    for sick in [0, 2] {
        assert_eq!(outcomes[sick].loose, Some(0));
        assert!(outcomes[sick].received > outcomes[1].received);
    }
}
