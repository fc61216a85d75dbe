//! The answers that a connection expects, and the meaning of what arrives.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::backend::native::decoder::Frame;
use crate::backend::{
    ConnectionError, ProtocolError, PubSubEvent, ReplyShape, RespValue, ServerError,
};
use crate::slot::Slot;

/// The answers to a pipeline.
pub(super) type PipelineOutcome = Result<Vec<RespValue>, ConnectionError>;

/// An expected answer: one for each command.
#[derive(Debug)]
pub(super) enum PendingReply {
    /// A reply, for a caller.
    Reply(oneshot::Sender<Result<RespValue, ConnectionError>>),
    /// A reply of a pipeline that is not its last.
    Part,
    /// The last reply of a pipeline, for the caller, who gets it with the parts before it.
    Last(oneshot::Sender<PipelineOutcome>),
    /// A reply that is dropped.
    Discarded,
    /// The confirmation that the channel was joined, which is a push, or an error.
    Subscribe(Bytes),
    /// The confirmation that the channel was left, likewise.
    Unsubscribe(Bytes),
    /// The channel was left. The push that said so may have been one that nobody requested, just
    /// before the command arrived: then the answer to the command still follows, an error.
    Left(Bytes),
}

/// The meaning of an item that arrived.
#[derive(Debug)]
pub(super) enum FrameAction {
    /// The reply that a caller waits for.
    CompleteReply(oneshot::Sender<Result<RespValue, ConnectionError>>, RespValue),
    /// All replies that a caller waits for.
    CompletePipeline(oneshot::Sender<PipelineOutcome>, Vec<RespValue>),
    PubSub(PubSubEvent),
}

/// The expected answers in the order of the commands, in which servers answer.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    awaited: VecDeque<PendingEntry>,
    /// The replies so far to the pipeline whose next part is the first that is awaited.
    parts: Vec<RespValue>,
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
struct PendingEntry {
    start_offset: Begin,
    shape: ReplyShape,
    expected: PendingReply,
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

impl PendingReply {
    /// The answers to a pipeline of `count` commands.
    pub(super) fn replies(
        count: usize,
        tell: oneshot::Sender<PipelineOutcome>,
    ) -> impl Iterator<Item = PendingReply> {
        let parts = std::iter::repeat_with(|| PendingReply::Part).take(count.saturating_sub(1));
        parts.chain([PendingReply::Last(tell)])
    }
}

impl PendingReplies {
    /// Adds the answer to a command that begins there.
    pub(super) fn add(&mut self, begin: Begin, shape: ReplyShape, expected: PendingReply) {
        self.requests += usize::from(!matches!(expected, PendingReply::Part));
        self.awaited.push_back(PendingEntry { start_offset: begin, shape, expected });
    }

    /// The number of requests whose answers are awaited.
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    /// Takes the next item, when `offered` bytes may have reached the server. `None` if it means
    /// nothing to any caller.
    pub(super) fn on_frame(
        &mut self,
        said: Frame,
        offered: u64,
    ) -> Result<Option<FrameAction>, ConnectionError> {
        match said {
            Frame::Reply(reply) => self.on_reply(reply, offered),
            Frame::Push(parts) => Ok(self.on_push(parts, offered)?.map(FrameAction::PubSub)),
        }
    }

    /// Notifies all waiting callers that the connection has ended. Commands that begin at `written`
    /// or later were not sent.
    pub(super) fn fail_all(&mut self, written: u64, why: &ConnectionError) {
        for PendingEntry { start_offset: begin, expected, .. } in self.awaited.drain(..) {
            let failure = || ConnectionError { maybe_sent: begin.request < written, ..why.clone() };
            match expected {
                PendingReply::Reply(tell) => drop(tell.send(Err(failure()))),
                PendingReply::Last(tell) => drop(tell.send(Err(failure()))),
                _ => {}
            }
        }
    }

    fn on_reply(
        &mut self,
        reply: RespValue,
        offered: u64,
    ) -> Result<Option<FrameAction>, ConnectionError> {
        if self.settle_left(&reply) {
            return Ok(None);
        }
        let first = match self.awaited.front() {
            Some(first) if first.start_offset.command < offered => first,
            Some(_) => return Err(unasked(reply, TOO_EARLY)),
            None => return Err(unasked(reply, UNASKED)),
        };
        first.shape.check(&reply)?;
        let Some(expected) = self.pop() else {
            return Ok(None);
        };
        match (expected, reply) {
            (PendingReply::Reply(tell), reply) => Ok(Some(FrameAction::CompleteReply(tell, reply))),
            (PendingReply::Part, reply) => {
                self.parts.push(reply);
                Ok(None)
            }
            (PendingReply::Last(tell), reply) => {
                let mut replies = mem::take(&mut self.parts);
                replies.push(reply);
                Ok(Some(FrameAction::CompletePipeline(tell, replies)))
            }
            (PendingReply::Subscribe(channel), RespValue::Error(error)) => {
                Ok(Some(FrameAction::PubSub(PubSubEvent::Rejected { channel, error })))
            }
            (PendingReply::Subscribe(_), _) => Err(NO_PUSH.into()),
            // A server that does not serve the slot answers so, and the channel is of no use there.
            (PendingReply::Unsubscribe(channel), RespValue::Error(_)) => {
                Ok(Some(FrameAction::PubSub(PubSubEvent::Unsubscribed { channel })))
            }
            (PendingReply::Unsubscribe(_) | PendingReply::Left(_) | PendingReply::Discarded, _) => {
                Ok(None)
            }
        }
    }

    fn on_push(
        &mut self,
        parts: Vec<RespValue>,
        offered: u64,
    ) -> Result<Option<PubSubEvent>, ConnectionError> {
        let mut texts = parts.into_iter().map(|part| match part {
            RespValue::String(text) => Some(text),
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
                Ok(Some(PubSubEvent::Unsubscribed { channel }))
            }
            b"smessage" | b"message" => {
                Ok(text().map(|payload| PubSubEvent::Message { channel, payload }))
            }
            _ => Ok(None),
        }
    }

    /// Takes the confirmation of a join. All answers before it have come, even if one of them was
    /// taken for another.
    fn joined(&mut self, channel: &Bytes, offered: u64) -> Result<PubSubEvent, ProtocolError> {
        let is_it = |awaited: &PendingEntry| match &awaited.expected {
            PendingReply::Subscribe(one) => {
                one == channel && awaited.start_offset.command < offered
            }
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
            Some(PendingReply::Subscribe(channel)) => Ok(PubSubEvent::Subscribed { channel }),
            _ => Err(UNASKED_CHANNEL),
        }
    }

    /// Takes the push that a channel was left.
    fn left(&mut self, channel: &Bytes) {
        let lefts = self.awaited.iter().take_while(|awaited| awaited.expected.is_left()).count();
        let is_it = |awaited: &PendingEntry| matches!(&awaited.expected, PendingReply::Left(one) if one == channel);
        if let Some(at) = self.awaited.iter().take(lefts).position(is_it) {
            // This is the answer, and the push before it was none.
            for _ in 0..=at {
                self.pop();
            }
        } else if let Some(PendingEntry { expected, .. }) = self.awaited.get_mut(lefts)
            && let PendingReply::Unsubscribe(one) = expected
            && one == channel
        {
            *expected = PendingReply::Left(mem::take(one));
        }
    }

    /// Drops the channels in front that were left, if this reply shows that nothing more is said
    /// about them. Returns true if it is the answer about one of them.
    fn settle_left(&mut self, reply: &RespValue) -> bool {
        while let Some(PendingEntry { expected: PendingReply::Left(channel), .. }) =
            self.awaited.front()
        {
            let is_about_it = match reply {
                RespValue::Error(error) => {
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

    fn pop(&mut self) -> Option<PendingReply> {
        let PendingEntry { expected, .. } = self.awaited.pop_front()?;
        self.requests -= usize::from(!matches!(expected, PendingReply::Part));
        Some(expected)
    }
}

impl PendingReply {
    fn is_of_channel(&self) -> bool {
        matches!(
            self,
            PendingReply::Subscribe(_) | PendingReply::Unsubscribe(_) | PendingReply::Left(_)
        )
    }

    fn is_left(&self) -> bool {
        matches!(self, PendingReply::Left(_))
    }
}

/// The failure for a reply to no command. Servers say why they refuse a connection before they have
/// read anything.
fn unasked(reply: RespValue, otherwise: ProtocolError) -> ConnectionError {
    match reply {
        RespValue::Error(error) => ConnectionError {
            is_protocol_error: true,
            source: Some(Arc::new(error.clone())),
            ..ConnectionError::not_sent(error.to_string())
        },
        _ => otherwise.into(),
    }
}

/// Returns true if an error can be the answer to leaving a channel of a slot that the server does
/// not serve.
fn is_about(error: &ServerError, slot: Slot) -> bool {
    match &*error.code {
        "MOVED" | "ASK" => {
            let named = error.message.split_ascii_whitespace().next();
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
            expecting([PendingReply::Reply(one)].into_iter().chain(PendingReply::replies(2, two)));
        assert_eq!(expectations.len(), 2);
        let mut hear =
            |number| expectations.on_frame(Frame::Reply(RespValue::Int(number)), ALL).unwrap();
        let answered = |meaning| match meaning {
            Some(FrameAction::CompleteReply(_, reply)) => vec![reply],
            Some(FrameAction::CompletePipeline(_, replies)) => replies,
            other => panic!("no answer: {other:?}"),
        };
        assert_eq!(answered(hear(1)), [RespValue::Int(1)]);
        assert!(hear(2).is_none());
        assert_eq!(answered(hear(3)), [RespValue::Int(2), RespValue::Int(3)]);
        assert_eq!(expectations.len(), 0);
        assert_eq!(
            expectations.on_frame(Frame::Reply(RespValue::Nil), ALL).unwrap_err().message,
            UNASKED.to_string()
        );
    }

    #[tokio::test]
    async fn expectations_fail_reports_unwritten_commands_as_not_sent() {
        let mut expectations = PendingReplies::default();
        let (told, mut wait) = (0..3).map(|_| oneshot::channel()).unzip::<_, _, Vec<_>, Vec<_>>();
        for (tell, command) in told.into_iter().zip([0, 10, 20]) {
            let begin = Begin { command, request: command };
            expectations.add(begin, ReplyShape::Any, PendingReply::Reply(tell));
        }
        let (tell, mut all) = oneshot::channel();
        for (expected, command) in PendingReply::replies(2, tell).zip([10, 20]) {
            expectations.add(Begin { command, request: 10 }, ReplyShape::Any, expected);
        }
        expectations.fail_all(11, &ConnectionError::not_sent("gone"));
        for (wait, maybe_sent) in wait.iter_mut().zip([true, true, false]) {
            assert_eq!(wait.await.unwrap().unwrap_err().maybe_sent, maybe_sent);
        }
        let failure = (&mut all).await.unwrap().unwrap_err();
        assert!(failure.maybe_sent, "the first of its commands was written");
    }

    #[test]
    fn reply_of_another_shape_is_given_to_nobody() {
        let (tell, mut told) = oneshot::channel();
        let mut expectations = PendingReplies::default();
        let begin = Begin { command: 0, request: 0 };
        expectations.add(begin, ReplyShape::Integer, PendingReply::Reply(tell));
        assert!(expectations.on_frame(Frame::Reply(text("OK")), ALL).is_err());
        assert!(told.try_recv().is_err());
        let why =
            ConnectionError { is_protocol_error: true, ..ConnectionError::not_sent("out of step") };
        expectations.fail_all(1, &why);
        assert!(told.try_recv().unwrap().unwrap_err().maybe_sent);
    }

    #[test]
    fn reply_before_its_command_was_sent_is_refused() {
        let (one, _one) = oneshot::channel();
        let (two, _two) = oneshot::channel();
        let mut expectations = expecting([PendingReply::Reply(one), PendingReply::Reply(two)]);
        let said = || Frame::Reply(RespValue::Int(1));
        assert!(expectations.on_frame(said(), 1).unwrap().is_some());
        assert_eq!(expectations.on_frame(said(), 1).unwrap_err().message, TOO_EARLY.to_string());
        assert!(expectations.on_frame(said(), 2).unwrap().is_some());
        let mut expectations = expecting([join("a")]);
        assert_eq!(
            expectations.on_frame(push("ssubscribe", "a"), 0).unwrap_err().message,
            UNASKED_CHANNEL.to_string()
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
        assert_eq!(
            hear(push("ssubscribe", "a")),
            PubSubEvent::Subscribed { channel: channel("a") }
        );
        // Not requested.
        assert_eq!(
            hear(push("sunsubscribe", "z")),
            PubSubEvent::Unsubscribed { channel: channel("z") }
        );
        let error = ServerError { code: "MOVED".into(), message: "1 a:1".into() };
        let refused = PubSubEvent::Rejected { channel: channel("b"), error };
        assert_eq!(hear(refusal("MOVED 1 a:1")), refused);
        assert_eq!(
            hear(push("sunsubscribe", "a")),
            PubSubEvent::Unsubscribed { channel: channel("a") }
        );
        assert_eq!(
            hear(push("ssubscribe", "c")),
            PubSubEvent::Subscribed { channel: channel("c") }
        );
        let left = PubSubEvent::Unsubscribed { channel: channel("b") };
        assert_eq!(hear(moved("b")), left, "where its slot is not served");
        assert_eq!(expectations.len(), 0);
        let message = Frame::Push(vec![text("smessage"), text("c"), text("payload")]);
        let payload = channel("payload");
        let expected = PubSubEvent::Message { channel: channel("c"), payload };
        assert_eq!(notice(expectations.on_frame(message, ALL).unwrap()), expected);
        let message = Frame::Push(vec![text("message"), text("c"), text("payload")]);
        assert_eq!(notice(expectations.on_frame(message, ALL).unwrap()), expected, "of a sentinel");
        assert!(
            expectations.on_frame(Frame::Push(vec![RespValue::Int(1)]), ALL).unwrap().is_none()
        );
        assert!(expectations.on_frame(push("invalidate", "c"), ALL).unwrap().is_none());
    }

    /// The server ends the subscription by itself, and then answers the command by an error.
    #[test]
    fn unrequested_end_that_crosses_a_leave_is_followed_by_its_error() {
        for error in [moved("a"), refusal("CLUSTERDOWN Hash slot not served")] {
            let mut expectations = expecting([leave("a"), join("b")]);
            let left = PubSubEvent::Unsubscribed { channel: channel("a") };
            assert_eq!(
                notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap()),
                left
            );
            assert!(expectations.on_frame(error, ALL).unwrap().is_none(), "it is not about b");
            let joined = PubSubEvent::Subscribed { channel: channel("b") };
            assert_eq!(
                notice(expectations.on_frame(push("ssubscribe", "b"), ALL).unwrap()),
                joined
            );
            assert_eq!(expectations.len(), 0);
        }
        let mut expectations = expecting([leave("a")]);
        notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
        assert!(expectations.on_frame(refusal("NOPERM x"), ALL).unwrap().is_none());
        assert_eq!(expectations.len(), 0);
    }

    #[test]
    fn refused_ssubscribe_after_sunsubscribe_names_its_own_channel() {
        let mut expectations = expecting([leave("a"), leave("b"), join("c"), join("d")]);
        for left in ["a", "b"] {
            notice(expectations.on_frame(push("sunsubscribe", left), ALL).unwrap());
        }
        // Nothing follows about `a`, whose push was the answer.
        assert!(expectations.on_frame(moved("b"), ALL).unwrap().is_none());
        match notice(expectations.on_frame(moved("c"), ALL).unwrap()) {
            PubSubEvent::Rejected { channel, .. } => assert_eq!(channel, "c"),
            other => panic!("{other:?}"),
        }
        // Both pushes come where the slot came back in between.
        let mut expectations = expecting([leave("a"), leave("b"), join("c")]);
        for left in ["a", "b", "a", "b"] {
            notice(expectations.on_frame(push("sunsubscribe", left), ALL).unwrap());
        }
        assert_eq!(expectations.len(), 1);
        match notice(expectations.on_frame(refusal("NOPERM x"), ALL).unwrap()) {
            PubSubEvent::Rejected { channel, .. } => assert_eq!(channel, "c"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ssubscribe_push_settles_earlier_joins_but_not_an_expected_reply() {
        let mut expectations = expecting([leave("a"), join("b"), join("c")]);
        notice(expectations.on_frame(push("sunsubscribe", "a"), ALL).unwrap());
        // The answer about `b` was taken for one about `a`.
        assert!(expectations.on_frame(refusal("CLUSTERDOWN x"), ALL).unwrap().is_none());
        notice(expectations.on_frame(push("ssubscribe", "c"), ALL).unwrap());
        assert_eq!(expectations.len(), 0);
        let (tell, _told) = oneshot::channel();
        let mut expectations = expecting([PendingReply::Reply(tell), join("a")]);
        assert_eq!(
            expectations.on_frame(push("ssubscribe", "a"), ALL).unwrap_err().message,
            OUT_OF_ORDER.to_string()
        );
    }

    #[test]
    fn confirmation_that_nobody_requested_is_refused() {
        let mut expectations = expecting([join("a"), leave("a")]);
        notice(expectations.on_frame(push("ssubscribe", "a"), ALL).unwrap());
        for unasked in ["a", "b"] {
            let heard = expectations.on_frame(push("ssubscribe", unasked), ALL);
            assert_eq!(heard.unwrap_err().message, UNASKED_CHANNEL.to_string());
        }
    }
}
