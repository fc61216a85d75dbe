//! Many calls at once.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_pipeline_per_node_and_redirected_one_by_one() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.log("a");
    bench.fakes.log("b");
    bench
        .fakes
        .queue_replies("a", [redirect("MOVED", "k", "b"), refusal("NOSCRIPT x"), refusal("OOM x")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    let keys = ["k", "x", "{k}2", "{x}2", "{k}3", "{x}3"];
    let calls: Vec<Call> = keys.iter().map(|key| call(key)).collect();
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    let hosts: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().map(|answer| answer.server.host.to_string()))
        .collect();
    assert_eq!(hosts[0].as_deref().unwrap(), "b");
    assert_eq!(hosts[1].as_deref().unwrap(), "b");
    assert_eq!(hosts[2].as_deref().unwrap(), "a", "EVAL at the same node");
    assert!(
        matches!(&outcomes[4].as_ref().unwrap_err().kind, CallErrorKind::Rejected(error) if error.code == "OOM")
    );
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 3);
    assert_eq!(bench.fakes.count("a", "EVAL "), 1);
    assert!(bench.router.batch(&[], bench.within(5)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sick_node_delays_only_its_own_part_of_a_batch() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.queue_replies("a", [FakeReply::Hang]);
    let calls = [call("k"), call("x"), call("{k}2")];
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    let outcomes: Vec<CallReply> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes[1].received_at, outcomes[1].sent_at);
    assert_eq!(outcomes[1].in_doubt, Doubt::None);
    assert_eq!(bench.fakes.dials("a"), 2, "nothing was heard on that connection");
    for sick in [0, 2] {
        assert_eq!(outcomes[sick].in_doubt, Doubt::Unbounded);
        assert!(outcomes[sick].received_at > outcomes[1].received_at);
    }
}

#[tokio::test(start_paused = true)]
async fn batch_to_silent_node_is_repeated_at_the_new_master_in_pipelines() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let before = bench.fakes.pipelines("b");
    let calls: Vec<Call> = (0..512).map(|number| call(&format!("{{k}}{number}"))).collect();
    bench.give_all_to_b_after(Duration::from_secs(2));
    for outcome in bench.router.batch(&calls, bench.within(5)).await {
        let answer = outcome.unwrap();
        assert_eq!((answer.server, answer.in_doubt), (address("b"), Doubt::Unbounded));
    }
    // The others carried the query for the slot map.
    let pipelines = bench.fakes.pipelines("b") - before - bench.fakes.count("b", "CLUSTER SLOTS");
    assert_eq!(pipelines, 512 / 128);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_dialled_for_all_of_a_batch_at_once() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.refuse("a");
    let calls: Vec<Call> = (0..512).map(|number| call(&format!("{{k}}{number}"))).collect();
    for outcome in bench.router.batch(&calls, bench.within(2)).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::TimedOut(None)), "{error}");
        assert_eq!(error.in_doubt, Doubt::None);
    }
    let dials = bench.fakes.dials("a");
    assert!(dials < 20, "{dials} dials in 2 s");
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_ends_a_batch() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.refuse("a");
    let router = bench.router.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        router.close();
    });
    let start = bench.clock.now();
    let outcomes = bench.router.batch(&[call("k"), call("{k}2")], bench.within(5)).await;
    for outcome in outcomes {
        assert!(matches!(outcome.unwrap_err().kind, CallErrorKind::Closed));
    }
    assert!(bench.since(start) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn guests_go_in_pipelines_too() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.log("b");
    let before = bench.fakes.pipelines("b");
    bench.fakes.set_reply("a", redirect("ASK", "k", "b"));
    bench.fakes.queue_replies("b", (0..128).map(|_| refusal("NOSCRIPT x")));
    let calls: Vec<Call> = (0..128).map(|number| call(&format!("{{k}}{number}"))).collect();
    for outcome in bench.router.batch(&calls, bench.within(2)).await {
        assert_eq!(outcome.unwrap().server, address("b"));
    }
    assert_eq!(bench.fakes.pipelines("b") - before, 2);
    assert_eq!(bench.fakes.count("b", "EVAL "), 1);
    let log = bench.fakes.log("b");
    assert_eq!(log.len(), 2 * 2 * 128);
    for pair in log.chunks(2) {
        assert!(pair[0] == "ASKING" && pair[1].starts_with("EVAL"), "{pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_without_an_answer_says_until_when_it_may_arrive() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let now = bench.fakes.server_ms();
    let calls =
        [1, 2, 3].map(|seconds| Call { not_after: Some(bench.within(seconds)), ..call("k") });
    let outcomes = bench.router.batch(&calls, bench.within(4)).await;
    let in_doubt: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.unwrap_err().in_doubt).collect();
    // The bound of the server's clock is a millisecond wide.
    assert_eq!(in_doubt, [1001, 2001, 3001].map(|left| Doubt::Until(now + left)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_redirected_does_not_wait_for_one_in_trouble() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b"), refusal("CLUSTERDOWN x")]);
    let start = bench.clock.now();
    let answers = bench.router.batch(&[call("k"), call("{k}2")], bench.within(2)).await;
    let took =
        |at: usize| answers[at].as_ref().unwrap().received_at.saturating_duration_since(start);
    assert_eq!(took(0), Duration::ZERO);
    assert!(took(1) > Duration::ZERO);
}

/// The worker may have thousands of releases to send when a renewal is due.
#[tokio::test(start_paused = true)]
async fn renewals_do_not_wait_for_other_batches() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    let (late, calls) = (Duration::from_millis(400), 8 * 128);
    bench.fakes.queue_replies("a", (0..calls).map(|_| FakeReply::Delayed(late, script_reply(1))));
    let releases: Vec<Call> = (0..calls).map(|number| call(&number.to_string())).collect();
    let (start, within) = (bench.clock.now(), bench.within(5));
    let renewals = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(bench.fakes.count("a", "EVALSHA"), 4 * 128 + 1, "half of the releases wait");
        let renewal = [call("renewal")];
        bench.router.call_each(&renewal, within, Priority::Renewals, |_, _| ()).await;
        bench.since(start)
    };
    let (_, took) = tokio::join!(bench.router.batch(&releases, within), renewals);
    // Its answer is behind those of the pipelines that were sent before.
    assert!(took <= 2 * late, "{took:?}");
}
