//! Calls that replicas must confirm.

use futures::future::join_all;

use super::*;

impl Bench {
    async fn confirmed(&self, key: &str) -> Result<CallReply, CallError> {
        self.router.call_replicated(&call(key), 1, self.within(10)).await
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_together_share_a_wait() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.log("a");
    let keys: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let answers = join_all(keys.iter().map(|key| bench.confirmed(key))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().replicas_confirmed == 1));
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 50);
    assert!(bench.fakes.count("a", "WAIT 1 250") <= 2, "{:?}", bench.fakes.log("a"));
    assert_eq!(bench.fakes.dials("a"), 2, "a connection that nobody else uses");
}

#[tokio::test(start_paused = true)]
async fn an_error_in_place_of_the_number_confirms_nothing() {
    let bench = Bench::new(&[ALL]).await;
    for act in [refusal("UNBLOCKED x"), FakeReply::Answer(RespValue::Int(0))] {
        bench.fakes.confirm("a", act);
        assert_eq!(bench.confirmed("k").await.unwrap().replicas_confirmed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_replica_holds_up_nobody_else() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.confirm("a", FakeReply::Delayed(Duration::from_millis(250), RespValue::Int(0)));
    let (slow, plain) = tokio::join!(bench.confirmed("k"), bench.call("k2"));
    let (slow, plain) = (slow.unwrap(), plain.unwrap());
    assert_eq!(slow.replicas_confirmed, 0);
    assert!(
        slow.received_at.saturating_duration_since(plain.received_at) >= Duration::from_millis(200)
    );
}

#[tokio::test(start_paused = true)]
async fn redirected_call_is_confirmed_at_the_server_that_ran_it() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    let answer = bench.confirmed("k").await.unwrap();
    assert_eq!((answer.server, answer.replicas_confirmed), (address("b"), 1));
    assert_eq!(bench.fakes.count("b", "WAIT"), 1);
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.fakes.queue_replies("b", [refusal("NOSCRIPT x")]);
    let answer = bench.confirmed("k").await.unwrap();
    assert_eq!((answer.server, answer.replicas_confirmed), (address("b"), 1));
    let said: Vec<String> = bench.fakes.log("b");
    let first_words: Vec<&str> = said.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(first_words, ["ASKING", "EVALSHA", "WAIT", "ASKING", "EVAL", "WAIT"]);
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_on_broken_connection_is_repeated_in_doubt() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Break { maybe_sent: true }]);
    let answer = bench.confirmed("k").await.unwrap();
    assert_eq!((answer.replicas_confirmed, answer.in_doubt), (1, Some(0)));
    bench.fakes.confirm("a", FakeReply::Hang);
    let error = bench.router.call_replicated(&call("k"), 1, bench.within(2)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut(_)) && error.in_doubt.is_some());
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_given_up_before_connect_is_not_sent() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.log("a");
    bench.fakes.set_dial_behavior("a", DialBehavior::AcceptDelayed(Duration::from_millis(100)));
    let given_up = tokio::time::timeout(Duration::from_millis(50), bench.confirmed("k"));
    let (given_up, other) = tokio::join!(given_up, bench.confirmed("k2"));
    assert!(given_up.is_err());
    assert_eq!(other.unwrap().replicas_confirmed, 1);
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 1, "{:?}", bench.fakes.log("a"));
}

/// Calls behind a group that a dead server does not answer go to the new master with the others.
#[tokio::test(start_paused = true)]
async fn calls_behind_a_group_do_not_wait_for_a_dead_server() {
    let bench = Bench::new(&HALVES).await;
    bench.confirmed("k").await.unwrap();
    bench.fakes.stop("a", true);
    bench.fakes.set_dial_behavior("a", DialBehavior::Hang);
    let fakes = bench.fakes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        fakes.set_slots(&[(0, 16383, "b")]);
    });
    let start = bench.clock.now();
    let keys = (0..3000).map(|number| number.to_string());
    let keys: Vec<String> = keys.filter(|key| Slot::of(key).get() < 8192).collect();
    for answer in join_all(keys.iter().map(|key| bench.confirmed(key))).await {
        assert_eq!(answer.unwrap().server, address("b"));
    }
    let took = bench.clock.now().saturating_duration_since(start);
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_connections_of_confirmed_calls_end_with_the_router() {
    let bench = Bench::new(&[ALL]).await;
    bench.confirmed("k").await.unwrap();
    assert!(bench.router.replicated.is_ready(&address("a"), 1));
    bench.router.close();
    assert!(!bench.router.replicated.is_ready(&address("a"), 1));
}
