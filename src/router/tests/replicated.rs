//! Calls that replicas must confirm.

use futures::future::join_all;
use rwlease_core::protocol::ConfirmationError;

use super::*;

const NO_REPLICA: ConfirmationError = ConfirmationError::TooFewReplicas { confirmed: 0, wanted: 1 };

impl Bench {
    async fn confirmed(&self, key: &str) -> Result<CallReply, CallError> {
        self.router.call_replicated(&call(key), ONE_REPLICA, self.within(10)).await
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_together_share_a_wait() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.log("a");
    let keys: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let answers = join_all(keys.iter().map(|key| bench.confirmed(key))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().confirmed.is_ok()));
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 50);
    assert!(bench.fakes.count("a", "WAIT 1 250") <= 2, "{:?}", bench.fakes.log("a"));
    assert_eq!(bench.fakes.dials("a"), 2, "a connection that nobody else uses");
}

#[tokio::test(start_paused = true)]
async fn an_error_in_place_of_the_number_confirms_nothing() {
    let bench = Bench::new(&[ALL]).await;
    for act in [refusal("UNBLOCKED x"), FakeReply::Answer(RespValue::Int(0))] {
        bench.fakes.confirm("a", act);
        assert_eq!(bench.confirmed("k").await.unwrap().confirmed, Err(NO_REPLICA));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_replica_holds_up_nobody_else() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.confirm("a", FakeReply::Delayed(Duration::from_millis(250), RespValue::Int(0)));
    let (slow, plain) = tokio::join!(bench.confirmed("k"), bench.call("k2"));
    let (slow, plain) = (slow.unwrap(), plain.unwrap());
    assert_eq!(slow.confirmed, Err(NO_REPLICA));
    assert!(
        slow.received_at.saturating_duration_since(plain.received_at) >= Duration::from_millis(200)
    );
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_on_broken_connection_is_repeated_in_doubt() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Break { maybe_sent: true }]);
    let answer = bench.confirmed("k").await.unwrap();
    assert_eq!((answer.confirmed, answer.in_doubt), (Ok(()), Doubt::Unbounded));
    bench.fakes.confirm("a", FakeReply::Hang);
    let error =
        bench.router.call_replicated(&call("k"), ONE_REPLICA, bench.within(2)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut(_)) && !error.in_doubt.is_none());
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
    assert_eq!(other.unwrap().confirmed, Ok(()));
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 1, "{:?}", bench.fakes.log("a"));
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_given_up_behind_a_group_takes_no_place_in_the_next_one() {
    let bench = Bench::new(&[ALL]).await;
    bench.confirmed("k").await.unwrap();
    bench.fakes.log("a");
    bench.fakes.confirm("a", FakeReply::Delayed(Duration::from_millis(250), RespValue::Int(1)));
    let behind = async |key: String, is_wanted: bool| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let limit = Duration::from_millis(if is_wanted { 5_000 } else { 50 });
        tokio::time::timeout(limit, bench.confirmed(&key)).await.is_ok()
    };
    let calls = join_all((0..240).map(|number| behind(number.to_string(), number >= 120)));
    let (first, answered) = tokio::join!(bench.confirmed("k"), calls);
    first.unwrap();
    assert_eq!(answered.iter().filter(|answered| **answered).count(), 120);
    assert_eq!(bench.fakes.count("a", "WAIT 1 250"), 2, "{:?}", bench.fakes.log("a"));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_that_disks_must_confirm_share_a_wait() {
    let bench = Bench::new(&[ALL]).await;
    let on_disk = Confirmation { replicas: 0, fsync: Fsync::Master };
    let keys: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let calls = keys
        .iter()
        .map(async |key| bench.router.call_replicated(&call(key), on_disk, bench.within(10)).await);
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().confirmed.is_ok()));
    let waits = bench.fakes.count("a", "WAITAOF 1 0 2000");
    assert!(waits <= 2, "{waits}");
}

/// A renewal that waits behind acquires may come too late for its lease.
#[tokio::test(start_paused = true)]
async fn confirmed_renewal_goes_in_the_next_group() {
    let bench = Bench::new(&[ALL]).await;
    bench.confirmed("k").await.unwrap();
    bench.fakes.confirm("a", FakeReply::Delayed(Duration::from_millis(100), RespValue::Int(1)));
    bench.fakes.set_reply("a", FakeReply::Answer(text(&format!("granted {EPOCH_MS} 0"))));
    let send = async |script, key: &str| {
        let call = Call { script, ..call(key) };
        bench.router.call_replicated(&call, ONE_REPLICA, bench.within(10)).await
    };
    let acquires = (0..3_000)
        .map(async |number: u32| send(ScriptName::SetNxAcquire, &number.to_string()).await);
    let renewal = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = bench.clock.now();
        send(ScriptName::SetNxRenew, "k").await.unwrap();
        bench.since(begin)
    };
    let (acquires, took) = tokio::join!(join_all(acquires), renewal);
    assert!(acquires.iter().all(Result::is_ok));
    assert!(took <= Duration::from_millis(150), "{took:?}");
}

/// Calls behind a group that a dead server does not answer go to the new master with the others.
#[tokio::test(start_paused = true)]
async fn calls_behind_a_group_do_not_wait_for_a_dead_server() {
    let bench = Bench::new(&HALVES).await;
    bench.confirmed("k").await.unwrap();
    bench.fakes.stop("a", true);
    bench.fakes.set_dial_behavior("a", DialBehavior::Hang);
    bench.give_all_to_b_after(Duration::from_secs(2));
    let start = bench.clock.now();
    let keys = (0..3000).map(|number| number.to_string());
    let keys: Vec<String> = keys.filter(|key| Slot::of(key).get() < 8192).collect();
    for answer in join_all(keys.iter().map(|key| bench.confirmed(key))).await {
        assert_eq!(answer.unwrap().server, address("b"));
    }
    let took = bench.since(start);
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_connections_of_confirmed_calls_end_with_the_router() {
    let bench = Bench::new(&[ALL]).await;
    bench.confirmed("k").await.unwrap();
    assert!(bench.router.replicated.is_ready(&address("a"), ONE_REPLICA));
    bench.router.close();
    assert!(!bench.router.replicated.is_ready(&address("a"), ONE_REPLICA));
}
