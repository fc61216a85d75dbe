use super::*;

/// As if all had been written.
const ALL: u64 = u64::MAX;

fn text(text: &'static str) -> RespValue {
    RespValue::String(Bytes::from_static(text.as_bytes()))
}

fn push(kind: &'static str, channel: &'static str) -> Frame {
    Frame::Push(vec![text(kind), text(channel), RespValue::Int(1)])
}

fn refusal(line: &str) -> Frame {
    let (code, detail) = line.split_once(' ').unwrap();
    Frame::Reply(RespValue::Error(ServerError { code: code.into(), message: detail.into() }))
}

fn moved(channel: &str) -> Frame {
    refusal(&format!("MOVED {} a:1", Slot::of(channel)))
}

fn channel(name: &'static str) -> Bytes {
    Bytes::from_static(name.as_bytes())
}

fn joined(name: &'static str) -> PubSubEvent {
    PubSubEvent::Subscribed { channel: channel(name) }
}

fn left(name: &'static str) -> PubSubEvent {
    PubSubEvent::Unsubscribed { channel: channel(name) }
}

fn join(name: &'static str) -> PendingReply {
    PendingReply::Subscribe(channel(name))
}

fn leave(name: &'static str) -> PendingReply {
    PendingReply::Unsubscribe(channel(name))
}

fn notice(meaning: Option<FrameAction>) -> PubSubEvent {
    match meaning {
        Some(FrameAction::PubSub(notice)) => notice,
        other => panic!("no notice: {other:?}"),
    }
}

fn expecting(expected: impl IntoIterator<Item = PendingReply>) -> PendingReplies {
    let mut expectations = PendingReplies::default();
    for (at, expected) in expected.into_iter().enumerate() {
        let begin = CommandOffsets { command: at as u64, request: at as u64 };
        expectations.add(begin, ReplyShape::Any, expected);
    }
    expectations
}

#[tokio::test]
async fn expectations_fail_reports_unwritten_commands_as_not_sent() {
    let mut expectations = PendingReplies::default();
    let (told, mut wait) = (0..3).map(|_| oneshot::channel()).unzip::<_, _, Vec<_>, Vec<_>>();
    for (reply_tx, command) in told.into_iter().zip([0, 10, 20]) {
        let begin = CommandOffsets { command, request: command };
        expectations.add(begin, ReplyShape::Any, PendingReply::Reply(reply_tx));
    }
    let (reply_tx, mut all) = oneshot::channel();
    for (expected, command) in PendingReply::replies(2, reply_tx).zip([10, 20]) {
        expectations.add(CommandOffsets { command, request: 10 }, ReplyShape::Any, expected);
    }
    expectations.fail_all(11, &ConnectionError::not_sent("gone"));
    for (wait, maybe_sent) in wait.iter_mut().zip([true, true, false]) {
        assert_eq!(wait.await.unwrap().unwrap_err().maybe_sent, maybe_sent);
    }
    let failure = (&mut all).await.unwrap().unwrap_err();
    assert!(failure.maybe_sent, "the first of its commands was written");
}

#[test]
fn confirmation_before_its_command_was_sent_is_refused() {
    let mut expectations = expecting([join("a")]);
    assert_eq!(
        expectations.on_frame(push("ssubscribe", "a"), 0).unwrap_err().message,
        UNEXPECTED_CHANNEL.to_string()
    );
}

#[test]
fn channels_are_joined_and_left_by_pushes() {
    let mut expectations = expecting([
        PendingReply::Discarded,
        join("a"),
        join("b"),
        leave("a"),
        join("c"),
        leave("b"),
    ]);
    assert!(expectations.on_frame(Frame::Reply(text("OK")), ALL).unwrap().is_none());
    let mut hear = |said| notice(expectations.on_frame(said, ALL).unwrap());
    assert_eq!(hear(push("ssubscribe", "a")), joined("a"));
    // Not requested.
    assert_eq!(hear(push("sunsubscribe", "z")), left("z"));
    let error = ServerError { code: "MOVED".into(), message: "1 a:1".into() };
    let refused = PubSubEvent::Rejected { channel: channel("b"), error };
    assert_eq!(hear(refusal("MOVED 1 a:1")), refused);
    assert_eq!(hear(push("sunsubscribe", "a")), left("a"));
    assert_eq!(hear(push("ssubscribe", "c")), joined("c"));
    assert_eq!(hear(moved("b")), left("b"), "where its slot is not served");
    assert_eq!(expectations.len(), 0);
    let message = Frame::Push(vec![text("smessage"), text("c"), text("payload")]);
    let payload = channel("payload");
    let expected = PubSubEvent::Message { channel: channel("c"), payload };
    assert_eq!(notice(expectations.on_frame(message, ALL).unwrap()), expected);
    let message = Frame::Push(vec![text("message"), text("c"), text("payload")]);
    assert_eq!(notice(expectations.on_frame(message, ALL).unwrap()), expected, "of a sentinel");
    assert!(expectations.on_frame(Frame::Push(vec![RespValue::Int(1)]), ALL).unwrap().is_none());
    assert!(expectations.on_frame(push("invalidate", "c"), ALL).unwrap().is_none());
}

/// The server ends the subscription by itself, and then answers the command by an error.
#[test]
fn unrequested_end_that_crosses_a_leave_is_followed_by_its_error() {
    for error in [moved("a"), refusal("CLUSTERDOWN Hash slot not served")] {
        let mut expectations = expecting([leave("a"), join("b")]);
        let ended = expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap();
        assert_eq!(notice(ended), left("a"));
        assert!(expectations.on_frame(error, ALL).unwrap().is_none(), "it is not about b");
        let begun = expectations.on_frame(push("ssubscribe", "b"), ALL).unwrap();
        assert_eq!(notice(begun), joined("b"));
        assert_eq!(expectations.len(), 0);
    }
    let mut expectations = expecting([leave("a")]);
    notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
    assert!(expectations.on_frame(refusal("NOPERM x"), ALL).unwrap().is_none());
    assert_eq!(expectations.len(), 0);
}

#[test]
fn rejected_ssubscribe_after_sunsubscribe_names_its_own_channel() {
    let mut expectations = expecting([leave("a"), leave("b"), join("c"), join("d")]);
    for name in ["a", "b"] {
        notice(expectations.on_frame(push("sunsubscribe", name), ALL).unwrap());
    }
    // Nothing follows about `a`, whose push was the answer.
    assert!(expectations.on_frame(moved("b"), ALL).unwrap().is_none());
    match notice(expectations.on_frame(moved("c"), ALL).unwrap()) {
        PubSubEvent::Rejected { channel, .. } => assert_eq!(channel, "c"),
        other => panic!("{other:?}"),
    }
    // Both pushes come where the slot came back in between.
    let mut expectations = expecting([leave("a"), leave("b"), join("c")]);
    for name in ["a", "b", "a", "b"] {
        notice(expectations.on_frame(push("sunsubscribe", name), ALL).unwrap());
    }
    assert_eq!(expectations.len(), 1);
    match notice(expectations.on_frame(refusal("NOPERM x"), ALL).unwrap()) {
        PubSubEvent::Rejected { channel, .. } => assert_eq!(channel, "c"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_leaves_of_a_channel_settle_no_later_error() {
    let rejected = |expectations: &mut PendingReplies, error| match notice(
        expectations.on_frame(error, ALL).unwrap(),
    ) {
        PubSubEvent::Rejected { channel, .. } => channel,
        other => panic!("{other:?}"),
    };
    // The pushes are the replies.
    let mut expectations = expecting([leave("a"), leave("a"), join("c")]);
    for _ in 0..2 {
        notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
    }
    assert_eq!(rejected(&mut expectations, moved("c")), "c");
    assert_eq!(expectations.len(), 0);
    // The first push was not requested, and the reply to the second command is a push or an error.
    for last in [push("sunsubscribe", "a"), moved("a")] {
        let mut expectations = expecting([leave("a"), leave("a"), join("c")]);
        for _ in 0..2 {
            notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
        }
        expectations.on_frame(last, ALL).unwrap();
        assert_eq!(expectations.len(), 1);
        assert_eq!(rejected(&mut expectations, refusal("CLUSTERDOWN x")), "c");
    }
    // With another channel in between.
    let mut expectations = expecting([leave("a"), leave("b"), leave("a"), join("c")]);
    for name in ["a", "b", "a"] {
        notice(expectations.on_frame(push("sunsubscribe", name), ALL).unwrap());
    }
    assert_eq!(rejected(&mut expectations, moved("c")), "c");
}

#[test]
fn ssubscribe_push_settles_earlier_joins_but_not_an_expected_reply() {
    let mut expectations = expecting([leave("a"), join("b"), join("c")]);
    notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
    // The answer about `b` was taken for one about `a`.
    assert!(expectations.on_frame(refusal("CLUSTERDOWN x"), ALL).unwrap().is_none());
    notice(expectations.on_frame(push("ssubscribe", "c"), ALL).unwrap());
    assert_eq!(expectations.len(), 0);
    let (reply_tx, _told) = oneshot::channel();
    let mut expectations = expecting([PendingReply::Reply(reply_tx), join("a")]);
    assert_eq!(
        expectations.on_frame(push("ssubscribe", "a"), ALL).unwrap_err().message,
        OUT_OF_ORDER.to_string()
    );
}

#[test]
fn connection_refuses_a_confirmation_that_nobody_requested() {
    let mut expectations = expecting([join("a"), leave("a")]);
    notice(expectations.on_frame(push("ssubscribe", "a"), ALL).unwrap());
    for unasked in ["a", "b"] {
        let heard = expectations.on_frame(push("ssubscribe", unasked), ALL);
        assert_eq!(heard.unwrap_err().message, UNEXPECTED_CHANNEL.to_string());
    }
}
