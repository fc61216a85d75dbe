//! Keeps each wanted channel joined at the server that serves its slot.
//!
//! - [`Subscriptions`] takes the requests, and says where a channel is joined.
//! - [`manager`] is the one task that knows where each channel is joined and which one to join
//!   next. [`link_events`] handles the events of its links.
//! - [`link`] is a task for each server, with one connection that carries subscriptions alone.
//!   [`subscribe_queue`] limits how many joins are under way at once.

mod link;
mod link_events;
mod link_monitor;
mod manager;
mod subscribe_queue;

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::backend::Connector;
use crate::clock::Clock;
use crate::locks::read;
use crate::router::cluster::topology::Topology;
use crate::router::runtime::RuntimeHandle;
use manager::{ManagerCommand, SubscriptionManager};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SubscriptionEvent {
    Message {
        slot: Slot,
        address: Address,
        payload: Bytes,
        received: LocalInstant,
    },
    /// The subscription was made, made again, or lost. A message may have been missed: waiters
    /// should poll.
    PollRequired {
        slot: Slot,
    },
}

/// Receives the events.
pub(crate) type EventListener = Box<dyn Fn(SubscriptionEvent) + Send + Sync>;

/// Passes events from the links and the manager to the listener. No other task is in between: the
/// task that reads the connection gives a pushed grant to the listener.
#[derive(Clone, Default)]
struct EventSender(Arc<OnceLock<EventListener>>);

impl EventSender {
    fn send(&self, event: SubscriptionEvent) {
        if let Some(listener) = self.0.get() {
            listener(event);
        }
    }
}

/// For each wanted channel that is joined at the master of its slot, the name of that server. The
/// server reported the name on the subscribed connection itself, because another connection to the
/// same address may lead to another server.
type SubscribedServers = Arc<RwLock<HashMap<Slot, Box<str>>>>;

/// The subscriptions of a client, one for each wanted slot. The manager keeps the set of wanted
/// slots.
pub(crate) struct Subscriptions {
    subscribed: SubscribedServers,
    commands: mpsc::UnboundedSender<ManagerCommand>,
    events: EventSender,
    manager: AbortOnDropHandle<()>,
}

impl Subscriptions {
    /// Starts the task of the manager, without any wanted channel.
    pub(crate) fn start(
        runtime: RuntimeHandle,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        connect_timeout: Duration,
        topology: Arc<Topology>,
    ) -> Subscriptions {
        let (commands, command_rx) = mpsc::unbounded_channel();
        let events = EventSender::default();
        let subscribed = SubscribedServers::default();
        let manager = SubscriptionManager {
            runtime: runtime.clone(),
            connector,
            clock,
            connect_timeout,
            topology,
            events: events.clone(),
            subscribed: subscribed.clone(),
            channels: BTreeMap::new(),
            links: HashMap::new(),
            next_link_id: 0,
            due: BinaryHeap::new(),
            link_events: mpsc::unbounded_channel().0,
        };
        let manager =
            AbortOnDropHandle::new(runtime.spawn("subscriptions", manager.run(command_rx)));
        Subscriptions { subscribed, commands, events, manager }
    }

    /// Keeps the channel joined at the master of its slot from now on. Returns at once. Calling it
    /// again is harmless.
    pub(crate) fn subscribe(&self, slot: Slot, channel: Bytes) {
        self.send_command(ManagerCommand::Subscribe { slot, channel });
    }

    /// Leaves the slot's channel.
    pub(crate) fn unsubscribe(&self, slot: Slot) {
        self.send_command(ManagerCommand::Unsubscribe { slot });
    }

    /// Notes that a call for that slot was redirected by ASK: while the slot migrates, messages
    /// come from both servers.
    pub(crate) fn on_ask(&self, slot: Slot, source: &Address, target: &Address) {
        self.send_command(ManagerCommand::AddMigrationTarget {
            slot,
            source: source.clone(),
            target: target.clone(),
        });
    }

    /// The name of the server where the slot's channel is joined now, if that is the master as far
    /// as is known, and has a name.
    pub(crate) fn subscribed_server(&self, slot: Slot) -> Option<String> {
        read(&self.subscribed).get(&slot).map(|name| name.to_string())
    }

    /// Sets the listener. The task that receives an event calls it at once, so it must be quick and
    /// must not wait. Only the first listener is used.
    pub(crate) fn set_listener(&self, listener: EventListener) {
        let _ = self.events.0.set(listener);
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.manager.abort();
    }

    fn send_command(&self, command: ManagerCommand) {
        // The manager ends only after `close`.
        let _ = self.commands.send(command);
    }
}
