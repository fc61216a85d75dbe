//! One connection that carries subscriptions, from its dial to its end.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{self, Either};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::backend::{
    Address, Command, ConnectionError, Connector, MessageHandler, OpenedPubSub, ProtocolError,
    PubSubConnection, PubSubEvent, ServerError, is_auth_error,
};
use crate::clock::{Clock, LocalInstant};
use crate::router::server_info::parse_server_name;
use crate::router::subscriptions::subscribe_queue::SubscribeQueue;
use crate::router::subscriptions::{EventSender, SubscriptionEvent};
use crate::router::telemetry::{self, ConnectionKind};
use crate::router::time_limit::TimeLimit;
use crate::slot::Slot;

/// How often the link checks its connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a server may say nothing after a command was sent before the link gives up.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// After this much silence one channel is joined again, which is harmless, to see whether the
/// server is still there.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// How long a connection without channels stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the keeper tells a link to do.
#[derive(Debug)]
pub(super) enum LinkCommand {
    Subscribe { channel: Bytes, asking: bool },
    Unsubscribe { channel: Bytes },
}

/// What a link tells the keeper. (Messages go straight to the listener.)
#[derive(Debug)]
pub(super) struct LinkEvent {
    pub(super) address: Address,
    /// Tells the links apart that there have been to that server.
    pub(super) id: u64,
    pub(super) kind: LinkEventKind,
}

#[derive(Debug)]
pub(super) enum LinkEventKind {
    /// The link is connected. Holds the name of the server at the other end of this connection, if
    /// it reports one.
    Connected {
        name: Option<Box<str>>,
    },
    Subscribed(Bytes),
    Unsubscribed(Bytes),
    Rejected(Bytes, ServerError),
    /// The link has ended. `idle` means that it ended because it had nothing to do.
    Ended {
        idle: bool,
    },
}

/// A running link. It ends when the keeper drops its commands.
pub(super) struct SubscriptionLink {
    pub(super) address: Address,
    pub(super) id: u64,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) commands: mpsc::UnboundedReceiver<LinkCommand>,
    pub(super) link_events: mpsc::UnboundedSender<LinkEvent>,
    pub(super) events: EventSender,
}

/// Why a link ends.
enum LinkEnd {
    Idle,
    Lost,
}

impl SubscriptionLink {
    pub(super) async fn run(mut self) {
        let began = self.clock.now();
        let dialled = self.dial().await;
        let failure = dialled.as_ref().err().map(|failure| failure as &dyn Display);
        let took = self.clock.now().saturating_duration_since(began);
        telemetry::record_dial(&self.address, ConnectionKind::Subscriptions, took, failure);
        let end = match dialled {
            Ok((subscribed, name)) => {
                self.send_event(LinkEventKind::Connected { name });
                self.serve(subscribed).await
            }
            Err(_) => LinkEnd::Lost,
        };
        self.send_event(LinkEventKind::Ended { idle: matches!(end, LinkEnd::Idle) });
    }

    async fn dial(&self) -> Result<(OpenedPubSub, Option<Box<str>>), ConnectionError> {
        let until = self.clock.now().saturating_add(self.connect_timeout);
        let dialling = Box::pin(async {
            let (subscription, notices) = self.connector.subscribe(&self.address).await?;
            let info = subscription.query(&Command::new().arg("INFO").arg("server")).await?;
            Ok(((subscription, notices), parse_server_name(Some(info))))
        });
        match future::select(dialling, self.clock.sleep_until(until)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => {
                let limit = TimeLimit { length: self.connect_timeout, setting: "connect_timeout" };
                Err(limit.no_reply(&self.address))
            }
        }
    }

    async fn serve(&mut self, (subscription, mut notices): OpenedPubSub) -> LinkEnd {
        // Another task may receive the messages.
        let heard = Arc::new(AtomicU64::new(0));
        subscription.set_handler(self.handler(heard.clone()));
        let handler = self.handler(heard.clone());
        let mut under_way = FuturesUnordered::new();
        let mut pulse = LinkMonitor::new(self.clock.now());
        let mut tick = self.clock.sleep_until(self.clock.now().saturating_add(CHECK_INTERVAL));
        loop {
            while let Some(join) = pulse.next_subscribe(self.clock.now()) {
                under_way.push(execute(subscription.clone(), join));
            }
            tokio::select! {
                biased;
                notice = notices.recv() => {
                    let Some(notice) = notice else {
                        return self.lost(subscription.failure().unwrap_or_else(ConnectionError::closed));
                    };
                    if let Err(unasked) = pulse.on_event(self.clock.now(), &notice) {
                        return self.lost(unasked.into());
                    }
                    if let Some(failure) = auth_error_in(&notice) {
                        return self.lost(ConnectionError::not_sent(failure.to_string()));
                    }
                    self.forward(notice, &handler);
                }
                order = self.commands.recv() => {
                    let Some(command) = order else { return LinkEnd::Idle };
                    if let Some(leave) = pulse.on_command(self.clock.now(), command) {
                        under_way.push(execute(subscription.clone(), leave));
                    }
                }
                Some(outcome) = under_way.next() => {
                    if let Err(failure) = outcome {
                        return self.lost(failure);
                    }
                }
                () = &mut tick => {
                    tick = self.clock.sleep_until(self.clock.now().saturating_add(CHECK_INTERVAL));
                    pulse.record_activity(LocalInstant::from_duration(Duration::from_micros(heard.load(Ordering::Relaxed))));
                    match pulse.check(self.clock.now()) {
                        MonitorAction::Resend(commands) => {
                            under_way.extend(commands.into_iter().map(|command| execute(subscription.clone(), command)));
                        }
                        MonitorAction::Idle => return LinkEnd::Idle,
                        MonitorAction::Silent => return self.lost(silent()),
                    }
                }
            }
        }
    }

    /// Tells why the connection has ended.
    fn lost(&self, why: ConnectionError) -> LinkEnd {
        telemetry::emit_subscription_connection_lost(&self.address, &why);
        LinkEnd::Lost
    }

    fn forward(&self, notice: PubSubEvent, handler: &MessageHandler) {
        match notice {
            PubSubEvent::Subscribed { channel } => {
                self.send_event(LinkEventKind::Subscribed(channel))
            }
            PubSubEvent::Unsubscribed { channel } => {
                self.send_event(LinkEventKind::Unsubscribed(channel))
            }
            PubSubEvent::Rejected { channel, error } => {
                self.send_event(LinkEventKind::Rejected(channel, error))
            }
            PubSubEvent::Message { channel, payload } => handler(channel, payload),
        }
    }

    /// Passes messages on, and notes when the last one came, in microseconds.
    fn handler(&self, heard: Arc<AtomicU64>) -> MessageHandler {
        let (address, clock, events) =
            (self.address.clone(), self.clock.clone(), self.events.clone());
        Box::new(move |channel, payload| {
            let received = clock.now();
            let micros = received.as_micros();
            heard.store(micros, Ordering::Relaxed);
            events.send(SubscriptionEvent::Message {
                slot: Slot::of(&channel),
                address: address.clone(),
                payload,
                received,
            });
        })
    }

    fn send_event(&self, what: LinkEventKind) {
        let _ = self.link_events.send(LinkEvent {
            address: self.address.clone(),
            id: self.id,
            kind: what,
        });
    }
}

const UNASKED: ProtocolError =
    ProtocolError::new("the server confirmed a subscription that nobody requested");

fn silent() -> ConnectionError {
    ConnectionError::not_sent(format!("no reply to a subscription in {SUBSCRIBE_TIMEOUT:?}"))
}

/// The error that makes a new connection necessary, for which credentials are fetched again.
fn auth_error_in(notice: &PubSubEvent) -> Option<&ServerError> {
    match notice {
        PubSubEvent::Rejected { error, .. } => is_auth_error(&error.code).then_some(error),
        _ => None,
    }
}

async fn execute(
    subscription: Arc<dyn PubSubConnection>,
    command: LinkCommand,
) -> Result<(), ConnectionError> {
    match command {
        LinkCommand::Subscribe { channel, asking } => {
            subscription.subscribe(&channel, asking).await
        }
        LinkCommand::Unsubscribe { channel } => subscription.unsubscribe(&channel).await,
    }
}

/// Tracks whether the server is still there, and whether it is still needed.
struct LinkMonitor {
    /// The joined channels, and whether each was joined after ASK.
    channels: BTreeMap<Bytes, bool>,
    subscribe_queue: SubscribeQueue,
    reply_due_since: Option<LocalInstant>,
    last_activity: LocalInstant,
    last_command: LocalInstant,
}

/// The result of a check.
enum MonitorAction {
    /// Go on, and send these.
    Resend(Vec<LinkCommand>),
    /// There is nothing to do.
    Idle,
    /// The server does not answer.
    Silent,
}

impl LinkMonitor {
    fn new(now: LocalInstant) -> Self {
        LinkMonitor {
            channels: BTreeMap::new(),
            subscribe_queue: SubscribeQueue::default(),
            reply_due_since: None,
            last_activity: now,
            last_command: now,
        }
    }

    /// Takes a command. Returns it if it is to be sent at once; a join is queued.
    fn on_command(&mut self, now: LocalInstant, command: LinkCommand) -> Option<LinkCommand> {
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
    fn next_subscribe(&mut self, now: LocalInstant) -> Option<LinkCommand> {
        let join = self.subscribe_queue.next(now)?;
        self.reply_due_since.get_or_insert(now);
        Some(join)
    }

    /// Takes a notice. Fails if it confirms what nobody requested.
    fn on_event(&mut self, now: LocalInstant, notice: &PubSubEvent) -> Result<(), ProtocolError> {
        self.last_activity = now;
        match notice {
            PubSubEvent::Subscribed { channel } => {
                if !self.subscribe_queue.confirm(channel) {
                    return Err(UNASKED);
                }
                let asking = self.subscribe_queue.on_reply(channel);
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
    fn record_activity(&mut self, at: LocalInstant) {
        self.last_activity = self.last_activity.max(at);
        self.reply_due_since = self.reply_due_since.map(|since| since.max(at));
    }

    fn check(&mut self, now: LocalInstant) -> MonitorAction {
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
mod tests {
    use super::*;

    fn at(seconds: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_secs(seconds))
    }

    /// Has waited for the answer to a join since the first second.
    fn waiting() -> LinkMonitor {
        let mut pulse = LinkMonitor::new(at(0));
        let join = LinkCommand::Subscribe { channel: "a".into(), asking: false };
        assert!(pulse.on_command(at(1), join).is_none());
        assert!(pulse.next_subscribe(at(1)).is_some());
        pulse
    }

    #[test]
    fn a_server_that_sends_messages_is_not_given_up() {
        let mut pulse = waiting();
        for second in 2..9 {
            pulse.record_activity(at(second));
            assert!(
                matches!(pulse.check(at(second)), MonitorAction::Resend(commands) if commands.is_empty())
            );
        }
        assert!(
            matches!(pulse.check(at(9)), MonitorAction::Resend(commands) if commands.len() == 1)
        );
        assert!(matches!(pulse.check(at(10)), MonitorAction::Silent));
    }

    #[test]
    fn a_server_that_answers_one_join_of_two_and_no_more_is_given_up() {
        let mut pulse = waiting();
        pulse.subscribe_queue.push("b".into(), false);
        assert!(pulse.next_subscribe(at(1)).is_some());
        pulse.on_event(at(2), &PubSubEvent::Subscribed { channel: "a".into() }).unwrap();
        assert!(
            matches!(pulse.check(at(3)), MonitorAction::Resend(commands) if commands.len() == 1)
        );
        assert!(matches!(pulse.check(at(4)), MonitorAction::Silent));
    }

    #[test]
    fn confirmation_that_nobody_requested_ends_the_link() {
        let mut pulse = waiting();
        let confirmed = |channel: &'static str| PubSubEvent::Subscribed { channel: channel.into() };
        assert!(pulse.on_event(at(2), &confirmed("a")).is_ok());
        for unasked in ["a", "b"] {
            assert_eq!(pulse.on_event(at(3), &confirmed(unasked)).unwrap_err(), UNASKED);
        }
        assert_eq!(pulse.channels.len(), 1);
    }

    #[test]
    fn name_of_a_joined_channel_keeps_no_read_buffer() {
        let mut pulse = waiting();
        let buffer = Bytes::from(vec![b'a'; 1 << 16]);
        pulse.on_event(at(2), &PubSubEvent::Subscribed { channel: buffer.slice(..1) }).unwrap();
        assert!(buffer.is_unique(), "it can be used again");
    }
}
