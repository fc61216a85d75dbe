use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::resp::ProtocolError;
use rwlease_core::time::LocalInstant;

use crate::backend::PubSubEvent;
use crate::router::subscriptions::link::LinkCommand;
use crate::router::subscriptions::subscribe_queue::SubscribeQueue;

/// A link ends if its server sends nothing for this long after a command.
pub(super) const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// After this much silence the link subscribes to one channel again, which is harmless, to see
/// whether the server is still there.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// How long a connection without channels stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

const UNASKED: ProtocolError =
    ProtocolError::new("unexpected push: it confirms a subscription that was not requested");

/// Tracks whether the server is still there, and whether it is still needed.
pub(super) struct LinkMonitor {
    /// The joined channels, and whether each was joined after ASK.
    channels: BTreeMap<Bytes, bool>,
    subscribe_queue: SubscribeQueue,
    reply_due_since: Option<LocalInstant>,
    last_activity: LocalInstant,
    last_command: LocalInstant,
}

/// The result of a check.
pub(super) enum MonitorAction {
    /// Go on, and send these.
    Resend(Vec<LinkCommand>),
    /// There is nothing to do.
    Idle,
    /// The server does not answer.
    Silent,
}

impl LinkMonitor {
    pub(super) fn new(now: LocalInstant) -> Self {
        LinkMonitor {
            channels: BTreeMap::new(),
            subscribe_queue: SubscribeQueue::default(),
            reply_due_since: None,
            last_activity: now,
            last_command: now,
        }
    }

    /// Takes a command. Returns it if it is to be sent at once; a join is queued.
    pub(super) fn on_command(
        &mut self,
        now: LocalInstant,
        command: LinkCommand,
    ) -> Option<LinkCommand> {
        self.last_command = now;
        match command {
            LinkCommand::Subscribe { channel, asking } => {
                self.subscribe_queue.push(channel, asking);
                None
            }
            LinkCommand::Unsubscribe { channel } => {
                self.subscribe_queue.leave(&channel).then(|| {
                    self.reply_due_since.get_or_insert(now);
                    LinkCommand::Unsubscribe { channel }
                })
            }
        }
    }

    /// The next join to send.
    pub(super) fn next_subscribe(&mut self, now: LocalInstant) -> Option<LinkCommand> {
        let join = self.subscribe_queue.next(now)?;
        self.reply_due_since.get_or_insert(now);
        Some(join)
    }

    /// Takes a notice. Fails if it confirms what nobody requested.
    pub(super) fn on_event(
        &mut self,
        now: LocalInstant,
        notice: &PubSubEvent,
    ) -> Result<(), ProtocolError> {
        self.last_activity = now;
        match notice {
            PubSubEvent::Subscribed { channel } => {
                let asking = self.subscribe_queue.confirm(channel).ok_or(UNASKED)?;
                // The name that arrived may be a part of a large buffer, which it would keep.
                self.channels.insert(Bytes::copy_from_slice(channel), asking);
            }
            PubSubEvent::Rejected { channel, .. } => {
                self.subscribe_queue.on_reply(channel);
                self.channels.remove(channel);
            }
            // If the channel is being joined, this ends an earlier subscription.
            PubSubEvent::Unsubscribed { channel } => drop(self.channels.remove(channel)),
            PubSubEvent::Message { .. } => {}
        }
        self.reply_due_since = self.subscribe_queue.has_unanswered().then_some(now);
        Ok(())
    }

    /// Notes that something arrived at that time.
    pub(super) fn record_activity(&mut self, at: LocalInstant) {
        self.last_activity = self.last_activity.max(at);
        self.reply_due_since = self.reply_due_since.map(|since| since.max(at));
    }

    pub(super) fn check(&mut self, now: LocalInstant) -> MonitorAction {
        if self
            .reply_due_since
            .is_some_and(|since| now.saturating_duration_since(since) >= SUBSCRIBE_TIMEOUT)
        {
            return MonitorAction::Silent;
        }
        if self.channels.is_empty()
            && !self.subscribe_queue.has_unanswered()
            && now.saturating_duration_since(self.last_command) >= IDLE_TIMEOUT
        {
            return MonitorAction::Idle;
        }
        let mut commands = self.subscribe_queue.take_overdue(now, self.last_activity);
        if let Some((channel, asking)) = self.channels.first_key_value()
            && now.saturating_duration_since(self.last_activity) >= PROBE_AFTER
        {
            let (channel, asking) = (channel.clone(), *asking);
            self.subscribe_queue.mark_sent(now, channel.clone(), asking);
            self.reply_due_since.get_or_insert(now);
            commands.push(LinkCommand::Subscribe { channel, asking });
        }
        MonitorAction::Resend(commands)
    }
}

#[cfg(test)]
mod tests;
