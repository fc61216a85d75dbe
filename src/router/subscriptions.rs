//! Where subscriptions live: each wanted channel is kept joined at the server that serves its slot.
//!
//! - [`Subscriptions`] takes the wishes, and says where they are fulfilled.
//! - [`keeper`] is the one task that knows which channel is joined where, and which is to be joined
//!   next. What the links report to it has a file of its own ([`reports`]).
//! - [`link`] is a task for each server: one connection that carries subscriptions alone.
//!   [`joins`] says how many it subscribes at once.

mod joins;
mod keeper;
mod link;
mod place;
mod reports;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector};
use crate::router::read;
use crate::router::topology::Topology;
use crate::slot::Slot;
use keeper::{Keeper, KeeperCommand};

/// What happens on subscriptions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Message {
        slot: Slot,
        address: Address,
        payload: Bytes,
        received: Moment,
    },
    /// The subscription was made, made again or lost. A message may have been missed: waiters
    /// should poll.
    Poll {
        slot: Slot,
    },
}

/// Takes the events.
pub(crate) type Listener = Box<dyn Fn(Event) + Send + Sync>;

/// The way of events from the links and the keeper to the listener. There is no task in between:
/// the task that reads the connection hands a pushed grant to the listener.
#[derive(Clone, Default)]
struct Events(Arc<OnceLock<Listener>>);

impl Events {
    fn tell(&self, event: Event) {
        if let Some(listener) = self.0.get() {
            listener(event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// The name of the server where each wanted channel is joined, at the master of its slot: as that
/// server told it on the very connection that is subscribed, since another connection to the same
/// address may lead elsewhere.
type Joined = Arc<RwLock<HashMap<Slot, Box<str>>>>;

/// The subscriptions of a client, one for each slot that it wants; the keeper knows which.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    joined: Joined,
    commands: mpsc::UnboundedSender<KeeperCommand>,
    events: Events,
    keeper: AbortHandle,
}

impl Subscriptions {
    /// Begins with no wishes, in a task of its own.
    pub(crate) fn start(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        connect_timeout: Duration,
        topology: Arc<Topology>,
    ) -> Subscriptions {
        let (commands, taken) = mpsc::unbounded_channel();
        let events = Events::default();
        let joined = Joined::default();
        let keeper = Keeper::new(
            connector,
            clock,
            connect_timeout,
            topology,
            events.clone(),
            joined.clone(),
        );
        let keeper = tokio::spawn(keeper.run(taken)).abort_handle();
        Subscriptions { joined, commands, events, keeper }
    }

    /// Keeps the channel joined at the master of its slot from now on. Returns at once, and may be
    /// said again.
    pub(crate) fn want(&self, slot: Slot, channel: Bytes) {
        self.tell(KeeperCommand::Want { slot, channel });
    }

    /// Leaves the slot's channel.
    pub(crate) fn unwant(&self, slot: Slot) {
        self.tell(KeeperCommand::Unwant { slot });
    }

    /// Takes note that a call for that slot was sent on with ASK: while it migrates, messages come
    /// from both servers.
    pub(crate) fn asked(&self, slot: Slot, source: &Address, target: &Address) {
        self.tell(KeeperCommand::Ask { slot, source: source.clone(), target: target.clone() });
    }

    /// The name of the server where the slot's channel is joined right now, if that is the master
    /// as far as is known, and it has a name.
    pub(crate) fn joined_at(&self, slot: Slot) -> Option<String> {
        read(&self.joined).get(&slot).map(|name| name.to_string())
    }

    /// Has each task that hears of an event tell it to `listener` at once: it must neither wait nor
    /// take long. The first one to listen is the only one.
    pub(crate) fn listen(&self, listener: Listener) {
        let _ = self.events.0.set(listener);
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.keeper.abort();
    }

    fn tell(&self, command: KeeperCommand) {
        // The keeper is gone only after `close`.
        let _ = self.commands.send(command);
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.close();
    }
}
