//! A server's own command in place of a script.

use super::*;

async fn valkey(version: &'static str) -> Bench {
    let fakes = FakeCluster::new(&HALVES);
    HALVES.iter().for_each(|(.., host)| fakes.set_valkey(host, version));
    let bench = Bench::of(fakes, &["a"]).await;
    bench.fakes.log("a");
    bench
}

fn release(key: &str) -> Call {
    Call { script: ScriptName::SetNxRelease, ..call(key) }
}

impl Bench {
    async fn release(&self, key: &str) -> Result<CallReply, CallError> {
        self.router.call(&release(key), self.within(10)).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_one_command_where_the_server_has_it() {
    let bench = valkey("9.0.0").await;
    let answer = bench.release("k").await.unwrap();
    assert_eq!(answer.value, text("released 0 0"));
    assert_eq!(bench.fakes.log("a"), ["DELIFEQ k arg"]);
    bench.call("k").await.unwrap();
    assert_eq!(bench.fakes.log("a"), [line("EVALSHA digest", "k", "a")], "other scripts stay");

    let older = valkey("8.1.4").await;
    older.release("k").await.unwrap();
    assert_eq!(older.fakes.log("a"), [line("EVALSHA digest", "k", "a")]);
}

#[tokio::test(start_paused = true)]
async fn delifeq_returning_zero_is_followed_by_the_release_script() {
    let bench = valkey("9.1.2").await;
    bench.fakes.queue_replies(
        "a",
        [FakeReply::Answer(RespValue::Int(0)), FakeReply::Answer(text("not_found 17 0"))],
    );
    assert_eq!(bench.release("k").await.unwrap().value, text("not_found 17 0"));
    assert_eq!(bench.fakes.log("a"), ["DELIFEQ k arg", &line("EVALSHA digest", "k", "a")]);
    bench.release("k").await.unwrap();
    assert_eq!(bench.fakes.log("a"), ["DELIFEQ k arg"], "the next one is tried again");
}

/// Otherwise `not_found` from the second attempt by the script would count as the result of the
/// first.
#[tokio::test(start_paused = true)]
async fn delifeq_returning_zero_leaves_the_release_in_no_doubt() {
    let bench = valkey("9.1.2").await;
    let broken = || FakeReply::Break { maybe_sent: true };
    bench.fakes.queue_replies("a", [FakeReply::Answer(RespValue::Int(0)), broken()]);
    assert_eq!(bench.release("k").await.unwrap().in_doubt, Doubt::None);
    bench.fakes.queue_replies("a", [broken(), FakeReply::Answer(RespValue::Int(0)), broken()]);
    let answer = bench.release("k").await.unwrap();
    assert_eq!(answer.in_doubt, Doubt::Unbounded, "the first may have deleted it");
}

#[tokio::test(start_paused = true)]
async fn delifeq_refused_by_noreplicas_is_followed_by_the_release_script() {
    let bench = valkey("9.1.2").await;
    bench
        .fakes
        .queue_replies("a", [refusal("NOREPLICAS x"), FakeReply::Answer(text("not_found 17 0"))]);
    assert_eq!(bench.release("k").await.unwrap().value, text("not_found 17 0"));
    bench.release("k").await.unwrap();
    assert_eq!(bench.fakes.count("a", "DELIFEQ k arg"), 2, "the next one is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_command_is_spared_it() {
    for refused in ["NOPERM this user has no permissions", "ERR unknown command 'DELIFEQ'"] {
        let bench = valkey("9.1.2").await;
        bench.fakes.queue_replies("a", [refusal(refused)]);
        bench.release("k").await.unwrap();
        bench.release("k").await.unwrap();
        let script = line("EVALSHA digest", "k", "a");
        assert_eq!(bench.fakes.log("a"), ["DELIFEQ k arg", &script, &script]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_command_follows_redirects_and_is_sent_again_as_the_script_is() {
    let bench = valkey("9.1.2").await;
    bench
        .fakes
        .queue_replies("a", [redirect("ASK", "k", "b"), FakeReply::Break { maybe_sent: true }]);
    assert_eq!(bench.release("k").await.unwrap().server, address("b"));
    assert_eq!(bench.fakes.count("b", "ASKING"), 1);
    assert_eq!(bench.fakes.count("b", "DELIFEQ k arg"), 1);
    let again = bench.release("k").await.unwrap();
    assert_eq!(again.in_doubt, Doubt::Unbounded, "the first may have deleted it");
    assert_eq!(bench.fakes.count("a", "DELIFEQ k arg"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_asking_is_not_taken_for_a_refusal_of_the_command() {
    let bench = valkey("9.1.2").await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.fakes.on_asking("b", refusal("NOPERM no right to asking"));
    bench.fakes.queue_replies("b", [redirect("MOVED", "k", "a")]);
    let reason = bench.release("k").await.unwrap_err().kind;
    assert!(
        matches!(&reason, CallErrorKind::Rejected(error) if error.code == "NOPERM"),
        "{reason:?}"
    );
    assert!(!bench.fakes.log("b").iter().any(|sent| sent.starts_with("EVAL")));
}

#[tokio::test(start_paused = true)]
async fn a_batch_sends_the_command_too() {
    let bench = valkey("9.1.2").await;
    bench.fakes.queue_replies("a", [FakeReply::Answer(RespValue::Int(0))]);
    let calls = [release("k"), call("{k}2"), release("{k}3")];
    let outcomes = bench.router.batch(&calls, bench.within(5)).await;
    let replies: Vec<RespValue> =
        outcomes.into_iter().map(|outcome| outcome.unwrap().value).collect();
    assert_eq!(replies[2], text("released 0 0"));
    assert_ne!(replies[0], replies[2], "the script has said it");
    let log = bench.fakes.log("a");
    let sent = ["DELIFEQ k arg", &line("EVALSHA digest", "{k}2", "a"), "DELIFEQ {k}3 arg"];
    assert_eq!(log[..3], sent);
    assert_eq!(log[3..], [line("EVALSHA digest", "k", "a")]);
}
