//! How the router handles each kind of answer.

use futures::future::join_all;

use super::*;

#[tokio::test(start_paused = true)]
async fn every_reply_feeds_the_bound() {
    let bench = Bench::new(&[ALL]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    bench.fakes.queue_replies("a", [FakeReply::Answer(script_reply(5_000))]);
    bench.call("x").await.unwrap();
    // The server's clock was set back; an answer from 100 s ago no longer counts.
    let bound = bench.router.clock_bounds(&address("a")).unwrap();
    assert!(bound.max_server_ms(bench.clock.now()).unwrap() < 6_000);
    assert!(bench.router.clock_bounds(&address("b")).is_none());
}

#[tokio::test(start_paused = true)]
async fn moved_is_followed_and_remembered() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
    let mut calls = bench.fakes.log("a");
    calls.retain(|line| !line.starts_with("CLUSTER"));
    assert_eq!(calls, [line("EVALSHA digest", "k", "a")]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The rest of the map was fetched in the background, from the node that was named.
    assert_eq!(bench.router.topology.master_of(Slot::of("m")), Some(address("b")));
    assert_eq!(bench.fakes.count("b", "CLUSTER SLOTS"), 1);
}

#[tokio::test(start_paused = true)]
async fn ask_is_followed_once_and_not_remembered() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
    assert_eq!(bench.fakes.log("b"), ["ASKING".to_string(), line("EVALSHA digest", "k", "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("a"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_asking_is_the_answer() {
    let moved = redirect("MOVED", "k", "a");
    let refused = |bench: Bench| {
        bench.fakes.set_reply("a", redirect("ASK", "k", "b"));
        bench.fakes.on_asking("b", refusal("NOPERM no right to asking"));
        bench.fakes.set_reply("b", moved.clone());
        bench
    };
    let is_refusal = |outcome: Result<CallReply, CallError>| {
        let reason = outcome.unwrap_err().kind;
        assert!(
            matches!(&reason, CallErrorKind::Rejected(error) if error.code == "NOPERM"),
            "{reason:?}"
        );
    };
    let bench = refused(Bench::new(&HALVES).await);
    is_refusal(bench.call("k").await);
    is_refusal(bench.router.call_replicated(&call("k"), ONE_REPLICA, bench.within(2)).await);
    let calls = [call("k"), call("{k}2")];
    bench.router.batch(&calls, bench.within(2)).await.into_iter().for_each(is_refusal);

    // The slot has arrived meanwhile.
    bench.fakes.on_asking("b", refusal("ERR any"));
    bench.fakes.set_reply("b", FakeReply::Answer(script_reply(bench.fakes.server_ms())));
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
}

#[tokio::test(start_paused = true)]
async fn a_target_of_ask_that_is_silent_is_left() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.fakes.set_reply("b", FakeReply::Hang);
    assert_eq!(bench.call("k").await.unwrap().server, address("a"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_script_under_ask_is_sent_whole_with_a_fresh_asking() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.fakes.queue_replies("b", [refusal("NOSCRIPT No matching script.")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
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
async fn call_retries_after_transient_errors_and_is_not_in_doubt() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies(
        "a",
        [
            "TRYAGAIN x",
            "CLUSTERDOWN x",
            "LOADING x",
            "MASTERDOWN x",
            "READONLY x",
            "BUSY x",
            "NOREPLICAS x",
        ]
        .map(refusal),
    );
    let answer = bench.call("x").await.unwrap();
    assert_eq!(answer.in_doubt, Doubt::None, "a refusal is an answer");
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 8);
}

#[tokio::test(start_paused = true)]
async fn call_with_lasting_clusterdown_returns_timed_out_at_its_deadline() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.set_reply("a", refusal("CLUSTERDOWN The cluster is down"));
    let deadline = bench.within(3);
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(
        matches!(&error.kind, CallErrorKind::TimedOut(Some(last)) if last.code == "CLUSTERDOWN"),
        "{error}"
    );
    assert_eq!(error.in_doubt, Doubt::None);
    assert!(bench.clock.now() < deadline.saturating_add(Duration::from_millis(50)));
    let attempts = bench.fakes.count("a", "EVALSHA");
    assert!((25..80).contains(&attempts), "{attempts}: neither a storm nor asleep");
}

/// Replies that cannot be those to a call of a script with this key.
fn misfits() -> [FakeReply; 6] {
    [
        refusal("MOVED"),
        refusal("MOVED 1 a:1"),
        refusal("ASK x"),
        FakeReply::Answer(RespValue::Nil),
        FakeReply::Answer(RespValue::Array(vec![])),
        FakeReply::Answer(text("OK")),
    ]
}

#[tokio::test(start_paused = true)]
async fn call_with_a_reply_that_does_not_fit_is_made_again_on_a_new_connection_or_fails_soon() {
    for act in misfits() {
        let bench = Bench::new(&[ALL]).await;
        bench.fakes.queue_replies("a", [act.clone()]);
        let answer = bench.call("x").await.unwrap();
        assert_eq!(answer.in_doubt, Doubt::Unbounded, "{act:?}: it may have been run");
        assert_eq!(bench.fakes.dials("a"), 2);
        bench.fakes.log("a");
        bench.fakes.set_reply("a", act.clone());
        let error = bench.call("x").await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::MalformedReply(_)), "{act:?} gave {error}");
        assert!(error.to_string().starts_with("unexpected reply: "), "{error}");
        assert_eq!(error.in_doubt, Doubt::Unbounded, "it may have been run");
        assert_eq!(bench.fakes.count("a", "EVALSHA"), 3);
    }
}

/// After one reply that does not fit, none that was pending is believed: it may be that of another
/// caller.
#[tokio::test(start_paused = true)]
async fn calls_pending_beside_a_reply_that_does_not_fit_are_made_again() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Answer(RespValue::Int(1))]);
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let answers = join_all(keys.iter().map(|key| bench.call(key))).await;
    for answer in answers {
        assert_eq!(answer.unwrap().in_doubt, Doubt::Unbounded);
    }
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 20);
    assert_eq!(bench.fakes.dials("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn ask_with_one_reply_of_two_reconnects_and_repeats_the_call() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.fakes.queue_replies("b", [FakeReply::Short]);
    // [ASKING, EVALSHA] gets one answer: the outcome is unknown, the connection is replaced, the
    // call repeated.
    let answer = bench.call("k").await.unwrap();
    assert_eq!(answer.server, address("a"));
    assert_eq!(answer.in_doubt, Doubt::Unbounded);
    assert_eq!(bench.fakes.dials("b"), 1);
    bench.call("x").await.unwrap();
    assert_eq!(bench.fakes.dials("b"), 2);
}

#[tokio::test(start_paused = true)]
async fn call_to_masters_that_name_each_other_fails_at_its_deadline_and_says_why() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.set_reply("a", redirect("MOVED", "k", "b"));
    bench.fakes.set_reply("b", redirect("MOVED", "k", "a"));
    let deadline = bench.within(8);
    let error = bench.router.call(&call("k"), deadline).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TooManyRedirects(_)), "{error}");
    assert_eq!(error.in_doubt, Doubt::None);
    assert!(bench.clock.now() >= deadline);
    let calls = bench.fakes.count("a", "EVALSHA") + bench.fakes.count("b", "EVALSHA");
    assert!((60..200).contains(&calls), "{calls}: neither a storm nor asleep");
    let maps = bench.fakes.count("a", "CLUSTER SLOTS") + bench.fakes.count("b", "CLUSTER SLOTS");
    assert!(maps < 60, "{maps}");
    // The other slots are served.
    bench.fakes.queue_replies("b", [FakeReply::Answer(script_reply(bench.fakes.server_ms()))]);
    bench.call("x").await.unwrap();
}

/// The caller's code runs within a call, and in the tasks that many calls wait for.
#[tokio::test(start_paused = true)]
async fn address_translator_that_panics_leaves_the_announced_address() {
    let panics = |settings: &mut RouterConfig| {
        settings.address_translator = Some(Arc::new(|_, _| panic!("as the test wants")));
    };
    let bench = Bench::with(&HALVES, panics).await;
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    assert_eq!(bench.call("k").await.unwrap().server, address("b"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.router.topology.master_of(Slot::of("m")), Some(address("b")));
    assert_eq!(bench.router.runtime.health().failure(), None);
}
