//! Which joins are under way on one connection, and which wait to be sent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::LocalInstant;
use crate::router::subscriptions::link::LinkCommand;

/// The most joins without an answer. More would only wait at the server, and delay the commands of
/// others there.
const MAX_IN_FLIGHT: usize = 64;

/// A join is sent again if the whole connection was silent for this long since it was sent. While
/// anything arrives, the answer is on its way, behind others.
const RESEND_AFTER_SILENCE: Duration = Duration::from_secs(1);

/// A join without an answer is sent again after this, even if the connection is not silent.
const RESEND_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct SubscribeQueue {
    /// The joins that have no answer so far.
    in_flight: BTreeMap<Bytes, InFlightSubscribe>,
    /// The waiting joins, with whether each follows an ASK.
    queued: HashMap<Bytes, bool>,
    /// The order of `queued`. A channel that is no longer in `queued` was left meanwhile.
    order: VecDeque<Bytes>,
    /// How many confirmations may still come of each channel. A join that was refused, or whose
    /// channel was left meanwhile, stays here, because some backends mix up refusals.
    expected: HashMap<Bytes, u32>,
}

#[derive(Debug)]
struct InFlightSubscribe {
    asking: bool,
    at: LocalInstant,
}

impl SubscribeQueue {
    /// Queues the join of a channel.
    pub(super) fn push(&mut self, channel: Bytes, asking: bool) {
        self.order.push_back(channel.clone());
        self.queued.insert(channel, asking);
    }

    /// Removes a channel. Returns false if its join was not sent: then there is nothing to leave.
    pub(super) fn leave(&mut self, channel: &Bytes) -> bool {
        self.in_flight.remove(channel);
        self.queued.remove(channel).is_none()
    }

    /// The next join to send, if there is room in the window.
    pub(super) fn next(&mut self, now: LocalInstant) -> Option<LinkCommand> {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        loop {
            let channel = self.order.pop_front()?;
            if let Some(asking) = self.queued.remove(&channel) {
                self.mark_sent(now, channel.clone(), asking);
                return Some(LinkCommand::Subscribe { channel, asking });
            }
        }
    }

    /// Notes that a join was sent.
    pub(super) fn mark_sent(&mut self, now: LocalInstant, channel: Bytes, asking: bool) {
        self.note_sent(&channel);
        self.in_flight.insert(channel, InFlightSubscribe { asking, at: now });
    }

    /// Takes a confirmation. Returns false if nobody requested it.
    pub(super) fn confirm(&mut self, channel: &Bytes) -> bool {
        let Some(count) = self.expected.get_mut(channel) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.expected.remove(channel);
        }
        true
    }

    fn note_sent(&mut self, channel: &Bytes) {
        let count = self.expected.entry(channel.clone()).or_default();
        *count = count.saturating_add(1);
    }

    /// Takes an answer. Returns whether the join followed an ASK.
    pub(super) fn on_reply(&mut self, channel: &Bytes) -> bool {
        self.in_flight.remove(channel).is_some_and(|sent| sent.asking)
    }

    pub(super) fn has_unanswered(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The joins to send again.
    pub(super) fn take_overdue(
        &mut self,
        now: LocalInstant,
        last_heard: LocalInstant,
    ) -> Vec<LinkCommand> {
        let mut overdue = Vec::new();
        for (channel, sent) in &mut self.in_flight {
            let silence = now.saturating_duration_since(sent.at.max(last_heard));
            if silence >= RESEND_AFTER_SILENCE
                || now.saturating_duration_since(sent.at) >= RESEND_AFTER
            {
                sent.at = now;
                overdue.push((channel.clone(), sent.asking));
            }
        }
        let again = |(channel, asking)| {
            self.note_sent(&channel);
            LinkCommand::Subscribe { channel, asking }
        };
        overdue.into_iter().map(again).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    fn sent(channel: &'static str) -> SubscribeQueue {
        let mut joins = SubscribeQueue::default();
        joins.push(channel.into(), true);
        assert!(joins.next(at(0)).is_some());
        joins
    }

    #[test]
    fn a_join_is_sent_again_when_the_connection_is_silent() {
        let mut joins = sent("a");
        assert!(joins.take_overdue(at(999), at(0)).is_empty());
        assert!(joins.take_overdue(at(1500), at(600)).is_empty(), "heard of meanwhile");
        assert_eq!(joins.take_overdue(at(1600), at(600)).len(), 1);
        assert!(joins.take_overdue(at(1601), at(600)).is_empty(), "just sent");
        assert!(joins.on_reply(&"a".into()), "after ASK");
        assert!(joins.take_overdue(at(60_000), at(600)).is_empty());
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for_without_end() {
        let mut joins = sent("a");
        assert!(joins.take_overdue(at(9_999), at(9_998)).is_empty());
        assert_eq!(joins.take_overdue(at(10_000), at(9_999)).len(), 1);
    }

    #[test]
    fn each_join_is_confirmed_once() {
        let (mut joins, channel) = (sent("a"), Bytes::from("a"));
        joins.mark_sent(at(1), channel.clone(), false);
        joins.leave(&channel);
        assert!(joins.confirm(&channel) && joins.confirm(&channel), "they were sent");
        assert!(!joins.confirm(&channel));
        assert!(!joins.confirm(&"b".into()), "nobody requested it");
        assert_eq!(joins.expected.len(), 0);
    }

    #[test]
    fn joins_leave_removes_queued_and_sent_channels() {
        let mut joins = sent("a");
        joins.push("b".into(), false);
        assert!(joins.leave(&"a".into()));
        assert!(!joins.leave(&"b".into()), "it was never sent");
        assert!(joins.next(at(1)).is_none());
        assert!(joins.take_overdue(at(60_000), at(0)).is_empty());
        joins.push("b".into(), false);
        assert!(joins.next(at(1)).is_some(), "wanted again");
        assert!(joins.next(at(1)).is_none());
    }
}
