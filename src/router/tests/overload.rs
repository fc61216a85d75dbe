//! More calls than a server can answer, and servers whose answers are useless.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, join_all};
use tokio::task::JoinHandle;

use super::*;
use crate::Client;
use crate::backend::fake::CALLER;
use crate::client::config::ClientConfig;
use crate::scripts::Scripts;

fn late(ms: u64) -> FakeReply {
    FakeReply::Delayed(Duration::from_millis(ms), script_reply(EPOCH_MS))
}

fn in_flight(calls: usize) -> impl FnOnce(&mut RouterConfig) {
    move |settings| settings.max_in_flight_per_server = calls
}

impl Bench {
    async fn call_for(&self, key: &str, ms: u64) -> Result<CallReply, CallError> {
        let deadline = self.clock.now().saturating_add(Duration::from_millis(ms));
        self.router.call(&call(key), deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_has_no_more_calls_to_answer_than_the_setting_says() {
    let bench = Bench::with(&[ALL], in_flight(8)).await;
    bench.fakes.set_reply("a", late(100));
    let keys: Vec<String> = (0..80).map(|number| number.to_string()).collect();
    let begin = bench.clock.now();
    let calls = join_all(keys.iter().map(|key| bench.call(key)));
    let look = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(bench.fakes.count("a", "EVALSHA"), 8);
    };
    let (answers, ()) = tokio::join!(calls, look);
    let mut last = begin;
    for answer in answers {
        let answer = answer.unwrap();
        assert!(answer.sent_at >= last, "first come, first served");
        assert_eq!(answer.in_doubt, Doubt::None);
        last = answer.sent_at;
    }
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 80);
}

#[tokio::test(start_paused = true)]
async fn call_to_slow_server_is_not_sent_twice() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.log("a");
    // One answer every 100 ms: the last comes after 2 s.
    bench.fakes.queue_replies("a", (1..=20).map(|number| late(100 * number)));
    let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for answer in join_all(keys.iter().map(|key| bench.call(key))).await {
        assert_eq!(answer.unwrap().in_doubt, Doubt::None);
    }
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 20);
    assert_eq!(bench.fakes.dials("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn batch_to_slow_server_is_not_sent_twice() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", (0..128).map(|_| late(0)).chain([late(400), late(300)]));
    let calls: Vec<Call> = (0..130).map(|number| call(&number.to_string())).collect();
    let within = bench.within(5);
    let alive = async {
        // Something else is answered meanwhile.
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            bench.call("k").await.unwrap();
        }
    };
    let (outcomes, ()) = tokio::join!(bench.router.batch(&calls, within), alive);
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap().in_doubt.is_none()));
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 134);
    assert_eq!(bench.fakes.dials("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn queued_call_without_time_left_returns_overloaded_unsent() {
    let bench = Bench::with(&[ALL], in_flight(1)).await;
    bench.fakes.queue_replies("a", [late(400)]);
    let begin = bench.clock.now();
    let waiter = async {
        let outcome = bench.call_for("x", 300).await;
        (outcome, bench.since(begin))
    };
    let (first, (second, after), third) = tokio::join!(bench.call("k"), waiter, bench.call("{k}2"));
    first.unwrap();
    let error = second.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Overloaded), "{error}");
    assert_eq!(error.in_doubt, Doubt::None);
    assert!(after < Duration::from_millis(300), "in time: {after:?}");
    assert_eq!(third.unwrap().in_doubt, Doubt::None, "it does not hold up those behind it");
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 2);
}

/// Calls at twice the rate of the server, each with half a second. A full set of calls in flight
/// takes the server longer than that.
#[tokio::test(start_paused = true)]
async fn max_in_flight_adapts_to_a_server_at_twice_its_capacity() {
    let bench = Arc::new(Bench::new(&[ALL]).await);
    bench.fakes.set_script_time("a", Duration::from_millis(2));
    let mut calls = Vec::new();
    for number in 0..20_000 {
        let bench = bench.clone();
        calls.push(tokio::spawn(async move { bench.call_for(&number.to_string(), 500).await }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (mut answered, mut in_doubt) = (0, 0);
    for call in calls.split_off(10_000) {
        match call.await.unwrap() {
            Ok(_) => answered += 1,
            Err(error) => in_doubt += usize::from(error.in_doubt != Doubt::None),
        }
    }
    assert!(answered > 3_750, "{answered} of the 5,000 that the server can do");
    assert!(in_doubt < 500, "{in_doubt} of 10,000 in doubt");
}

/// A server that runs each script at once, with replies that are under way for so long.
async fn distant(round_trip: u64) -> Arc<Bench> {
    let fakes = FakeCluster::new(&[ALL]);
    fakes.set_round_trip("a", Duration::from_millis(round_trip));
    Arc::new(Bench::of(fakes, &["a"]).await)
}

/// A server at that distance, whose client keeps one call in flight, and has sent it.
async fn distant_with_a_call(
    round_trip: u64,
) -> (Arc<Bench>, JoinHandle<Result<CallReply, CallError>>) {
    let fakes = FakeCluster::new(&[ALL]);
    fakes.set_round_trip("a", Duration::from_millis(round_trip));
    let mut settings =
        RouterConfig { seeds: vec![address("a")], scripts: scripts(), ..RouterConfig::default() };
    in_flight(1)(&mut settings);
    let clock: Arc<dyn Clock> = TestClock::start();
    let router = Router::connect(Arc::new(fakes.clone()), clock.clone(), settings).await.unwrap();
    let bench = Arc::new(Bench { fakes, clock, router });
    let first = tokio::spawn({
        let bench = bench.clone();
        async move { bench.call_for("first", 2_000).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    (bench, first)
}

/// After the stall, calls that wait in the client are not sent with less time left than the server
/// needs for a reply, and late replies to calls with too little time raise the limit again.
#[tokio::test(start_paused = true)]
async fn stall_of_a_server_at_over_half_the_timeout_away_passes() {
    let bench = distant(300).await;
    let mut calls = Vec::new();
    for number in 0..8_000 {
        if number == 1_000 {
            bench.fakes.stall("a", Duration::from_millis(300));
        }
        for copy in 0..3 {
            let bench = bench.clone();
            calls.push(tokio::spawn(async move {
                bench.call_for(&format!("{number}-{copy}"), 500).await.is_ok()
            }));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = join_all(calls.split_off(18_000)).await;
    let answered = last.into_iter().filter(|is_ok| *is_ok.as_ref().unwrap()).count();
    assert_eq!(answered, 6_000, "of the last ten seconds");
}

/// Their time is up before a reply can arrive, whatever the number of calls in flight.
#[tokio::test(start_paused = true)]
async fn callers_with_less_time_than_a_round_trip_do_not_lower_the_limit_of_the_others() {
    let bench = distant(60).await;
    let mut calls = Vec::new();
    for number in 0..5_000 {
        for copy in 0..3 {
            let bench = bench.clone();
            let is_hasty = copy == 0 && number % 33 == 0;
            let ms = if is_hasty { 50 } else { 2_000 };
            calls.push(tokio::spawn(async move {
                bench.call_for(&format!("{number}-{copy}"), ms).await.is_ok() || is_hasty
            }));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answered = join_all(calls).await.into_iter().filter(|is_ok| *is_ok.as_ref().unwrap());
    assert_eq!(answered.count(), 15_000);
}

/// Whoever repeats such a call at once must not keep the runtime from the replies.
#[tokio::test(start_paused = true)]
async fn call_with_less_time_than_a_round_trip_waits_before_it_is_overloaded() {
    let (bench, first) = distant_with_a_call(450).await;
    let began = bench.clock.now();
    let refused = bench.call_for("k", 800).await.unwrap_err();
    assert!(matches!(refused.kind, CallErrorKind::Overloaded), "{refused}");
    let waited = bench.clock.now().saturating_duration_since(began);
    assert_eq!(waited, Duration::from_millis(200));
    assert!(first.await.unwrap().is_ok());
}

/// A permit comes when less than a round trip is left: the call would end in doubt.
#[tokio::test(start_paused = true)]
async fn queued_call_without_time_for_a_round_trip_is_not_sent() {
    let (bench, first) = distant_with_a_call(400).await;
    tokio::time::sleep(Duration::from_millis(285)).await;
    let began = bench.clock.now();
    let error = bench.call_for("k", 500).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Overloaded), "{error}");
    assert_eq!(error.in_doubt, Doubt::None);
    assert_eq!(bench.clock.now().saturating_duration_since(began), Duration::from_millis(125));
    assert!(first.await.unwrap().is_ok());
}

/// A caller that does not wait for a reply in time shows nothing about the server.
#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_do_not_lower_the_limit() {
    let bench = distant(1).await;
    bench.fakes.set_round_trip("a", Duration::from_millis(9));
    let all_at_once = async || {
        let calls: Vec<_> = (0..256)
            .map(|number| {
                let bench = bench.clone();
                tokio::spawn(async move { bench.call_for(&number.to_string(), 10_000).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        calls
    };
    for _ in 0..3 {
        let calls = all_at_once().await;
        calls[0].abort();
        assert_eq!(join_all(calls).await.into_iter().filter(Result::is_ok).count(), 255);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.fakes.log("a");
    let calls = all_at_once().await;
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 256);
    join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn queued_batch_without_time_left_returns_overloaded_unsent() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.set_reply("a", late(3));
    // 128 of them take 384 ms in each pipeline. Those after the first four get no turn before.
    let calls: Vec<Call> = (0..1536).map(|number| call(&number.to_string())).collect();
    bench.fakes.log("a");
    let outcomes = bench.router.batch(&calls, bench.within(1)).await;
    let (had, not): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(!had.is_empty() && !not.is_empty());
    for error in not.into_iter().map(Result::unwrap_err) {
        assert!(matches!(error.kind, CallErrorKind::Overloaded), "{error}");
        assert_eq!(error.in_doubt, Doubt::None);
    }
    assert_eq!(bench.fakes.count("a", "EVALSHA"), had.len());
}

/// The releases of guards that are dropped one after the other: the turns of a server are not used
/// up by pipelines of one command.
#[tokio::test(start_paused = true)]
async fn small_batches_at_fifty_times_the_rate_of_round_trips_do_not_queue() {
    let bench = Arc::new(Bench::new(&[ALL]).await);
    bench.fakes.set_reply("a", late(20));
    let mut batches = Vec::new();
    for number in 0..1_000 {
        let bench = bench.clone();
        batches.push(tokio::spawn(async move {
            let begin = bench.clock.now();
            let outcomes = bench.router.batch(&[call(&number.to_string())], bench.within(5)).await;
            assert!(outcomes[0].is_ok(), "{outcomes:?}");
            bench.since(begin)
        }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for took in join_all(batches).await {
        let took = took.unwrap();
        assert!(took <= Duration::from_millis(100), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_late_answer_to_a_call_that_was_given_up_shows_that_the_server_is_at_work() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [late(400), late(600)]);
    let error = bench.call_for("k", 100).await.unwrap_err();
    assert_eq!(error.in_doubt, Doubt::Unbounded);
    // Sent at 100 ms, answered at 700 ms, and something was heard at 400 ms.
    let answer = bench.call("x").await.unwrap();
    assert_eq!(answer.in_doubt, Doubt::None);
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 2);
    assert_eq!(bench.fakes.dials("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_counts_until_it_is_answered() {
    let bench = Bench::with(&[ALL], in_flight(1)).await;
    bench.fakes.queue_replies("a", [late(400)]);
    let begin = bench.clock.now();
    bench.call_for("k", 100).await.unwrap_err();
    let answer = bench.call("x").await.unwrap();
    assert_eq!(answer.sent_at.saturating_duration_since(begin), Duration::from_millis(400));
}

#[tokio::test(start_paused = true)]
async fn queued_calls_leave_a_server_that_falls_silent() {
    let bench = Bench::with(&HALVES, in_flight(1)).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let fakes = bench.fakes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fakes.set_slots_of("b", crate::backend::fake::slots(&[(0, 16383, "b")]));
    });
    let keys: Vec<String> = (0..50).map(|number| format!("{{k}}{number}")).collect();
    let answers = join_all(keys.iter().map(|key| bench.call(key))).await;
    let in_doubt =
        answers.iter().filter(|answer| !answer.as_ref().unwrap().in_doubt.is_none()).count();
    assert_eq!(in_doubt, 1, "the others had not been sent");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_of_no_use_retires_the_connection() {
    let nowhere = format!("ASK {} host", Slot::of("k"));
    for (reply, failure) in [
        ("READONLY You can't write against a read only replica.", None),
        ("NOAUTH Authentication required.", Some("NOAUTH")),
        (&nowhere, Some("MalformedReply")),
    ] {
        let bench = Bench::new(&[ALL]).await;
        bench.fakes.queue_replies("a", [refusal(reply)]);
        match (bench.call("k").await, failure) {
            (Ok(answer), None) => assert_eq!(answer.in_doubt, Doubt::None),
            (Err(error), Some(why)) => assert!(format!("{error:?}").contains(why), "{error:?}"),
            (outcome, _) => panic!("{reply}: {outcome:?}"),
        }
        bench.call("k").await.unwrap();
        assert_eq!(bench.fakes.dials("a"), 2, "{reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_a_replica_is_dialled_seldom() {
    for act in [refusal("READONLY x"), FakeReply::Break { maybe_sent: true }] {
        let bench = Bench::new(&HALVES).await;
        bench.call("x").await.unwrap();
        bench.fakes.set_reply("a", act.clone());
        bench.call_within("k", 10).await.unwrap_err();
        let dials = bench.fakes.dials("a");
        assert!((5..30).contains(&dials), "{dials} dials in 10 s, {act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_server_that_refuses_wait_for_its_next_dial() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.refuse("a");
    let keys: Vec<String> = (0..50).map(|number| format!("{{k}}{number}")).collect();
    let calls = join_all(keys.iter().map(|key| bench.call(key)));
    let repair = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        bench.fakes.set_dial_behavior("a", DialBehavior::Accept);
    };
    let (answers, ()) = tokio::join!(calls, repair);
    let sent: Vec<LocalInstant> =
        answers.into_iter().map(|answer| answer.unwrap().sent_at).collect();
    assert!(sent.iter().all(|moment| *moment == sent[0]), "all at the moment when it is back");
}

#[tokio::test(start_paused = true)]
async fn router_close_ends_a_call_that_waits_to_reconnect_and_all_dials() {
    for door in [DialBehavior::Refuse, DialBehavior::Hang] {
        let bench = Bench::new(&[ALL]).await;
        bench.fakes.set_dial_behavior("a", door);
        bench.fakes.break_connections("a");
        let end = async {
            tokio::time::sleep(Duration::from_millis(5_300)).await;
            let dials = bench.fakes.dials("a");
            bench.router.close();
            (dials, bench.clock.now())
        };
        let (outcome, (dials, closed)) = tokio::join!(bench.call("k"), end);
        assert!(matches!(outcome.unwrap_err().kind, CallErrorKind::Closed));
        // The pause of the call itself is short.
        assert!(bench.since(closed) <= Duration::from_millis(100), "{door:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.fakes.dials("a"), dials, "{door:?}");
    }
}

/// Counts the timers that are set.
#[derive(Debug)]
struct CountingClock {
    clock: Arc<TestClock>,
    timers: AtomicUsize,
}

impl Clock for CountingClock {
    fn now(&self) -> LocalInstant {
        self.clock.now()
    }

    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        self.timers.fetch_add(1, Ordering::Relaxed);
        self.clock.sleep_until(until)
    }
}

/// The timers that are set while so many calls wait for a server that does not answer.
async fn timers_of_waiting(calls: usize) -> usize {
    let fakes = FakeCluster::new(&HALVES);
    let clock = Arc::new(CountingClock { clock: TestClock::start(), timers: AtomicUsize::new(0) });
    let settings = RouterConfig {
        seeds: vec![address("b")],
        connect_timeout: Duration::from_secs(60),
        ..RouterConfig::default()
    };
    let router = Router::connect(Arc::new(fakes.clone()), clock.clone(), settings).await.unwrap();
    fakes.set_dial_behavior("a", DialBehavior::Hang);
    fakes.break_connections("a");
    let calls: Vec<Call> = (0..calls).map(|number| call(&format!("{{k}}{number}"))).collect();
    let deadline = clock.now().saturating_add(Duration::from_secs(20));
    clock.timers.store(0, Ordering::Relaxed);
    let outcomes = join_all(calls.iter().map(|call| router.call(call, deadline))).await;
    assert!(outcomes.iter().all(Result::is_err));
    clock.timers.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn many_calls_that_wait_for_a_server_look_for_its_successor_together() {
    let (alone, many) = (timers_of_waiting(1).await, timers_of_waiting(51).await);
    assert!(alone >= 50, "it looks: {alone}");
    assert!(many < alone + 50 * 8, "{alone} for one, {many} for many");
}

#[tokio::test(start_paused = true)]
async fn redirects_are_counted_in_a_row() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.set_reply("a", redirect("MOVED", "k", "b"));
    bench.fakes.queue_replies("b", (0..30).map(|_| refusal("CLUSTERDOWN x")));
    let answer = bench.call("k").await.unwrap();
    assert_eq!(answer.server, address("b"));
    let redirects = bench.fakes.count("a", "EVALSHA");
    assert!(redirects > 16, "{redirects}");
}

#[tokio::test(start_paused = true)]
async fn confirmed_call_after_router_close_makes_no_connection() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.router.close();
    let (at, call) = (address("a"), call("k"));
    let script = Scripts::embedded().get(call.script).words(false);
    let sending =
        bench.router.replicated.send(&at, &call, ONE_REPLICA, false, script, Arc::default());
    drop(tokio::time::timeout(Duration::from_secs(1), sending).await);
    assert!(!bench.router.replicated.is_ready(&at, ONE_REPLICA));
}

/// Locks over these servers.
async fn locks(fakes: &FakeCluster) -> Client {
    let settings = RouterConfig { seeds: vec![address("a")], ..RouterConfig::default() };
    let clock = TestClock::start();
    let connector = Arc::new(fakes.clone());
    Client::start(connector, clock, ClientConfig::default(), settings).await.unwrap()
}

/// What an acquire is answered that has the lock for a minute.
fn granted() -> RespValue {
    text(&format!("granted {EPOCH_MS} 0 {CALLER} 1 {}", EPOCH_MS + 60_000))
}

#[tokio::test(start_paused = true)]
async fn masters_that_name_each_other_do_not_end_an_unlimited_wait() {
    let fakes = FakeCluster::new(&HALVES);
    let locks = locks(&fakes).await;
    let lock = locks.rwlock("k").unwrap();
    let moved = |host: &str| refusal(&format!("MOVED {} {host}:1", lock.slot()));
    fakes.set_reply("a", moved("b"));
    fakes.set_reply("b", moved("a"));
    let error = lock.write().timeout(Duration::from_secs(3)).await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (crate::ErrorKind::Unavailable, Some("k")));
    assert!(error.to_string().contains("redirects"), "{error}");
    let sent = || fakes.count("a", "EVALSHA") + fakes.count("b", "EVALSHA");
    let before = sent();
    let agreement = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let calls = sent() - before;
        assert!((18..300).contains(&calls), "{calls} in 5 s: neither given up nor a storm");
        fakes.set_reply("a", FakeReply::Answer(granted()));
    };
    let (guard, ()) = tokio::join!(async { lock.write().await }, agreement);
    assert!(guard.unwrap().is_held());
}
