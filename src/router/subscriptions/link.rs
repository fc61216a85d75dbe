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

use crate::clock::{Clock, Moment};
use crate::node::{
    Address, Command, Connector, MessageHandler, NodeError, Notice, ProtocolError, ServerError,
    Subscribed, Subscription, is_about_credentials,
};
use crate::router::about::server_name;
use crate::router::subscriptions::joins::Joins;
use crate::router::subscriptions::{Event, Events};
use crate::router::telemetry::{self, Carries};
use crate::router::time_limit::TimeLimit;
use crate::slot::Slot;

/// How often the link checks its connection.
const TICK: Duration = Duration::from_secs(1);

/// How long a server may say nothing after a command was sent before the link gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// After this much silence one channel is joined again, which is harmless, to see whether the
/// server is still there.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a connection without channels stays open.
const IDLE: Duration = Duration::from_secs(30);

/// What the keeper tells a link to do.
#[derive(Debug)]
pub(super) enum LinkCommand {
    Join { channel: Bytes, asking: bool },
    Leave { channel: Bytes },
}

/// What a link tells the keeper. (Messages go straight to the listener.)
#[derive(Debug)]
pub(super) struct LinkEvent {
    pub(super) address: Address,
    /// Tells the links apart that there have been to that server.
    pub(super) id: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// The link is connected. Holds the name of the server at the other end of this connection, if
    /// it reports one.
    Up {
        name: Option<Box<str>>,
    },
    Joined(Bytes),
    Left(Bytes),
    Refused(Bytes, ServerError),
    /// The link has ended. `idle` means that it ended because it had nothing to do.
    Ended {
        idle: bool,
    },
}

/// A running link. It ends when the keeper drops its commands.
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) id: u64,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) commands: mpsc::UnboundedReceiver<LinkCommand>,
    pub(super) link_events: mpsc::UnboundedSender<LinkEvent>,
    pub(super) events: Events,
}

/// Why a link ends.
enum End {
    Idle,
    Lost,
}

impl Link {
    pub(super) async fn run(mut self) {
        let began = self.clock.now();
        let dialled = self.dial().await;
        let failure = dialled.as_ref().err().map(|failure| failure as &dyn Display);
        let took = self.clock.now().since(began);
        telemetry::dialled(&self.address, Carries::Subscriptions, took, failure);
        let end = match dialled {
            Ok((subscribed, name)) => {
                self.tell(What::Up { name });
                self.serve(subscribed).await
            }
            Err(_) => End::Lost,
        };
        self.tell(What::Ended { idle: matches!(end, End::Idle) });
    }

    async fn dial(&self) -> Result<(Subscribed, Option<Box<str>>), NodeError> {
        let until = self.clock.now().after(self.connect_timeout);
        let dialling = Box::pin(async {
            let (subscription, notices) = self.connector.subscribe(&self.address).await?;
            let info = subscription.query(&Command::new().word("INFO").word("server")).await?;
            Ok(((subscription, notices), server_name(Some(info))))
        });
        match future::select(dialling, self.clock.sleep_until(until)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => {
                let limit = TimeLimit { length: self.connect_timeout, setting: "connect_timeout" };
                Err(limit.no_reply(&self.address))
            }
        }
    }

    async fn serve(&mut self, (subscription, mut notices): Subscribed) -> End {
        // Another task may receive the messages.
        let heard = Arc::new(AtomicU64::new(0));
        subscription.set_handler(self.handler(heard.clone()));
        let handler = self.handler(heard.clone());
        let mut under_way = FuturesUnordered::new();
        let mut pulse = Pulse::new(self.clock.now());
        let mut tick = self.clock.sleep_until(self.clock.now().after(TICK));
        loop {
            while let Some(join) = pulse.next_join(self.clock.now()) {
                under_way.push(carry_out(subscription.clone(), join));
            }
            tokio::select! {
                biased;
                notice = notices.recv() => {
                    let Some(notice) = notice else {
                        return self.lost(subscription.failure().unwrap_or_else(NodeError::gone));
                    };
                    if let Err(unasked) = pulse.heard(self.clock.now(), &notice) {
                        return self.lost(unasked.into());
                    }
                    if let Some(failure) = locked_out(&notice) {
                        return self.lost(NodeError::unsent(failure.to_string()));
                    }
                    self.pass_on(notice, &handler);
                }
                order = self.commands.recv() => {
                    let Some(command) = order else { return End::Idle };
                    if let Some(leave) = pulse.ordered(self.clock.now(), command) {
                        under_way.push(carry_out(subscription.clone(), leave));
                    }
                }
                Some(outcome) = under_way.next() => {
                    if let Err(failure) = outcome {
                        return self.lost(failure);
                    }
                }
                () = &mut tick => {
                    tick = self.clock.sleep_until(self.clock.now().after(TICK));
                    pulse.overheard(Moment::from_origin(Duration::from_micros(heard.load(Ordering::Relaxed))));
                    match pulse.check(self.clock.now()) {
                        Check::Ask(commands) => {
                            under_way.extend(commands.into_iter().map(|command| carry_out(subscription.clone(), command)));
                        }
                        Check::Idle => return End::Idle,
                        Check::Silent => return self.lost(silent()),
                    }
                }
            }
        }
    }

    /// Tells why the connection has ended.
    fn lost(&self, why: NodeError) -> End {
        telemetry::subscriptions_broken(&self.address, &why);
        End::Lost
    }

    fn pass_on(&self, notice: Notice, handler: &MessageHandler) {
        match notice {
            Notice::Joined { channel } => self.tell(What::Joined(channel)),
            Notice::Left { channel } => self.tell(What::Left(channel)),
            Notice::Refused { channel, error } => self.tell(What::Refused(channel, error)),
            Notice::Message { channel, payload } => handler(channel, payload),
        }
    }

    /// Passes messages on, and notes when the last one came, in microseconds.
    fn handler(&self, heard: Arc<AtomicU64>) -> MessageHandler {
        let (address, clock, events) =
            (self.address.clone(), self.clock.clone(), self.events.clone());
        Box::new(move |channel, payload| {
            let received = clock.now();
            let micros = received.micros_since_origin();
            heard.store(micros, Ordering::Relaxed);
            events.tell(Event::Message {
                slot: Slot::of(&channel),
                address: address.clone(),
                payload,
                received,
            });
        })
    }

    fn tell(&self, what: What) {
        let _ =
            self.link_events.send(LinkEvent { address: self.address.clone(), id: self.id, what });
    }
}

const UNASKED: ProtocolError =
    ProtocolError::new("the server confirmed a subscription that nobody requested");

fn silent() -> NodeError {
    NodeError::unsent(format!("no reply to a subscription in {JOIN_TIMEOUT:?}"))
}

/// The error that makes a new connection necessary, for which credentials are fetched again.
fn locked_out(notice: &Notice) -> Option<&ServerError> {
    match notice {
        Notice::Refused { error, .. } => is_about_credentials(&error.code).then_some(error),
        _ => None,
    }
}

async fn carry_out(
    subscription: Arc<dyn Subscription>,
    command: LinkCommand,
) -> Result<(), NodeError> {
    match command {
        LinkCommand::Join { channel, asking } => subscription.join(&channel, asking).await,
        LinkCommand::Leave { channel } => subscription.leave(&channel).await,
    }
}

/// Tracks whether the server is still there, and whether it is still needed.
struct Pulse {
    /// The joined channels, and whether each was joined after ASK.
    channels: BTreeMap<Bytes, bool>,
    joins: Joins,
    waiting_since: Option<Moment>,
    last_heard: Moment,
    last_order: Moment,
}

/// The result of a check.
enum Check {
    /// Go on, and send these.
    Ask(Vec<LinkCommand>),
    /// There is nothing to do.
    Idle,
    /// The server does not answer.
    Silent,
}

impl Pulse {
    fn new(now: Moment) -> Self {
        Pulse {
            channels: BTreeMap::new(),
            joins: Joins::default(),
            waiting_since: None,
            last_heard: now,
            last_order: now,
        }
    }

    /// Takes a command. Returns it if it is to be sent at once; a join is queued.
    fn ordered(&mut self, now: Moment, command: LinkCommand) -> Option<LinkCommand> {
        self.last_order = now;
        match command {
            LinkCommand::Join { channel, asking } => {
                self.joins.queue(channel, asking);
                None
            }
            LinkCommand::Leave { channel } => self.joins.leave(&channel).then(|| {
                self.waiting_since.get_or_insert(now);
                LinkCommand::Leave { channel }
            }),
        }
    }

    /// The next join to send.
    fn next_join(&mut self, now: Moment) -> Option<LinkCommand> {
        let join = self.joins.next(now)?;
        self.waiting_since.get_or_insert(now);
        Some(join)
    }

    /// Takes a notice. Fails if it confirms what nobody requested.
    fn heard(&mut self, now: Moment, notice: &Notice) -> Result<(), ProtocolError> {
        self.last_heard = now;
        match notice {
            Notice::Joined { channel } => {
                if !self.joins.confirm(channel) {
                    return Err(UNASKED);
                }
                let asking = self.joins.answered(channel);
                // The name that arrived may be a part of a large buffer, which it would keep.
                self.channels.insert(Bytes::copy_from_slice(channel), asking);
            }
            Notice::Refused { channel, .. } => {
                self.joins.answered(channel);
                self.channels.remove(channel);
            }
            // If the channel is being joined, this ends an earlier subscription.
            Notice::Left { channel } => drop(self.channels.remove(channel)),
            Notice::Message { .. } => {}
        }
        self.waiting_since = self.joins.has_unanswered().then_some(now);
        Ok(())
    }

    /// Notes that something arrived at that time.
    fn overheard(&mut self, at: Moment) {
        self.last_heard = self.last_heard.max(at);
        self.waiting_since = self.waiting_since.map(|since| since.max(at));
    }

    fn check(&mut self, now: Moment) -> Check {
        if self.waiting_since.is_some_and(|since| now.since(since) >= JOIN_TIMEOUT) {
            return Check::Silent;
        }
        if self.channels.is_empty()
            && !self.joins.has_unanswered()
            && now.since(self.last_order) >= IDLE
        {
            return Check::Idle;
        }
        let mut commands = self.joins.overdue(now, self.last_heard);
        if let Some((channel, asking)) = self.channels.first_key_value()
            && now.since(self.last_heard) >= SILENCE
        {
            let (channel, asking) = (channel.clone(), *asking);
            self.joins.sent(now, channel.clone(), asking);
            self.waiting_since.get_or_insert(now);
            commands.push(LinkCommand::Join { channel, asking });
        }
        Check::Ask(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    /// Has waited for the answer to a join since the first second.
    fn waiting() -> Pulse {
        let mut pulse = Pulse::new(at(0));
        let join = LinkCommand::Join { channel: "a".into(), asking: false };
        assert!(pulse.ordered(at(1), join).is_none());
        assert!(pulse.next_join(at(1)).is_some());
        pulse
    }

    #[test]
    fn a_server_that_sends_messages_is_not_given_up() {
        let mut pulse = waiting();
        for second in 2..9 {
            pulse.overheard(at(second));
            assert!(matches!(pulse.check(at(second)), Check::Ask(commands) if commands.is_empty()));
        }
        assert!(matches!(pulse.check(at(9)), Check::Ask(commands) if commands.len() == 1));
        assert!(matches!(pulse.check(at(10)), Check::Silent));
    }

    #[test]
    fn a_server_that_answers_one_join_of_two_and_no_more_is_given_up() {
        let mut pulse = waiting();
        pulse.joins.queue("b".into(), false);
        assert!(pulse.next_join(at(1)).is_some());
        pulse.heard(at(2), &Notice::Joined { channel: "a".into() }).unwrap();
        assert!(matches!(pulse.check(at(3)), Check::Ask(commands) if commands.len() == 1));
        assert!(matches!(pulse.check(at(4)), Check::Silent));
    }

    #[test]
    fn confirmation_that_nobody_requested_ends_the_link() {
        let mut pulse = waiting();
        let confirmed = |channel: &'static str| Notice::Joined { channel: channel.into() };
        assert!(pulse.heard(at(2), &confirmed("a")).is_ok());
        for unasked in ["a", "b"] {
            assert_eq!(pulse.heard(at(3), &confirmed(unasked)).unwrap_err(), UNASKED);
        }
        assert_eq!(pulse.channels.len(), 1);
    }

    #[test]
    fn name_of_a_joined_channel_keeps_no_read_buffer() {
        let mut pulse = waiting();
        let buffer = Bytes::from(vec![b'a'; 1 << 16]);
        pulse.heard(at(2), &Notice::Joined { channel: buffer.slice(..1) }).unwrap();
        assert!(buffer.is_unique(), "it can be used again");
    }
}
