//! One connection that carries subscriptions, from its dial to its end.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rwlease_core::resp::{Address, Command, ServerError};
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;
use tokio::sync::mpsc;

use crate::backend::{
    ConnectionError, Connector, MessageHandler, OpenedPubSub, PubSubConnection, PubSubEvent,
    is_auth_error,
};
use crate::clock::Clock;
use crate::router::cluster::connection_pool::ConnectionPool;
use crate::router::connections::limits::TimeLimit;
use crate::router::connections::server_info::parse_server_name;
use crate::router::subscriptions::link_monitor::{LinkMonitor, MonitorAction, SUBSCRIBE_TIMEOUT};
use crate::router::subscriptions::{EventSender, SubscriptionEvent};
use crate::router::telemetry;

/// How often the link checks its connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum LinkCommand {
    Subscribe { channel: Bytes, asking: bool },
    Unsubscribe { channel: Bytes },
}

/// The events of a link for the manager. (Messages go straight to the listener.)
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
    PubSub(PubSubEvent),
    /// The link has ended. `idle` means that it ended because it had nothing to do.
    Ended {
        idle: bool,
    },
}

/// A running link. It ends when the manager drops its commands.
pub(super) struct SubscriptionLink {
    pub(super) address: Address,
    pub(super) id: u64,
    pub(super) connector: Arc<dyn Connector>,
    /// The connections that carry commands.
    pub(super) connections: Arc<ConnectionPool>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) commands: mpsc::UnboundedReceiver<LinkCommand>,
    pub(super) link_events: mpsc::UnboundedSender<LinkEvent>,
    pub(super) events: EventSender,
}

enum LinkEnd {
    Idle,
    Lost,
}

impl SubscriptionLink {
    pub(super) async fn run(mut self) {
        let began = self.clock.now();
        let dialled = self.dial().await;
        let chain = dialled.as_ref().err().map(ConnectionError::chain);
        let failure = chain.as_ref().map(|chain| chain as &dyn Display);
        let took = self.clock.now().saturating_duration_since(began);
        telemetry::record_dial(&self.address, "subscriptions", took, failure);
        let end = match dialled {
            Ok((subscribed, name)) => {
                self.send_event(LinkEventKind::Connected { name: name.clone() });
                self.serve(subscribed, name.as_deref()).await
            }
            Err(_) => LinkEnd::Lost,
        };
        self.send_event(LinkEventKind::Ended { idle: matches!(end, LinkEnd::Idle) });
    }

    async fn dial(&self) -> Result<(OpenedPubSub, Option<Box<str>>), ConnectionError> {
        let limit = TimeLimit { length: self.connect_timeout, setting: "connect_timeout" };
        let dialling = Box::pin(async {
            // Where the commands go: the name may have other addresses, too.
            let commands = self.connections.get(&self.address);
            let place = commands.and_then(|connection| connection.resolved_addr());
            let (subscription, notices) =
                self.connector.subscribe(&self.address, place.as_deref()).await?;
            let info = subscription.query(&Command::new().arg("INFO").arg("server")).await?;
            let name = parse_server_name(Some(info));
            match self.is_elsewhere(name.as_deref()) {
                true => Err(elsewhere()),
                false => Ok(((subscription, notices), name)),
            }
        });
        limit.apply(&*self.clock, &self.address, dialling).await
    }

    /// Returns true if commands go to another server than the one of this name.
    fn is_elsewhere(&self, name: Option<&str>) -> bool {
        let commands = self.connections.get(&self.address);
        let process = commands.as_ref().and_then(|connection| connection.process_name.as_deref());
        name.zip(process).is_some_and(|(name, process)| name != process)
    }

    async fn serve(
        &mut self,
        (subscription, mut notices): OpenedPubSub,
        name: Option<&str>,
    ) -> LinkEnd {
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
                    match notice {
                        PubSubEvent::Message { channel, payload } => handler(channel, payload),
                        event => self.send_event(LinkEventKind::PubSub(event)),
                    }
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
                    if self.is_elsewhere(name) {
                        return self.lost(elsewhere());
                    }
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

    fn lost(&self, why: ConnectionError) -> LinkEnd {
        telemetry::emit_subscription_connection_lost(&self.address, &why.chain());
        LinkEnd::Lost
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

/// The address, or its name, leads to several servers.
fn elsewhere() -> ConnectionError {
    ConnectionError::not_sent("commands go to another server at this address")
}

fn silent() -> ConnectionError {
    ConnectionError::not_sent(format!("no reply to SSUBSCRIBE within {SUBSCRIBE_TIMEOUT:?}"))
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
