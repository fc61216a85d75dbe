//! Servers that hang, die or cut connections.

use super::*;
use crate::router::calls::send_gate::SendGate;

#[tokio::test(start_paused = true)]
async fn silence_makes_the_outcome_unknown_and_the_call_is_repeated() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Hang]);
    let not_after = bench.clock.now().saturating_add(Duration::from_secs(2));
    let answer = bench
        .router
        .call(&Call { not_after: Some(not_after), ..call("x") }, bench.within(5))
        .await
        .unwrap();
    let told = |line: &String| line.split(' ').nth(5).unwrap().parse::<u64>().unwrap();
    let told: Vec<u64> =
        bench.fakes.log("a").iter().filter(|line| line.starts_with("EVALSHA")).map(told).collect();
    assert_eq!(told.len(), 2);
    assert_eq!(answer.in_doubt, Doubt::Until(told[0]));
    assert_eq!(
        bench.fakes.dials("a"),
        2,
        "nothing was heard on that connection, so it was replaced"
    );
}

#[tokio::test(start_paused = true)]
async fn a_query_about_no_key_ends_in_time_though_there_is_no_connection() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.set_dial_behavior("b", DialBehavior::Hang);
    bench.fakes.break_connections("b");
    let begin = bench.clock.now();
    let deadline = begin.saturating_add(Duration::from_millis(300));
    let command = Command::new().arg("CLUSTER").arg("INFO");
    let outcome = bench.router.query(&address("b"), &command, deadline).await;
    assert!(matches!(outcome.unwrap_err().kind, CallErrorKind::TimedOut(_)));
    let took = bench.since(begin);
    assert!(took < Duration::from_millis(400), "{took:?}");
    // The hanging dial has ended by then, and a new one is made.
    bench.fakes.set_dial_behavior("b", DialBehavior::Accept);
    bench.router.query(&address("b"), &command, bench.within(2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_until_the_deadline_is_told() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Hang]);
    let deadline = bench.clock.now().saturating_add(Duration::from_millis(100));
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut(None)), "{error}");
    assert_eq!(error.in_doubt, Doubt::Unbounded);
    assert_eq!(bench.clock.now(), deadline);
    // A short deadline alone is no reason to give up the connection.
    bench.call("x").await.unwrap();
    assert_eq!(bench.fakes.dials("a"), 1);
    // And a call that is already late is not sent.
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(
        matches!(error.kind, CallErrorKind::TimedOut(None)) && error.in_doubt.is_none(),
        "{error}"
    );
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_made_again() {
    let bench = Bench::new(&[ALL]).await;
    for (maybe_sent, in_doubt) in [(true, Doubt::Unbounded), (false, Doubt::None)] {
        let start = bench.clock.now();
        bench.fakes.queue_replies("a", [FakeReply::Break { maybe_sent }]);
        assert_eq!(bench.call("x").await.unwrap().in_doubt, in_doubt);
        assert!(bench.since(start) < Duration::from_millis(105), "soon");
    }
    assert_eq!(bench.fakes.dials("a"), 3);
}

/// A server or a proxy that restarts cuts all connections at once.
#[tokio::test(start_paused = true)]
async fn clients_whose_connections_are_cut_do_not_dial_all_at_once() {
    const CLIENTS: usize = 50;
    let fakes = FakeCluster::new(&[ALL]);
    let mut routers = Vec::new();
    for _ in 0..CLIENTS {
        let router = connect(&fakes, &["a"]).await.unwrap();
        router.call_within("k", 10).await.unwrap();
        routers.push(router);
    }
    let late = FakeReply::Delayed(Duration::from_millis(20), script_reply(fakes.server_ms()));
    fakes.queue_replies("a", (0..CLIENTS).map(|_| late.clone()));
    let call = |router: Arc<Router>| tokio::spawn(async move { router.call_within("k", 10).await });
    let calls: Vec<_> = routers.into_iter().map(call).collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    fakes.break_connections("a");
    let mut dials = vec![fakes.dials("a")];
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        dials.push(fakes.dials("a"));
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let dials: Vec<usize> = dials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(dials.iter().sum::<usize>(), CLIENTS, "{dials:?}");
    let most = dials.iter().max().unwrap();
    assert!(*most < CLIENTS / 2, "{dials:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_known_to_be_broken_is_not_used() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.break_connections("a");
    let start = bench.clock.now();
    assert_eq!(bench.call("x").await.unwrap().in_doubt, Doubt::None);
    assert_eq!(bench.clock.now(), start, "nothing was under way on it: it is replaced at once");
    assert_eq!(bench.fakes.dials("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_share_one_reconnect() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.break_connections("b");
    let before = bench.fakes.dials("b");
    let calls = (0..20).map(|_| bench.call("x"));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(bench.fakes.dials("b"), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_hangs_is_left_as_soon_as_another_names_the_new_owner() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    bench.give_all_to_b_after(Duration::from_secs(4));
    let start = bench.clock.now();
    let answer = bench.call("k").await.unwrap();
    let took = bench.since(start);
    assert_eq!(answer.server, address("b"));
    assert_eq!(answer.in_doubt, Doubt::Unbounded, "the stopped master may still run it");
    assert!(took < Duration::from_millis(4300), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_to_one_shard_continue_while_another_master_hangs() {
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
        matches!(error.kind, CallErrorKind::TimedOut(None)) && error.in_doubt == Doubt::Unbounded,
        "{error}"
    );
}

/// Answers in 100 ms, but the connection's task reads it late.
fn unread(bench: &Bench, turns_of_others: usize) -> FakeReply {
    FakeReply::DelayedRead(
        Duration::from_millis(100),
        turns_of_others,
        script_reply(bench.fakes.server_ms()),
    )
}

impl Bench {
    /// Lets the call be sent, blocks the runtime for this long, and returns the result of the call.
    async fn stall<T: Send + 'static>(
        &self,
        host: &str,
        stall_ms: u64,
        calling: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let calling = tokio::spawn(calling);
        while self.fakes.count(host, "EVALSHA") == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await; // and until the answer is on its way
        }
        tokio::time::advance(Duration::from_millis(stall_ms)).await;
        calling.await.unwrap()
    }
}

/// After a stall, the time is up and the answer has come.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_stood_still_reads_what_has_come_before_it_calls_a_server_silent() {
    let ways = [
        ("alone", 900, 3),
        ("many", 900, 3),
        ("confirmed", 900, 3),
        ("at its deadline", 900, 3),
        ("alone", 900, 50),
        ("alone", 500, 3), // it resumes just when the time is up
    ];
    for (way, stall_ms, turns) in ways {
        let bench = Bench::new(&HALVES).await;
        let (host, key) = if way == "at its deadline" { ("b", "x") } else { ("a", "k") };
        let (router, late) = (bench.router.clone(), bench.within(10));
        let soon = bench.clock.now().saturating_add(Duration::from_millis(300));
        bench.fakes.queue_replies(host, [unread(&bench, turns)]);
        let calling = async move {
            match way {
                "alone" => router.call(&call(key), late).await,
                "many" => router.batch(&[call(key)], late).await.remove(0),
                "confirmed" => router.call_replicated(&call(key), ONE_REPLICA, late).await,
                _ => router.call(&call(key), soon).await,
            }
        };
        let answer = bench.stall(host, stall_ms, calling).await;
        assert_eq!(
            answer.unwrap_or_else(|error| panic!("{way}: {error}")).in_doubt,
            Doubt::None,
            "{way}"
        );
        assert_eq!(bench.fakes.count(host, "EVALSHA"), 1, "{way}: it was not sent again");
        bench.call(key).await.unwrap();
        let dials = if way == "confirmed" { 2 } else { 1 }; // one of them only for those calls
        assert_eq!(bench.fakes.dials(host), dials, "{way}: the connection is good");
    }
}

/// But a server that has sent nothing is silent, however late that is noticed.
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_found_silent_after_a_stall_as_well() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [FakeReply::Hang]);
    let (router, late) = (bench.router.clone(), bench.within(10));
    let answer = bench.stall("a", 900, async move { router.call(&call("k"), late).await }).await;
    assert_eq!(answer.unwrap().in_doubt, Doubt::Unbounded);
    assert_eq!(bench.fakes.dials("a"), 2, "another connection took its place");
}

#[tokio::test(start_paused = true)]
async fn call_with_one_attempt_in_doubt_returns_error_in_doubt() {
    let bench = Bench::new(&[ALL]).await;
    let nowhere = refusal(&format!("MOVED {} host", Slot::of("x")));
    bench.fakes.queue_replies("a", [FakeReply::Hang, nowhere]);
    let limited = Call {
        not_after: Some(bench.clock.now().saturating_add(Duration::from_secs(2))),
        ..call("x")
    };
    let error = bench.router.call(&limited, bench.within(5)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::MalformedReply(_)), "{error}");
    assert_eq!(error.in_doubt, Doubt::Unbounded, "though the silent one had a limit");
}

/// The connection was closed for its silence. No dial has failed.
#[tokio::test(start_paused = true)]
async fn call_without_a_reply_names_no_failed_dial() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    for _ in 0..2 {
        let deadline = bench.clock.now().saturating_add(Duration::from_millis(400));
        let error = bench.router.call(&call("k"), deadline).await.unwrap_err();
        let source = error.source.map(|source| source.to_string());
        assert!(!source.iter().any(|source| source.contains("closed before")), "{source:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The error of a call of a request that is given up after this time.
async fn given_up(bench: &Bench, key: &str, after: Duration) -> CallError {
    let (gate, call) = (SendGate::default(), call(key));
    let calling =
        bench.router.call_with(&call, Confirmation::default(), bench.within(5), Some(&gate));
    let giving_up = async {
        tokio::time::sleep(after).await;
        assert!(gate.close());
    };
    tokio::join!(calling, giving_up).0.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn call_given_up_while_its_slot_has_no_master_ends() {
    let bench = Bench::new(&HALVES[..1]).await;
    let begin = bench.clock.now();
    let error = given_up(&bench, "x", Duration::from_secs(1)).await;
    assert!(matches!(error.kind, CallErrorKind::Closed), "{error}");
    assert!(bench.since(begin) < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn call_of_a_request_that_was_given_up_makes_no_other_attempt() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.set_dial_behavior("a", DialBehavior::AcceptDelayed(Duration::from_millis(200)));
    bench.fakes.break_connections("a");
    let begin = bench.clock.now();
    let error = given_up(&bench, "k", Duration::from_millis(50)).await;
    assert!(matches!(error.kind, CallErrorKind::Closed), "{error}");
    let took = bench.since(begin);
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(bench.fakes.count("a", "EVAL"), 0);
}
