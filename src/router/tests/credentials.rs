//! A server that does not accept the client's credentials, or no longer does.

use super::*;

fn unauthenticated() -> FakeReply {
    refusal("NOAUTH Authentication required.")
}

/// A cluster whose clients fetch their credentials at each dial.
async fn renewing() -> Bench {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.renew_credentials();
    // The connections so far are of a client that does not.
    bench.fakes.break_connections("a");
    bench.call("x").await.unwrap();
    bench
}

#[tokio::test(start_paused = true)]
async fn a_refused_command_goes_out_again_over_a_new_connection() {
    let bench = renewing().await;
    let dials = bench.fakes.dials("a");
    bench.fakes.queue_replies("a", [unauthenticated()]);
    let answer = bench.call("x").await.unwrap();
    assert_eq!(answer.in_doubt, Doubt::None, "what was refused does not arrive later");
    assert_eq!(bench.fakes.dials("a"), dials + 1);
}

#[tokio::test(start_paused = true)]
async fn batch_with_noauth_reply_marks_every_call_in_doubt() {
    let bench = renewing().await;
    bench.fakes.queue_replies("a", [FakeReply::Answer(script_reply(1)), unauthenticated()]);
    let calls = [call("x"), call("{x}2")];
    let answers = bench.router.batch(&calls, bench.within(10)).await;
    assert!(answers.into_iter().all(|answer| !answer.unwrap().in_doubt.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_dial_is_repeated_with_pauses_until_the_credentials_are_accepted() {
    let bench = renewing().await;
    bench.fakes.set_dial_behavior("a", DialBehavior::WrongPassword);
    bench.fakes.break_connections("a");
    let (router, until) = (bench.router.clone(), bench.within(30));
    let calling = tokio::spawn(async move { router.call(&call("x"), until).await });
    let dials = bench.fakes.dials("a");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let dials = bench.fakes.dials("a") - dials;
    assert!((8..30).contains(&dials), "{dials} dials in 10 s");
    assert!(!calling.is_finished());
    bench.fakes.set_dial_behavior("a", DialBehavior::Accept);
    calling.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_the_same_are_refused_for_good() {
    let bench = Bench::new(&[ALL]).await;
    let dials = bench.fakes.dials("a");
    bench.fakes.queue_replies("a", [unauthenticated()]);
    let error = bench.call("x").await.unwrap_err();
    assert!(
        matches!(&error.kind, CallErrorKind::Rejected(said) if said.code == "NOAUTH"),
        "{error}"
    );
    assert_eq!(bench.fakes.dials("a"), dials);
}

#[tokio::test(start_paused = true)]
async fn a_refused_subscription_is_made_over_a_new_connection() {
    let bench = Bench::new(&[ALL]).await;
    let refused = crate::backend::fake::SubscribeReply::Refuse("NOAUTH Authentication required.");
    bench.fakes.on_subscribe("a", [refused]);
    let dials = bench.fakes.dials("a");
    bench.router.subscriptions.subscribe(Slot::of("k"), bytes::Bytes::from_static(b"{k}news"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(bench.router.subscriptions.subscribed_server(Slot::of("k")).is_some());
    assert_eq!(bench.fakes.dials("a"), dials + 2);
}
