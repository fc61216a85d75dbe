//! The replies that a connection waits for, and which caller each received item completes.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;
use rwlease_core::resp::{ProtocolError, ReplyShape, RespValue, ServerError};
use rwlease_core::slot::Slot;
use tokio::sync::oneshot;

use crate::backend::native::decoder::Frame;
use crate::backend::{ConnectionError, PubSubEvent};

/// The replies to a pipeline.
pub type PipelineOutcome = Result<Vec<RespValue>, ConnectionError>;

/// A pending reply: one for each command.
#[derive(Debug)]
pub enum PendingReply {
    /// A reply, for a caller.
    Reply(oneshot::Sender<Result<RespValue, ConnectionError>>),
    /// A reply of a pipeline that is not its last.
    Part,
    /// The last reply of a pipeline. It completes the pipeline, and the caller gets all its
    /// replies.
    Last(oneshot::Sender<PipelineOutcome>),
    /// A reply that is dropped.
    Discarded,
    /// The push that confirms a subscription to the channel, or an error.
    Subscribe(Bytes),
    /// The push that confirms the end of a subscription, or an error.
    Unsubscribe(Bytes),
    /// A push has ended the subscription to the channel. The server may have sent that push
    /// before it received the command. Then the reply to the command, an error, still follows.
    Unsubscribed(Bytes),
}

/// The action for a received frame.
#[derive(Debug)]
pub enum FrameAction {
    /// The reply that a caller waits for.
    CompleteReply(oneshot::Sender<Result<RespValue, ConnectionError>>, RespValue),
    /// All replies that a caller waits for.
    CompletePipeline(oneshot::Sender<PipelineOutcome>, Vec<RespValue>),
    PubSub(PubSubEvent),
}

/// The pending replies, in the order of the commands. Servers reply in that order.
#[derive(Debug, Default)]
pub struct PendingReplies {
    pending: VecDeque<PendingEntry>,
    /// The received replies of the pipeline at the front of `pending`.
    parts: Vec<RespValue>,
    /// The number of pending requests. A pipeline is one request.
    requests: usize,
}

/// Where a command begins in the bytes that were written, counted from the first one.
#[derive(Clone, Copy, Debug)]
pub struct CommandOffsets {
    pub command: u64,
    /// Where the first command of the same request begins.
    pub request: u64,
}

#[derive(Debug)]
struct PendingEntry {
    offsets: CommandOffsets,
    shape: ReplyShape,
    expected: PendingReply,
}

const UNEXPECTED_REPLY: ProtocolError =
    ProtocolError::new("unexpected reply: no command is waiting for one");
const EARLY_REPLY: ProtocolError =
    ProtocolError::new("unexpected reply: it came before its command was sent");
const MISSING_PUSH: ProtocolError = ProtocolError::new(
    "SUBSCRIBE was answered by a reply instead of a push; check that no proxy disables RESP3",
);
const OUT_OF_ORDER: ProtocolError = ProtocolError::new(
    "unexpected push: it confirms a subscription before earlier commands are answered",
);
const UNEXPECTED_CHANNEL: ProtocolError =
    ProtocolError::new("unexpected push: it confirms a subscription that was not requested");

impl PendingReply {
    /// The answers to a pipeline of `count` commands.
    pub fn replies(
        count: usize,
        reply_tx: oneshot::Sender<PipelineOutcome>,
    ) -> impl Iterator<Item = PendingReply> {
        let parts = std::iter::repeat_with(|| PendingReply::Part).take(count.saturating_sub(1));
        parts.chain([PendingReply::Last(reply_tx)])
    }
}

impl PendingReplies {
    /// Adds the reply to a command that begins at `offsets`.
    pub fn add(&mut self, offsets: CommandOffsets, shape: ReplyShape, expected: PendingReply) {
        self.requests += usize::from(!matches!(expected, PendingReply::Part));
        self.pending.push_back(PendingEntry { offsets, shape, expected });
    }

    /// The number of requests whose replies are pending.
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    /// Handles the next frame, when `offered` bytes may have reached the server. Returns `None` if
    /// no caller gets anything from it.
    pub fn on_frame(
        &mut self,
        frame: Frame,
        offered: u64,
    ) -> Result<Option<FrameAction>, ConnectionError> {
        match frame {
            Frame::Reply(reply) => self.on_reply(reply, offered),
            Frame::Push(parts) => Ok(self.on_push(parts, offered)?.map(FrameAction::PubSub)),
        }
    }

    /// Notifies all waiting callers that the connection has ended. Commands that begin at `written`
    /// or later were not sent.
    pub fn fail_all(&mut self, written: u64, reason: &ConnectionError) {
        for PendingEntry { offsets, expected, .. } in self.pending.drain(..) {
            let failure =
                || ConnectionError { maybe_sent: offsets.request < written, ..reason.clone() };
            match expected {
                PendingReply::Reply(reply_tx) => drop(reply_tx.send(Err(failure()))),
                PendingReply::Last(reply_tx) => drop(reply_tx.send(Err(failure()))),
                _ => {}
            }
        }
    }

    fn on_reply(
        &mut self,
        reply: RespValue,
        offered: u64,
    ) -> Result<Option<FrameAction>, ConnectionError> {
        if self.settle_unsubscribed(&reply) {
            return Ok(None);
        }
        let first = match self.pending.front() {
            Some(first) if first.offsets.command < offered => first,
            Some(_) => return Err(unexpected_reply_error(reply, EARLY_REPLY)),
            None => return Err(unexpected_reply_error(reply, UNEXPECTED_REPLY)),
        };
        first.shape.check(&reply)?;
        let Some(expected) = self.pop() else {
            return Ok(None);
        };
        match (expected, reply) {
            (PendingReply::Reply(reply_tx), reply) => {
                Ok(Some(FrameAction::CompleteReply(reply_tx, reply)))
            }
            (PendingReply::Part, reply) => {
                self.parts.push(reply);
                Ok(None)
            }
            (PendingReply::Last(reply_tx), reply) => {
                let mut replies = mem::take(&mut self.parts);
                replies.push(reply);
                Ok(Some(FrameAction::CompletePipeline(reply_tx, replies)))
            }
            (PendingReply::Subscribe(channel), RespValue::Error(error)) => {
                Ok(Some(FrameAction::PubSub(PubSubEvent::Rejected { channel, error })))
            }
            (PendingReply::Subscribe(_), _) => Err(MISSING_PUSH.into()),
            // A server that does not serve the slot answers so, and the channel is of no use there.
            (PendingReply::Unsubscribe(channel), RespValue::Error(_)) => {
                Ok(Some(FrameAction::PubSub(PubSubEvent::Unsubscribed { channel })))
            }
            (
                PendingReply::Unsubscribe(_)
                | PendingReply::Unsubscribed(_)
                | PendingReply::Discarded,
                _,
            ) => Ok(None),
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
            b"ssubscribe" | b"subscribe" => Ok(Some(self.on_subscribed(&channel, offered)?)),
            b"sunsubscribe" | b"unsubscribe" => {
                self.on_unsubscribed(&channel);
                Ok(Some(PubSubEvent::Unsubscribed { channel }))
            }
            b"smessage" | b"message" => {
                Ok(text().map(|payload| PubSubEvent::Message { channel, payload }))
            }
            _ => Ok(None),
        }
    }

    /// Handles the confirmation of a subscription. Servers reply in order, so all earlier replies
    /// about channels have arrived, even if a reply was matched to another channel.
    fn on_subscribed(
        &mut self,
        channel: &Bytes,
        offered: u64,
    ) -> Result<PubSubEvent, ProtocolError> {
        let is_match = |pending: &PendingEntry| match &pending.expected {
            PendingReply::Subscribe(one) => one == channel && pending.offsets.command < offered,
            _ => false,
        };
        let at = self.pending.iter().position(is_match).ok_or(UNEXPECTED_CHANNEL)?;
        if self.pending.iter().take(at).any(|pending| !pending.expected.is_of_channel()) {
            return Err(OUT_OF_ORDER);
        }
        for _ in 0..at {
            self.pop();
        }
        // Its own copy of the name: the one that arrived would keep the whole read buffer.
        match self.pop() {
            Some(PendingReply::Subscribe(channel)) => Ok(PubSubEvent::Subscribed { channel }),
            _ => Err(UNEXPECTED_CHANNEL),
        }
    }

    /// Handles the push that ends a subscription.
    fn on_unsubscribed(&mut self, channel: &Bytes) {
        let mut unsubscribed_count =
            self.pending.iter().take_while(|pending| pending.expected.is_unsubscribed()).count();
        let is_match = |pending: &PendingEntry| matches!(&pending.expected, PendingReply::Unsubscribed(one) if one == channel);
        if let Some(at) = self.pending.iter().take(unsubscribed_count).position(is_match) {
            // This push or the push before it is the reply.
            for _ in 0..=at {
                self.pop();
            }
            unsubscribed_count -= at + 1;
        }
        // It may be the reply to the next command.
        if let Some(PendingEntry { expected, .. }) = self.pending.get_mut(unsubscribed_count)
            && let PendingReply::Unsubscribe(one) = expected
            && one == channel
        {
            *expected = PendingReply::Unsubscribed(mem::take(one));
        }
    }

    /// Removes the entries `Left` at the front of the queue, which this reply completes. Returns
    /// true if the reply is an error about one of these channels, and false if it belongs to a
    /// later command.
    fn settle_unsubscribed(&mut self, reply: &RespValue) -> bool {
        while let Some(PendingEntry { expected: PendingReply::Unsubscribed(channel), .. }) =
            self.pending.front()
        {
            let is_this_channel = match reply {
                RespValue::Error(error) => {
                    self.pending.len() == 1 || is_error_of_slot(error, Slot::of(channel))
                }
                _ => false,
            };
            self.pop();
            if is_this_channel {
                return true;
            }
        }
        false
    }

    fn pop(&mut self) -> Option<PendingReply> {
        let PendingEntry { expected, .. } = self.pending.pop_front()?;
        self.requests -= usize::from(!matches!(expected, PendingReply::Part));
        Some(expected)
    }
}

impl PendingReply {
    fn is_of_channel(&self) -> bool {
        matches!(
            self,
            PendingReply::Subscribe(_)
                | PendingReply::Unsubscribe(_)
                | PendingReply::Unsubscribed(_)
        )
    }

    fn is_unsubscribed(&self) -> bool {
        matches!(self, PendingReply::Unsubscribed(_))
    }
}

/// The failure for a reply to no command. Servers say why they refuse a connection before they have
/// read anything.
fn unexpected_reply_error(reply: RespValue, otherwise: ProtocolError) -> ConnectionError {
    match reply {
        RespValue::Error(error) => ConnectionError {
            is_protocol_error: true,
            ..ConnectionError::not_sent("the server sent an error before any command")
                .with_source(error)
        },
        _ => otherwise.into(),
    }
}

/// Returns true if an error can be the answer to leaving a channel of a slot that the server does
/// not serve.
fn is_error_of_slot(error: &ServerError, slot: Slot) -> bool {
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
mod tests;
