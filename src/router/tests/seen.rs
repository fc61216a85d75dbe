//! The router's metrics, as an exporter receives them.

use futures::FutureExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::*;
use crate::backend::PubSubEvent;

const CHANNEL: &str = "{k}news";

/// The value of a metric with these labels; 0 if it does not exist.
fn value(recorder: &PrometheusRecorder, metric: &str) -> f64 {
    let text = recorder.handle().render();
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

fn in_flight(recorder: &PrometheusRecorder, host: &str) -> f64 {
    value(recorder, &format!(r#"rwlease_commands_in_flight{{server="{host}:1"}}"#))
}

fn queued(recorder: &PrometheusRecorder, host: &str) -> f64 {
    value(recorder, &format!(r#"rwlease_commands_queued{{server="{host}:1"}}"#))
}

pub(in crate::router) fn attempts(recorder: &PrometheusRecorder, outcome: &str) -> f64 {
    value(recorder, &format!(r#"rwlease_attempts_total{{outcome="{outcome}"}}"#))
}

fn subscriptions(recorder: &PrometheusRecorder, outcome: &str) -> f64 {
    value(recorder, &format!(r#"rwlease_subscriptions_total{{outcome="{outcome}"}}"#))
}

#[tokio::test(start_paused = true)]
async fn commands_are_in_flight_until_they_are_answered_or_nobody_waits() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    assert_eq!(in_flight(&recorder, "a"), 0.0, "all were answered");

    bench.fakes.set_reply("a", FakeReply::Hang);
    let calls = [call("k"), call("k"), call("k")];
    let mut waiting: Vec<_> =
        calls.iter().map(|call| bench.router.call(call, bench.within(10)).boxed()).collect();
    for call in &mut waiting {
        assert!(futures::poll!(call).is_pending());
    }
    assert_eq!((in_flight(&recorder, "a"), in_flight(&recorder, "b")), (3.0, 0.0));
    drop(waiting.pop());
    assert_eq!(in_flight(&recorder, "a"), 2.0, "nobody waits for the third");
    drop(waiting);
    assert_eq!(in_flight(&recorder, "a"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn commands_are_queued_until_their_turn_comes() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let calls: Vec<Call> = (0..128 * 5).map(|number| call(&number.to_string())).collect();
    let mut batch = bench.router.batch(&calls, bench.within(10)).boxed();
    assert!(futures::poll!(&mut batch).is_pending());
    assert_eq!((in_flight(&recorder, "a"), queued(&recorder, "a")), (512.0, 128.0));
    drop(batch);
    assert_eq!((in_flight(&recorder, "a"), queued(&recorder, "a")), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn attempts_metric_counts_each_reply_redirect_and_error() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new(&HALVES).await;
    bench.fakes.queue_replies(
        "a",
        [
            refusal("NOSCRIPT x"),
            refusal("LOADING x"),
            FakeReply::Hang,
            FakeReply::Break { maybe_sent: true },
            redirect("ASK", "k", "b"),
        ],
    );
    bench.call("k").await.unwrap();
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    bench.call("k").await.unwrap();
    bench.fakes.queue_replies("b", [refusal("OOM x")]);
    bench.call("x").await.unwrap_err();
    bench.fakes.queue_replies("b", [FakeReply::Answer(text("what"))]);
    bench.call("x").await.unwrap();
    for (outcome, expected) in [
        ("replied", 3.0),
        ("noscript", 1.0),
        ("retryable", 1.0),
        ("no_reply", 1.0),
        ("connection_lost", 1.0),
        ("ask", 1.0),
        ("moved", 1.0),
        ("rejected", 1.0),
        ("malformed", 1.0),
        ("not_sent", 0.0),
    ] {
        assert_eq!(attempts(&recorder, outcome), expected, "{outcome}");
    }
    // While the server refuses, the call waits for its next dial, and may be given up there.
    bench.fakes.refuse("b");
    bench.call("x").await.unwrap_err();
    assert!(attempts(&recorder, "not_connected") >= 1.0);
    let dials = |outcome| {
        let metric =
            format!(r#"rwlease_connect_seconds_count{{kind="commands",outcome="{outcome}"}}"#);
        value(&recorder, &metric)
    };
    assert!(dials("connected") >= 2.0 && dials("failed") >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn each_end_of_a_subscription_is_counted_once() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    let channel = || bytes::Bytes::from_static(CHANNEL.as_bytes());
    let settled = || tokio::time::sleep(Duration::from_secs(3));
    let seen = || {
        ["subscribed", "unsubscribed", "lost", "rejected"]
            .map(|outcome| subscriptions(&recorder, outcome))
    };

    bench.router.subscriptions.subscribe(Slot::of(CHANNEL), channel());
    settled().await;
    assert_eq!(seen(), [1.0, 0.0, 0.0, 0.0]);
    bench.fakes.notify("a", PubSubEvent::Unsubscribed { channel: channel() });
    settled().await;
    assert_eq!(seen(), [2.0, 0.0, 1.0, 0.0], "the server ended it, and it was joined again");
    bench.fakes.break_connections("a");
    settled().await;
    assert_eq!(seen(), [3.0, 0.0, 2.0, 0.0], "the connection was lost");
    bench.router.subscriptions.unsubscribe(Slot::of(CHANNEL));
    settled().await;
    assert_eq!(seen(), [3.0, 1.0, 2.0, 0.0]);
    bench.fakes.on_subscribe("a", [crate::backend::fake::SubscribeReply::Refuse("ERR not now")]);
    bench.router.subscriptions.subscribe(Slot::of(CHANNEL), channel());
    settled().await;
    assert_eq!(seen(), [4.0, 1.0, 2.0, 1.0], "refused, and joined later");
    bench.router.close();
    settled().await;
    assert_eq!(seen(), [4.0, 2.0, 2.0, 1.0], "the client is shut down");
}
