//! The answers that a connection expects, and the meaning of what arrives.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::node::native::decoder::Said;
use crate::node::{NodeError, Notice, ProtocolError, Reply, ReplyShape, ServerError};
use crate::slot::Slot;

/// The answers to a pipeline.
pub(super) type Outcome = Result<Vec<Reply>, NodeError>;

/// An expected answer: one for each command.
#[derive(Debug)]
pub(super) enum Expected {
    /// A reply, for a caller.
    Reply(oneshot::Sender<Result<Reply, NodeError>>),
    /// A reply of a pipeline that is not its last.
    Part,
    /// The last reply of a pipeline, for the caller, who gets it with the parts before it.
    Last(oneshot::Sender<Outcome>),
    /// A reply that is dropped.
    Anything,
    /// The confirmation that the channel was joined, which is a push, or an error.
    Join(Bytes),
    /// The confirmation that the channel was left, likewise.
    Leave(Bytes),
    /// The channel was left. The push that said so may have been one that nobody requested, just
    /// before the command arrived: then the answer to the command still follows, an error.
    Left(Bytes),
}

/// The meaning of an item that arrived.
#[derive(Debug)]
pub(super) enum Meaning {
    /// The reply that a caller waits for.
    Answered(oneshot::Sender<Result<Reply, NodeError>>, Reply),
    /// All replies that a caller waits for.
    AllAnswered(oneshot::Sender<Outcome>, Vec<Reply>),
    Noticed(Notice),
}

/// The expected answers in the order of the commands, in which servers answer.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    awaited: VecDeque<Awaited>,
    /// The replies so far to the pipeline whose next part is the first that is awaited.
    parts: Vec<Reply>,
    /// How many requests are awaited. A pipeline is one.
    requests: usize,
}

/// Where commands begin, counted in all bytes that were put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) command: u64,
    /// Where the first command of the same request begins.
    pub(super) request: u64,
}

#[derive(Debug)]
struct Awaited {
    begin: Begin,
    shape: ReplyShape,
    expected: Expected,
}

const UNASKED: ProtocolError =
    ProtocolError::new("unexpected reply: no command is waiting for one");
const TOO_EARLY: ProtocolError =
    ProtocolError::new("unexpected reply: it came before its command was sent");
const NO_PUSH: ProtocolError =
    ProtocolError::new("SUBSCRIBE was answered by a reply instead of a push");
const OUT_OF_ORDER: ProtocolError =
    ProtocolError::new("the server confirmed a subscription before it answered earlier commands");
const UNASKED_CHANNEL: ProtocolError =
    ProtocolError::new("the server confirmed a subscription that nobody requested");

impl Expected {
    /// The answers to a pipeline of `count` commands.
    pub(super) fn replies(
        count: usize,
        tell: oneshot::Sender<Outcome>,
    ) -> impl Iterator<Item = Expected> {
        let parts = std::iter::repeat_with(|| Expected::Part).take(count.saturating_sub(1));
        parts.chain([Expected::Last(tell)])
    }
}

impl Expectations {
    /// Adds the answer to a command that begins there.
    pub(super) fn add(&mut self, begin: Begin, shape: ReplyShape, expected: Expected) {
        self.requests += usize::from(!matches!(expected, Expected::Part));
        self.awaited.push_back(Awaited { begin, shape, expected });
    }

    /// The number of requests whose answers are awaited.
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    /// Takes the next item, when `offered` bytes may have reached the server. `None` if it means
    /// nothing to any caller.
    pub(super) fn hear(&mut self, said: Said, offered: u64) -> Result<Option<Meaning>, NodeError> {
        match said {
            Said::Reply(reply) => self.hear_reply(reply, offered),
            Said::Push(parts) => Ok(self.hear_push(parts, offered)?.map(Meaning::Noticed)),
        }
    }

    /// Notifies all waiting callers that the connection has ended. Commands that begin at `written`
    /// or later were not sent.
    pub(super) fn fail(&mut self, written: u64, why: &NodeError) {
        for Awaited { begin, expected, .. } in self.awaited.drain(..) {
            let failure = || NodeError { maybe_sent: begin.request < written, ..why.clone() };
            match expected {
                Expected::Reply(tell) => drop(tell.send(Err(failure()))),
                Expected::Last(tell) => drop(tell.send(Err(failure()))),
                _ => {}
            }
        }
    }

    fn hear_reply(&mut self, reply: Reply, offered: u64) -> Result<Option<Meaning>, NodeError> {
        if self.settle_left(&reply) {
            return Ok(None);
        }
        let first = match self.awaited.front() {
            Some(first) if first.begin.command < offered => first,
            Some(_) => return Err(unasked(reply, TOO_EARLY)),
            None => return Err(unasked(reply, UNASKED)),
        };
        first.shape.check(&reply)?;
        let Some(expected) = self.pop() else {
            return Ok(None);
        };
        match (expected, reply) {
            (Expected::Reply(tell), reply) => Ok(Some(Meaning::Answered(tell, reply))),
            (Expected::Part, reply) => {
                self.parts.push(reply);
                Ok(None)
            }
            (Expected::Last(tell), reply) => {
                let mut replies = mem::take(&mut self.parts);
                replies.push(reply);
                Ok(Some(Meaning::AllAnswered(tell, replies)))
            }
            (Expected::Join(channel), Reply::Error(error)) => {
                Ok(Some(Meaning::Noticed(Notice::Refused { channel, error })))
            }
            (Expected::Join(_), _) => Err(NO_PUSH.into()),
            // A server that does not serve the slot answers so, and the channel is of no use there.
            (Expected::Leave(channel), Reply::Error(_)) => {
                Ok(Some(Meaning::Noticed(Notice::Left { channel })))
            }
            (Expected::Leave(_) | Expected::Left(_) | Expected::Anything, _) => Ok(None),
        }
    }

    fn hear_push(&mut self, parts: Vec<Reply>, offered: u64) -> Result<Option<Notice>, NodeError> {
        let mut texts = parts.into_iter().map(|part| match part {
            Reply::Text(text) => Some(text),
            _ => None,
        });
        let mut text = || texts.next().flatten();
        let Some((kind, channel)) = text().zip(text()) else {
            return Ok(None);
        };
        match &*kind {
            b"ssubscribe" | b"subscribe" => Ok(Some(self.joined(&channel, offered)?)),
            b"sunsubscribe" | b"unsubscribe" => {
                self.left(&channel);
                Ok(Some(Notice::Left { channel }))
            }
            b"smessage" | b"message" => {
                Ok(text().map(|payload| Notice::Message { channel, payload }))
            }
            _ => Ok(None),
        }
    }

    /// Takes the confirmation of a join. All answers before it have come, even if one of them was
    /// taken for another.
    fn joined(&mut self, channel: &Bytes, offered: u64) -> Result<Notice, ProtocolError> {
        let is_it = |awaited: &Awaited| match &awaited.expected {
            Expected::Join(one) => one == channel && awaited.begin.command < offered,
            _ => false,
        };
        let at = self.awaited.iter().position(is_it).ok_or(UNASKED_CHANNEL)?;
        if self.awaited.iter().take(at).any(|awaited| !awaited.expected.is_of_channel()) {
            return Err(OUT_OF_ORDER);
        }
        for _ in 0..at {
            self.pop();
        }
        // Its own copy of the name: the one that arrived would keep the whole read buffer.
        match self.pop() {
            Some(Expected::Join(channel)) => Ok(Notice::Joined { channel }),
            _ => Err(UNASKED_CHANNEL),
        }
    }

    /// Takes the push that a channel was left.
    fn left(&mut self, channel: &Bytes) {
        let lefts = self.awaited.iter().take_while(|awaited| awaited.expected.is_left()).count();
        let is_it =
            |awaited: &Awaited| matches!(&awaited.expected, Expected::Left(one) if one == channel);
        if let Some(at) = self.awaited.iter().take(lefts).position(is_it) {
            // This is the answer, and the push before it was none.
            for _ in 0..=at {
                self.pop();
            }
        } else if let Some(Awaited { expected, .. }) = self.awaited.get_mut(lefts)
            && let Expected::Leave(one) = expected
            && one == channel
        {
            *expected = Expected::Left(mem::take(one));
        }
    }

    /// Drops the channels in front that were left, if this reply shows that nothing more is said
    /// about them. Returns true if it is the answer about one of them.
    fn settle_left(&mut self, reply: &Reply) -> bool {
        while let Some(Awaited { expected: Expected::Left(channel), .. }) = self.awaited.front() {
            let is_about_it = match reply {
                Reply::Error(error) => {
                    self.awaited.len() == 1 || is_about(error, Slot::of(channel))
                }
                _ => false,
            };
            self.pop();
            if is_about_it {
                return true;
            }
        }
        false
    }

    fn pop(&mut self) -> Option<Expected> {
        let Awaited { expected, .. } = self.awaited.pop_front()?;
        self.requests -= usize::from(!matches!(expected, Expected::Part));
        Some(expected)
    }
}

impl Expected {
    fn is_of_channel(&self) -> bool {
        matches!(self, Expected::Join(_) | Expected::Leave(_) | Expected::Left(_))
    }

    fn is_left(&self) -> bool {
        matches!(self, Expected::Left(_))
    }
}

/// The failure for a reply to no command. Servers say why they refuse a connection before they have
/// read anything.
fn unasked(reply: Reply, otherwise: ProtocolError) -> NodeError {
    match reply {
        Reply::Error(error) => NodeError {
            is_protocol_error: true,
            source: Some(Arc::new(error.clone())),
            ..NodeError::unsent(error.to_string())
        },
        _ => otherwise.into(),
    }
}

/// Returns true if an error can be the answer to leaving a channel of a slot that the server does
/// not serve.
fn is_about(error: &ServerError, slot: Slot) -> bool {
    match &*error.code {
        "MOVED" | "ASK" => {
            let named = error.detail.split_ascii_whitespace().next();
            named.and_then(|named| named.parse().ok()) == Some(slot.get())
        }
        "CLUSTERDOWN" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if all had been written.
    const ALL: u64 = u64::MAX;

    fn text(text: &'static str) -> Reply {
        Reply::Text(Bytes::from_static(text.as_bytes()))
    }

    fn push(kind: &'static str, channel: &'static str) -> Said {
        Said::Push(vec![text(kind), text(channel), Reply::Int(1)])
    }

    fn refusal(line: &str) -> Said {
        let (code, detail) = line.split_once(' ').unwrap();
        Said::Reply(Reply::Error(ServerError { code: code.into(), detail: detail.into() }))
    }

    fn moved(channel: &str) -> Said {
        refusal(&format!("MOVED {} a:1", Slot::of(channel)))
    }

    fn channel(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    fn join(name: &'static str) -> Expected {
        Expected::Join(channel(name))
    }

    fn leave(name: &'static str) -> Expected {
        Expected::Leave(channel(name))
    }

    fn notice(meaning: Option<Meaning>) -> Notice {
        match meaning {
            Some(Meaning::Noticed(notice)) => notice,
            other => panic!("no notice: {other:?}"),
        }
    }

    fn expecting(expected: impl IntoIterator<Item = Expected>) -> Expectations {
        let mut expectations = Expectations::default();
        for (at, expected) in expected.into_iter().enumerate() {
            let begin = Begin { command: at as u64, request: at as u64 };
            expectations.add(begin, ReplyShape::Any, expected);
        }
        expectations
    }

    #[test]
    fn replies_resolve_expectations_in_the_order_of_commands() {
        let (one, _one) = oneshot::channel();
        let (two, _two) = oneshot::channel();
        let mut expectations =
            expecting([Expected::Reply(one)].into_iter().chain(Expected::replies(2, two)));
        assert_eq!(expectations.len(), 2);
        let mut hear = |number| expectations.hear(Said::Reply(Reply::Int(number)), ALL).unwrap();
        let answered = |meaning| match meaning {
            Some(Meaning::Answered(_, reply)) => vec![reply],
            Some(Meaning::AllAnswered(_, replies)) => replies,
            other => panic!("no answer: {other:?}"),
        };
        assert_eq!(answered(hear(1)), [Reply::Int(1)]);
        assert!(hear(2).is_none());
        assert_eq!(answered(hear(3)), [Reply::Int(2), Reply::Int(3)]);
        assert_eq!(expectations.len(), 0);
        assert_eq!(
            expectations.hear(Said::Reply(Reply::Nil), ALL).unwrap_err().message,
            UNASKED.to_string()
        );
    }

    #[tokio::test]
    async fn expectations_fail_reports_unwritten_commands_as_not_sent() {
        let mut expectations = Expectations::default();
        let (told, mut wait) = (0..3).map(|_| oneshot::channel()).unzip::<_, _, Vec<_>, Vec<_>>();
        for (tell, command) in told.into_iter().zip([0, 10, 20]) {
            let begin = Begin { command, request: command };
            expectations.add(begin, ReplyShape::Any, Expected::Reply(tell));
        }
        let (tell, mut all) = oneshot::channel();
        for (expected, command) in Expected::replies(2, tell).zip([10, 20]) {
            expectations.add(Begin { command, request: 10 }, ReplyShape::Any, expected);
        }
        expectations.fail(11, &NodeError::unsent("gone"));
        for (wait, maybe_sent) in wait.iter_mut().zip([true, true, false]) {
            assert_eq!(wait.await.unwrap().unwrap_err().maybe_sent, maybe_sent);
        }
        let failure = (&mut all).await.unwrap().unwrap_err();
        assert!(failure.maybe_sent, "the first of its commands was written");
    }

    #[test]
    fn reply_of_another_shape_is_given_to_nobody() {
        let (tell, mut told) = oneshot::channel();
        let mut expectations = Expectations::default();
        let begin = Begin { command: 0, request: 0 };
        expectations.add(begin, ReplyShape::Integer, Expected::Reply(tell));
        assert!(expectations.hear(Said::Reply(text("OK")), ALL).is_err());
        assert!(told.try_recv().is_err());
        let why = NodeError { is_protocol_error: true, ..NodeError::unsent("out of step") };
        expectations.fail(1, &why);
        assert!(told.try_recv().unwrap().unwrap_err().maybe_sent);
    }

    #[test]
    fn reply_before_its_command_was_sent_is_refused() {
        let (one, _one) = oneshot::channel();
        let (two, _two) = oneshot::channel();
        let mut expectations = expecting([Expected::Reply(one), Expected::Reply(two)]);
        let said = || Said::Reply(Reply::Int(1));
        assert!(expectations.hear(said(), 1).unwrap().is_some());
        assert_eq!(expectations.hear(said(), 1).unwrap_err().message, TOO_EARLY.to_string());
        assert!(expectations.hear(said(), 2).unwrap().is_some());
        let mut expectations = expecting([join("a")]);
        assert_eq!(
            expectations.hear(push("ssubscribe", "a"), 0).unwrap_err().message,
            UNASKED_CHANNEL.to_string()
        );
    }

    #[test]
    fn channels_are_joined_and_left_by_pushes() {
        let mut expectations = expecting([
            Expected::Anything,
            join("a"),
            join("b"),
            leave("a"),
            join("c"),
            leave("b"),
        ]);
        assert!(expectations.hear(Said::Reply(text("OK")), ALL).unwrap().is_none());
        let mut hear = |said| notice(expectations.hear(said, ALL).unwrap());
        assert_eq!(hear(push("ssubscribe", "a")), Notice::Joined { channel: channel("a") });
        // Not requested.
        assert_eq!(hear(push("sunsubscribe", "z")), Notice::Left { channel: channel("z") });
        let error = ServerError { code: "MOVED".into(), detail: "1 a:1".into() };
        let refused = Notice::Refused { channel: channel("b"), error };
        assert_eq!(hear(refusal("MOVED 1 a:1")), refused);
        assert_eq!(hear(push("sunsubscribe", "a")), Notice::Left { channel: channel("a") });
        assert_eq!(hear(push("ssubscribe", "c")), Notice::Joined { channel: channel("c") });
        let left = Notice::Left { channel: channel("b") };
        assert_eq!(hear(moved("b")), left, "where its slot is not served");
        assert_eq!(expectations.len(), 0);
        let message = Said::Push(vec![text("smessage"), text("c"), text("payload")]);
        let payload = channel("payload");
        let expected = Notice::Message { channel: channel("c"), payload };
        assert_eq!(notice(expectations.hear(message, ALL).unwrap()), expected);
        let message = Said::Push(vec![text("message"), text("c"), text("payload")]);
        assert_eq!(notice(expectations.hear(message, ALL).unwrap()), expected, "of a sentinel");
        assert!(expectations.hear(Said::Push(vec![Reply::Int(1)]), ALL).unwrap().is_none());
        assert!(expectations.hear(push("invalidate", "c"), ALL).unwrap().is_none());
    }

    /// The server ends the subscription by itself, and then answers the command by an error.
    #[test]
    fn unrequested_end_that_crosses_a_leave_is_followed_by_its_error() {
        for error in [moved("a"), refusal("CLUSTERDOWN Hash slot not served")] {
            let mut expectations = expecting([leave("a"), join("b")]);
            let left = Notice::Left { channel: channel("a") };
            assert_eq!(notice(expectations.hear(push("sunsubscribe", "a"), ALL).unwrap()), left);
            assert!(expectations.hear(error, ALL).unwrap().is_none(), "it is not about b");
            let joined = Notice::Joined { channel: channel("b") };
            assert_eq!(notice(expectations.hear(push("ssubscribe", "b"), ALL).unwrap()), joined);
            assert_eq!(expectations.len(), 0);
        }
        let mut expectations = expecting([leave("a")]);
        notice(expectations.hear(push("sunsubscribe", "a"), ALL).unwrap());
        assert!(expectations.hear(refusal("NOPERM x"), ALL).unwrap().is_none());
        assert_eq!(expectations.len(), 0);
    }

    #[test]
    fn refused_ssubscribe_after_sunsubscribe_names_its_own_channel() {
        let mut expectations = expecting([leave("a"), leave("b"), join("c"), join("d")]);
        for left in ["a", "b"] {
            notice(expectations.hear(push("sunsubscribe", left), ALL).unwrap());
        }
        // Nothing follows about `a`, whose push was the answer.
        assert!(expectations.hear(moved("b"), ALL).unwrap().is_none());
        match notice(expectations.hear(moved("c"), ALL).unwrap()) {
            Notice::Refused { channel, .. } => assert_eq!(channel, "c"),
            other => panic!("{other:?}"),
        }
        // Both pushes come where the slot came back in between.
        let mut expectations = expecting([leave("a"), leave("b"), join("c")]);
        for left in ["a", "b", "a", "b"] {
            notice(expectations.hear(push("sunsubscribe", left), ALL).unwrap());
        }
        assert_eq!(expectations.len(), 1);
        match notice(expectations.hear(refusal("NOPERM x"), ALL).unwrap()) {
            Notice::Refused { channel, .. } => assert_eq!(channel, "c"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ssubscribe_push_settles_earlier_joins_but_not_an_expected_reply() {
        let mut expectations = expecting([leave("a"), join("b"), join("c")]);
        notice(expectations.hear(push("sunsubscribe", "a"), ALL).unwrap());
        // The answer about `b` was taken for one about `a`.
        assert!(expectations.hear(refusal("CLUSTERDOWN x"), ALL).unwrap().is_none());
        notice(expectations.hear(push("ssubscribe", "c"), ALL).unwrap());
        assert_eq!(expectations.len(), 0);
        let (tell, _told) = oneshot::channel();
        let mut expectations = expecting([Expected::Reply(tell), join("a")]);
        assert_eq!(
            expectations.hear(push("ssubscribe", "a"), ALL).unwrap_err().message,
            OUT_OF_ORDER.to_string()
        );
    }

    #[test]
    fn confirmation_that_nobody_requested_is_refused() {
        let mut expectations = expecting([join("a"), leave("a")]);
        notice(expectations.hear(push("ssubscribe", "a"), ALL).unwrap());
        for unasked in ["a", "b"] {
            let heard = expectations.hear(push("ssubscribe", unasked), ALL);
            assert_eq!(heard.unwrap_err().message, UNASKED_CHANNEL.to_string());
        }
    }
}
