//! The answers that a connection expects, and the meaning of what arrives.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::node::native::decoder::{Garbled, Said};
use crate::node::{NodeError, Notice, Reply};

/// The answers to a pipeline.
pub(super) type Outcome = Result<Vec<Reply>, NodeError>;

/// An expected answer.
#[derive(Debug)]
pub(super) enum Expected {
    /// A reply, for a caller.
    Reply(oneshot::Sender<Result<Reply, NodeError>>),
    /// The `left` last replies of a pipeline, for a caller.
    Replies { left: usize, replies: Vec<Reply>, tell: oneshot::Sender<Outcome> },
    /// A reply that is dropped.
    Anything,
    /// The confirmation that the channel was joined, which is a push, or an error.
    Join(Bytes),
    /// The confirmation that the channel was left, likewise.
    Leave(Bytes),
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
pub(super) struct Expectations(VecDeque<Awaited>);

#[derive(Debug)]
struct Awaited {
    /// Where its command begins, counted in all bytes that were put in.
    begin: u64,
    expected: Expected,
}

impl Expected {
    pub(super) fn replies(number: usize, tell: oneshot::Sender<Outcome>) -> Expected {
        Expected::Replies { left: number, replies: Vec::with_capacity(number), tell }
    }
}

impl Expectations {
    /// Adds the answers to commands that begin at `begin`.
    pub(super) fn add(&mut self, begin: u64, expected: impl IntoIterator<Item = Expected>) {
        self.0.extend(expected.into_iter().map(|expected| Awaited { begin, expected }));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the next item. `None` if it means nothing to any caller.
    pub(super) fn hear(&mut self, said: Said) -> Result<Option<Meaning>, Garbled> {
        match said {
            Said::Reply(reply) => self.hear_reply(reply),
            Said::Push(parts) => Ok(self.hear_push(parts).map(Meaning::Noticed)),
        }
    }

    /// Notifies all waiting callers that the connection has ended. Commands that begin at `written`
    /// or later were not sent.
    pub(super) fn fail(&mut self, written: u64, why: &NodeError) {
        for Awaited { begin, expected } in self.0.drain(..) {
            let failure = || NodeError { maybe_sent: begin < written, ..why.clone() };
            match expected {
                Expected::Reply(tell) => drop(tell.send(Err(failure()))),
                Expected::Replies { tell, .. } => drop(tell.send(Err(failure()))),
                Expected::Anything | Expected::Join(_) | Expected::Leave(_) => {}
            }
        }
    }

    fn hear_reply(&mut self, reply: Reply) -> Result<Option<Meaning>, Garbled> {
        let first = self.0.front_mut().ok_or(Garbled("nobody has asked for it"))?;
        if let Expected::Replies { left, replies, .. } = &mut first.expected
            && *left > 1
        {
            *left -= 1;
            replies.push(reply);
            return Ok(None);
        }
        let Some(Awaited { expected, .. }) = self.0.pop_front() else {
            return Ok(None);
        };
        match (expected, reply) {
            (Expected::Reply(tell), reply) => Ok(Some(Meaning::Answered(tell, reply))),
            (Expected::Replies { mut replies, tell, .. }, reply) => {
                replies.push(reply);
                Ok(Some(Meaning::AllAnswered(tell, replies)))
            }
            (Expected::Join(channel), Reply::Error(error)) => {
                Ok(Some(Meaning::Noticed(Notice::Refused { channel, error })))
            }
            (Expected::Join(_), _) => Err(Garbled("a channel is joined by a push")),
            // A server that does not serve the slot answers so, and the channel is of no use there.
            (Expected::Leave(channel), Reply::Error(_)) => {
                Ok(Some(Meaning::Noticed(Notice::Left { channel })))
            }
            (Expected::Leave(_) | Expected::Anything, _) => Ok(None),
        }
    }

    fn hear_push(&mut self, parts: Vec<Reply>) -> Option<Notice> {
        let mut texts = parts.into_iter().map(|part| match part {
            Reply::Text(text) => Some(text),
            _ => None,
        });
        let mut text = || texts.next().flatten();
        let (kind, channel) = (text()?, text()?);
        match &*kind {
            b"ssubscribe" | b"subscribe" => {
                self.take(|expected| matches!(expected, Expected::Join(one) if *one == channel));
                Some(Notice::Joined { channel })
            }
            b"sunsubscribe" | b"unsubscribe" => {
                // The server may have ended the subscription unrequested just before. Then the
                // answer still follows, and answers nothing.
                self.take(|expected| matches!(expected, Expected::Leave(one) if *one == channel));
                Some(Notice::Left { channel })
            }
            b"smessage" | b"message" => Some(Notice::Message { channel, payload: text()? }),
            _ => None,
        }
    }

    /// Removes the next expected answer, if it is this one.
    fn take(&mut self, is_it: impl Fn(&Expected) -> bool) {
        if self.0.front().is_some_and(|first| is_it(&first.expected)) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::ServerError;

    fn text(text: &'static str) -> Reply {
        Reply::Text(Bytes::from_static(text.as_bytes()))
    }

    fn push(kind: &'static str, channel: &'static str) -> Said {
        Said::Push(vec![text(kind), text(channel), Reply::Int(1)])
    }

    fn notice(meaning: Option<Meaning>) -> Notice {
        match meaning {
            Some(Meaning::Noticed(notice)) => notice,
            other => panic!("no notice: {other:?}"),
        }
    }

    #[test]
    fn answers_go_to_those_who_wait_in_their_order() {
        let mut expectations = Expectations::default();
        let (one, _one) = oneshot::channel();
        let (two, _two) = oneshot::channel();
        expectations.add(0, [Expected::Reply(one), Expected::replies(2, two)]);
        let mut hear = |number| expectations.hear(Said::Reply(Reply::Int(number))).unwrap();
        let answered = |meaning| match meaning {
            Some(Meaning::Answered(_, reply)) => vec![reply],
            Some(Meaning::AllAnswered(_, replies)) => replies,
            other => panic!("no answer: {other:?}"),
        };
        assert_eq!(answered(hear(1)), [Reply::Int(1)]);
        assert!(hear(2).is_none());
        assert_eq!(answered(hear(3)), [Reply::Int(2), Reply::Int(3)]);
        assert!(expectations.hear(Said::Reply(Reply::Nil)).is_err(), "nobody waits");
    }

    #[tokio::test]
    async fn what_was_not_written_was_not_sent() {
        let mut expectations = Expectations::default();
        let (told, mut wait) = (0..3).map(|_| oneshot::channel()).unzip::<_, _, Vec<_>, Vec<_>>();
        for (tell, begin) in told.into_iter().zip([0, 10, 20]) {
            expectations.add(begin, [Expected::Reply(tell)]);
        }
        expectations.fail(11, &NodeError::unsent("gone"));
        for (wait, maybe_sent) in wait.iter_mut().zip([true, true, false]) {
            assert_eq!(wait.await.unwrap().unwrap_err().maybe_sent, maybe_sent);
        }
        assert_eq!(expectations.len(), 0);
    }

    #[test]
    fn channels_are_joined_and_left_by_pushes() {
        let mut expectations = Expectations::default();
        let channel = |name: &'static str| Bytes::from_static(name.as_bytes());
        let error = ServerError { code: "MOVED".into(), detail: "1 a:1".into() };
        expectations.add(
            0,
            [
                Expected::Anything,
                Expected::Join(channel("a")),
                Expected::Join(channel("b")),
                Expected::Leave(channel("a")),
                Expected::Join(channel("c")),
                Expected::Leave(channel("b")),
            ],
        );
        assert!(expectations.hear(Said::Reply(text("OK"))).unwrap().is_none());
        let mut hear = |said| notice(expectations.hear(said).unwrap());
        assert_eq!(hear(push("ssubscribe", "a")), Notice::Joined { channel: channel("a") });
        // Not requested.
        assert_eq!(hear(push("sunsubscribe", "z")), Notice::Left { channel: channel("z") });
        let refused = Notice::Refused { channel: channel("b"), error: error.clone() };
        assert_eq!(hear(Said::Reply(Reply::Error(error.clone()))), refused);
        // Not requested, followed by the answer.
        assert_eq!(hear(push("sunsubscribe", "a")), Notice::Left { channel: channel("a") });
        assert_eq!(hear(push("sunsubscribe", "a")), Notice::Left { channel: channel("a") });
        assert_eq!(hear(push("ssubscribe", "c")), Notice::Joined { channel: channel("c") });
        let left = Notice::Left { channel: channel("b") };
        assert_eq!(hear(Said::Reply(Reply::Error(error))), left, "where its slot is not served");
        assert_eq!(expectations.len(), 0);
        let message = Said::Push(vec![text("smessage"), text("c"), text("payload")]);
        let payload = channel("payload");
        let expected = Notice::Message { channel: channel("c"), payload };
        assert_eq!(notice(expectations.hear(message).unwrap()), expected);
        let message = Said::Push(vec![text("message"), text("c"), text("payload")]);
        assert_eq!(notice(expectations.hear(message).unwrap()), expected, "of a sentinel");
        assert!(expectations.hear(Said::Push(vec![Reply::Int(1)])).unwrap().is_none());
        assert!(expectations.hear(push("invalidate", "c")).unwrap().is_none());
    }
}
