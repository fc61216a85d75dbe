//! Servers that do not know a script.

use futures::future::join_all;

use super::*;

#[tokio::test(start_paused = true)]
async fn script_text_is_sent_once_for_batch_confirmed_and_single_calls() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.forget_scripts("a");
    let calls: Vec<Call> = (0..300).map(|number| call(&number.to_string())).collect();
    let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let within = bench.within(5);
    let (batch, confirmed, single) = tokio::join!(
        bench.router.batch(&calls, within),
        join_all(calls.iter().map(|call| bench.router.call_replicated(call, ONE_REPLICA, within))),
        join_all(keys.iter().map(|key| bench.call(key))),
    );
    for answer in batch.into_iter().chain(confirmed).chain(single) {
        answer.unwrap();
    }
    assert_eq!(bench.fakes.count("a", "EVAL "), 1);
}

/// Makes a call send the text. Its answer comes only with this act, and makes the next script
/// unknown too.
async fn one_who_sends(
    bench: &Bench,
    act: FakeReply,
) -> tokio::task::JoinHandle<Result<CallReply, CallError>> {
    bench.fakes.queue_replies("a", [refusal("NOSCRIPT x"), act, refusal("NOSCRIPT x")]);
    let (router, deadline) = (bench.router.clone(), bench.within(10));
    let sender = tokio::spawn(async move { router.call(&call("k"), deadline).await });
    while bench.fakes.count("a", "EVAL ") == 0 {
        tokio::task::yield_now().await;
    }
    sender
}

/// Polls a call until it has sent the text. It then waits for the answer.
async fn until_text_is_sent<F: Future + Unpin>(bench: &Bench, call: &mut F) {
    while bench.fakes.count("a", "EVAL ") == 0 {
        assert!(futures::poll!(&mut *call).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn script_text_is_sent_by_the_next_call_if_the_sender_gives_up() {
    let bench = Bench::new(&[ALL]).await;
    let sender = one_who_sends(&bench, FakeReply::Hang).await;
    let giving_up = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(bench.fakes.count("a", "EVAL "), 1, "the other one waits");
        sender.abort();
    };
    let (other, ()) = tokio::join!(bench.call("x"), giving_up);
    assert_eq!(other.unwrap().in_doubt, Doubt::None);
    assert_eq!(bench.fakes.count("a", "EVAL "), 2);
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_script_text_times_out_at_its_own_deadline() {
    let bench = Bench::new(&[ALL]).await;
    let late = FakeReply::Delayed(Duration::from_millis(400), script_reply(1));
    let sender = one_who_sends(&bench, late).await;
    let deadline = bench.clock.now().saturating_add(Duration::from_millis(50));
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert_eq!(bench.clock.now(), deadline);
    assert!(matches!(error.kind, CallErrorKind::TimedOut(None)), "{error}");
    assert_eq!(
        error.in_doubt,
        Doubt::None,
        "what was refused cannot come later, and nothing else was sent"
    );
    sender.await.unwrap().unwrap();
    assert_eq!(bench.fakes.count("a", "EVAL "), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_again_is_told_again() {
    let bench = Bench::new(&[ALL]).await;
    for _ in 0..3 {
        bench.fakes.forget_scripts("a");
        bench.call("k").await.unwrap();
    }
    assert_eq!(bench.fakes.count("a", "EVAL "), 3);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_is_not_polled_holds_nobody_up_for_long() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.queue_replies("a", [refusal("NOSCRIPT x")]);
    let (k, x) = (call("k"), call("x"));
    let mut paused = Box::pin(bench.router.call(&k, bench.within(10)));
    until_text_is_sent(&bench, &mut paused).await;
    let began = bench.clock.now();
    bench.fakes.queue_replies("a", [refusal("NOSCRIPT x")]);
    bench.router.call(&x, bench.within(10)).await.unwrap();
    assert_eq!(bench.since(began), RouterConfig::default().response_timeout);
    assert_eq!(bench.fakes.count("a", "EVAL "), 2);
    paused.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sender_whose_turn_is_over_does_not_end_the_next_turn() {
    let bench = Bench::new(&[ALL]).await;
    let (k, x) = (call("k"), call("x"));
    bench.fakes.queue_replies("a", [refusal("NOSCRIPT x"), FakeReply::Hang]);
    let mut first = Box::pin(bench.router.call(&k, bench.within(10)));
    until_text_is_sent(&bench, &mut first).await;
    let late = FakeReply::Delayed(Duration::from_millis(300), script_reply(1));
    bench.fakes.queue_replies("a", [refusal("NOSCRIPT x"), late, refusal("NOSCRIPT x")]);
    let next = bench.router.call(&x, bench.within(10));
    let another = async {
        while bench.fakes.count("a", "EVAL ") < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(first);
        bench.call("another").await.unwrap();
        assert_eq!(bench.fakes.count("a", "EVAL "), 2, "it waits for the next one's text");
    };
    let (answer, ()) = tokio::join!(next, another);
    answer.unwrap();
}
