//! The replies that a connection waits for: each caller gets its own reply, once and in order, or
//! the failure of the connection.

use std::collections::VecDeque;

use bytes::Bytes;
use rwlease::testing::{
    CommandOffsets, ConnectionError, Frame, FrameAction, PendingReplies, PendingReply,
    PipelineOutcome, PubSubEvent,
};
use rwlease_core::resp::{ReplyShape, RespValue, ServerError};
use rwlease_core::slot::Slot;
use tokio::sync::oneshot;

use crate::resp::text;

const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// The bytes of each command.
const COMMAND_LEN: u64 = 10;

/// Pairs of bytes are the steps of a connection: commands, writes, replies and pushes.
pub fn check(data: &[u8]) {
    let mut connection = Connection::default();
    for step in data.chunks_exact(2) {
        if let Err(failure) = connection.step(step[0], step[1]) {
            return connection.fail(&failure);
        }
    }
    connection.fail(&ConnectionError {
        message: "closed".into(),
        maybe_sent: true,
        is_permanent: false,
        is_connection_refused: false,
        is_closed_by_peer: true,
        is_invalid: false,
        is_protocol_error: false,
        source: None,
    });
}

#[derive(Default)]
struct Connection {
    pending: PendingReplies,
    callers: VecDeque<Caller>,
    /// The number of requested subscriptions to each channel that are not confirmed.
    subscribing: [usize; CHANNELS.len()],
    /// How many bytes were queued, and how many of them may have reached the server.
    queued: u64,
    offered: u64,
    /// The number in the next reply.
    number: i64,
}

struct Caller {
    /// Where its request begins.
    request: u64,
    wait: Wait,
}

enum Wait {
    Reply(oneshot::Receiver<Result<RespValue, ConnectionError>>),
    Pipeline(usize, oneshot::Receiver<PipelineOutcome>),
}

impl Connection {
    fn step(&mut self, step: u8, detail: u8) -> Result<(), ConnectionError> {
        let channel = usize::from(detail) % CHANNELS.len();
        let name = Bytes::from_static(CHANNELS[channel].as_bytes());
        match step % 10 {
            0 => self.call(detail),
            1 => self.pipeline(usize::from(detail % 4) + 1),
            2 => self.add(self.queued, ReplyShape::Any, PendingReply::Discarded),
            3 => {
                self.subscribing[channel] += 1;
                self.add(self.queued, ReplyShape::Any, PendingReply::Subscribe(name));
            }
            4 => self.add(self.queued, ReplyShape::Any, PendingReply::Unsubscribe(name)),
            5 => self.offered = self.queued.min(self.offered + u64::from(detail)),
            6 => {
                self.number += 1;
                self.receive(Frame::Reply(RespValue::Int(self.number)))?;
            }
            7 => self.receive(Frame::Reply(reply(detail)))?,
            8 => self.receive(Frame::Push(push(detail / 3, &name)))?,
            _ => self.receive(Frame::Push(vec![reply(detail); usize::from(detail % 4)]))?,
        }
        Ok(())
    }

    fn call(&mut self, shape: u8) {
        let (reply_tx, reply_rx) = oneshot::channel();
        let shapes = [ReplyShape::Any, ReplyShape::Integer, ReplyShape::Text, ReplyShape::List];
        self.callers.push_back(Caller { request: self.queued, wait: Wait::Reply(reply_rx) });
        let shape = shapes[usize::from(shape) % shapes.len()];
        self.add(self.queued, shape, PendingReply::Reply(reply_tx));
    }

    fn pipeline(&mut self, count: usize) {
        let (reply_tx, reply_rx) = oneshot::channel();
        let (request, wait) = (self.queued, Wait::Pipeline(count, reply_rx));
        self.callers.push_back(Caller { request, wait });
        for expected in PendingReply::replies(count, reply_tx) {
            self.add(request, ReplyShape::Any, expected);
        }
    }

    fn add(&mut self, request: u64, shape: ReplyShape, expected: PendingReply) {
        let offsets = CommandOffsets { command: self.queued, request };
        self.pending.add(offsets, shape, expected);
        self.queued += COMMAND_LEN;
    }

    fn receive(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        let reply = match &frame {
            Frame::Reply(reply) => Some(reply.clone()),
            Frame::Push(_) => None,
        };
        match self.pending.on_frame(frame, self.offered)? {
            None => {}
            Some(FrameAction::CompleteReply(reply_tx, value)) => {
                assert_eq!(Some(&value), reply.as_ref(), "the reply of another command");
                reply_tx.send(Ok(value)).unwrap();
                self.first_caller_is_complete();
            }
            Some(FrameAction::CompletePipeline(reply_tx, values)) => {
                assert_eq!(values.last(), reply.as_ref(), "the reply of another command");
                reply_tx.send(Ok(values)).unwrap();
                self.first_caller_is_complete();
            }
            Some(FrameAction::PubSub(event)) => self.on_event(&event),
        }
        Ok(())
    }

    /// Callers get their replies in order, and none before its command may have reached the server.
    fn first_caller_is_complete(&mut self) {
        let Caller { request, wait } = self.callers.pop_front().unwrap();
        assert!(request < self.offered, "a reply before its command");
        match wait {
            Wait::Reply(mut reply_rx) => drop(reply_rx.try_recv().unwrap().unwrap()),
            Wait::Pipeline(count, mut reply_rx) => {
                assert_eq!(reply_rx.try_recv().unwrap().unwrap().len(), count);
            }
        }
    }

    fn on_event(&mut self, event: &PubSubEvent) {
        let (PubSubEvent::Subscribed { channel } | PubSubEvent::Rejected { channel, .. }) = event
        else {
            return;
        };
        let at = CHANNELS.iter().position(|name| name.as_bytes() == channel).unwrap();
        let left = self.subscribing[at].checked_sub(1);
        self.subscribing[at] = left.expect("a confirmation that was not requested");
    }

    /// The connection ends. All callers that wait get the failure.
    fn fail(mut self, failure: &ConnectionError) {
        self.pending.fail_all(self.offered, failure);
        for Caller { request, wait } in self.callers {
            let failure = match wait {
                Wait::Reply(mut reply_rx) => reply_rx.try_recv().unwrap().map(drop),
                Wait::Pipeline(_, mut reply_rx) => reply_rx.try_recv().unwrap().map(drop),
            };
            assert_eq!(failure.unwrap_err().maybe_sent, request < self.offered);
        }
    }
}

fn reply(detail: u8) -> RespValue {
    let error = |code: &str, message: &str| RespValue::Error(ServerError::new(code, message));
    let slot = Slot::of(CHANNELS[usize::from(detail / 8) % CHANNELS.len()]);
    match detail % 8 {
        0 => RespValue::Nil,
        1 => text("OK"),
        2 => RespValue::Array(vec![RespValue::Nil]),
        3 => error("MOVED", &format!("{slot} a:1")),
        4 => error("MOVED", ""),
        5 => error("CLUSTERDOWN", "down"),
        6 => error("ERR", "other"),
        _ => RespValue::Int(-1),
    }
}

fn push(kind: u8, channel: &Bytes) -> Vec<RespValue> {
    let kind = match kind % 4 {
        0 => "ssubscribe",
        1 => "sunsubscribe",
        2 => "smessage",
        _ => "message",
    };
    vec![text(kind), RespValue::String(channel.clone()), text("payload")]
}
