//! Many calls at once.

use super::*;

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
    assert_eq!(bench.fakes.dials("a"), 2, "nothing was heard on that connection");
    for sick in [0, 2] {
        assert_eq!(outcomes[sick].loose, Some(0));
        assert!(outcomes[sick].received > outcomes[1].received);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_has_no_more_than_a_few_pipelines_to_answer() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.always("a", Act::Hang);
    let calls: Vec<Call> = (0..1024).map(|number| call(&number.to_string())).collect();
    let late = Duration::from_millis(100);
    let batch = bench.router.batch(&calls, bench.within(5));
    assert!(tokio::time::timeout(late, batch).await.is_err());
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 1 + 4 * 128);
}
