//! The subscribe commands of one connection: commands in flight, and commands that wait to be sent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::time::LocalInstant;

use crate::router::subscriptions::link::LinkCommand;

/// The maximum number of subscriptions in flight. More would only wait at the server, and delay the
/// commands of other clients.
const MAX_IN_FLIGHT: usize = 64;

/// A subscription is sent again if the whole connection was silent for this long after it. While
/// messages arrive, the confirmation may be behind them.
const RESEND_AFTER_SILENCE: Duration = Duration::from_secs(1);

/// A subscription without a confirmation is sent again after this time, even if the connection is
/// not silent.
const RESEND_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct SubscribeQueue {
    /// Subscriptions that were sent and have no confirmation yet.
    in_flight: BTreeMap<Bytes, InFlightSubscribe>,
    /// Subscriptions that wait to be sent, with whether each follows an ASK.
    queued: HashMap<Bytes, bool>,
    /// The order of `queued`. A channel that is missing in `queued` was unsubscribed and is
    /// skipped.
    order: VecDeque<Bytes>,
    /// How many confirmations may still come of each channel, and whether its last subscription
    /// followed an ASK. A channel stays here if its subscription was rejected, or if this client
    /// unsubscribed before the confirmation, because some backends assign rejections to the wrong
    /// channel.
    expected: HashMap<Bytes, (u32, bool)>,
}

#[derive(Debug)]
struct InFlightSubscribe {
    asking: bool,
    at: LocalInstant,
}

impl SubscribeQueue {
    /// Queues the subscription of a channel.
    pub(super) fn push(&mut self, channel: Bytes, asking: bool) {
        self.order.push_back(channel.clone());
        self.queued.insert(channel, asking);
    }

    /// Removes a channel. Returns false if its subscription was not sent, so that no unsubscribe is
    /// needed.
    pub(super) fn leave(&mut self, channel: &Bytes) -> bool {
        self.in_flight.remove(channel);
        self.queued.remove(channel).is_none()
    }

    /// Returns the next subscription to send, if fewer than `MAX_IN_FLIGHT` are in flight.
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
        self.note_sent(&channel, asking);
        self.in_flight.insert(channel, InFlightSubscribe { asking, at: now });
    }

    /// Takes a confirmation. Returns whether the join followed an ASK, or `None` if nobody
    /// requested it.
    pub(super) fn confirm(&mut self, channel: &Bytes) -> Option<bool> {
        let (count, asking) = self.expected.get_mut(channel)?;
        let asking = *asking;
        *count -= 1;
        if *count == 0 {
            self.expected.remove(channel);
        }
        self.on_reply(channel);
        Some(asking)
    }

    fn note_sent(&mut self, channel: &Bytes, asking: bool) {
        let (count, last_asking) = self.expected.entry(channel.clone()).or_default();
        *count = count.saturating_add(1);
        *last_asking = asking;
    }

    /// Takes an answer.
    pub(super) fn on_reply(&mut self, channel: &Bytes) {
        self.in_flight.remove(channel);
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
            self.note_sent(&channel, asking);
            LinkCommand::Subscribe { channel, asking }
        };
        overdue.into_iter().map(again).collect()
    }
}

#[cfg(test)]
mod tests;
