//! The task that keeps the wanted channels joined where their slots are served.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;
use tokio::sync::mpsc;

use crate::backend::Connector;
use crate::clock::Clock;
use crate::locks::write;
use crate::router::cluster::topology::Topology;
use crate::router::runtime::RuntimeHandle;
use crate::router::subscriptions::link::{LinkCommand, LinkEvent, SubscriptionLink};
use crate::router::subscriptions::{EventSender, SubscribedServers, SubscriptionEvent};
use crate::router::telemetry;
use crate::telemetry::emit_in_drop;

/// What the users of subscriptions request.
#[derive(Debug)]
pub(super) enum ManagerCommand {
    Subscribe { slot: Slot, channel: Bytes },
    Unsubscribe { slot: Slot },
    AddMigrationTarget { slot: Slot, source: Address, target: Address },
}

#[derive(Debug)]
pub(super) struct WantedChannel {
    pub(super) channel: Bytes,
    /// The master of the slot, and while it migrates the target too.
    pub(super) targets: Vec<ChannelTarget>,
    /// The servers that have named another one since the channel was joined last.
    pub(super) redirect_count: u32,
    /// Nothing is joined before then.
    pub(super) retry_at: LocalInstant,
}

/// A server where a channel should be joined.
#[derive(Debug)]
pub(super) struct ChannelTarget {
    pub(super) address: Address,
    /// Joined after ASK: the server is not the master of the slot (yet).
    pub(super) asking: bool,
    pub(super) state: TargetState,
    pub(super) failure_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TargetState {
    /// It waits for its link.
    NoLink,
    /// No join is tried before then.
    BackingOff(LocalInstant),
    /// Its link was told to join it.
    Subscribing,
    /// Joined since then.
    Subscribed(LocalInstant),
}

/// The state of a server, as the manager knows it.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) id: u64,
    /// `None` while there is no link.
    pub(super) commands: Option<mpsc::UnboundedSender<LinkCommand>>,
    pub(super) is_connected: bool,
    /// The name of the server that its connection leads to.
    pub(super) server_name: Option<Box<str>>,
    pub(super) failures: u32,
    pub(super) retry_at: LocalInstant,
}

impl WantedChannel {
    fn new(channel: Bytes) -> WantedChannel {
        let retry_at = LocalInstant::default();
        WantedChannel { channel, targets: Vec::new(), redirect_count: 0, retry_at }
    }
}

impl ChannelTarget {
    pub(super) fn new(address: Address, asking: bool) -> ChannelTarget {
        ChannelTarget { address, asking, state: TargetState::NoLink, failure_count: 0 }
    }
}

pub(super) struct SubscriptionManager {
    pub(super) runtime: RuntimeHandle,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) topology: Arc<Topology>,
    pub(super) events: EventSender,
    pub(super) subscribed: SubscribedServers,
    pub(super) channels: BTreeMap<Slot, WantedChannel>,
    pub(super) links: HashMap<Address, LinkState>,
    pub(super) next_link_id: u64,
    /// When to check which slot. Entries that no longer hold are found out then.
    pub(super) due: BinaryHeap<Reverse<(LocalInstant, Slot)>>,
    /// Replaced when the manager runs.
    pub(super) link_events: mpsc::UnboundedSender<LinkEvent>,
}

impl SubscriptionManager {
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<ManagerCommand>) {
        let (tell, mut link_events) = mpsc::unbounded_channel();
        self.link_events = tell;
        let topology = self.topology.clone();
        let mut changed = std::pin::pin!(topology.changed());
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.handle_command(command),
                    None => return,
                },
                Some(link_events) = link_events.recv() => self.on_link_event(link_events),
                () = &mut changed => {
                    changed.set(topology.changed());
                    self.reconcile_all();
                }
                () = self.next_due() => self.reconcile_due(),
            }
        }
    }

    fn next_due(&self) -> BoxFuture<'static, ()> {
        match self.due.peek() {
            Some(Reverse((at, _))) => self.clock.sleep_until(*at),
            None => future::pending().boxed(),
        }
    }

    fn handle_command(&mut self, command: ManagerCommand) {
        match command {
            ManagerCommand::Subscribe { slot, channel } => {
                if self.channels.get(&slot).is_some_and(|wanted| wanted.channel == channel) {
                    return;
                }
                self.unsubscribe_everywhere(slot);
                self.channels.insert(slot, WantedChannel::new(channel));
                self.reconcile(slot);
            }
            ManagerCommand::Unsubscribe { slot } => self.unsubscribe_everywhere(slot),
            ManagerCommand::AddMigrationTarget { slot, source, target } => {
                self.add_migration_target(slot, &source, target)
            }
        }
    }

    /// Leaves a slot's channel wherever it is joined.
    pub(super) fn unsubscribe_everywhere(&mut self, slot: Slot) {
        let Some(WantedChannel { channel, targets: places, .. }) = self.channels.remove(&slot)
        else {
            return;
        };
        for place in places {
            self.unsubscribe(&place, &channel);
        }
        self.publish_subscribed(slot);
    }

    pub(super) fn reconcile_all(&mut self) {
        let slots: Vec<Slot> = self.channels.keys().copied().collect();
        for slot in slots {
            self.reconcile(slot);
        }
    }

    /// Updates a slot's places from the slot map: one at the master, and after ASK one at the
    /// server that it named.
    pub(super) fn reconcile(&mut self, slot: Slot) {
        let master = self.topology.master_of(slot);
        let Some(wanted) = self.channels.get_mut(&slot) else {
            return;
        };
        let channel = wanted.channel.clone();
        let (kept, left): (Vec<ChannelTarget>, Vec<ChannelTarget>) =
            std::mem::take(&mut wanted.targets)
                .into_iter()
                .partition(|place| place.asking || Some(&place.address) == master.as_ref());
        wanted.targets = kept;
        if let Some(master) = master {
            match wanted.targets.iter_mut().find(|place| place.address == master) {
                // The server that ASK named has become the master.
                Some(place) => place.asking = false,
                None => wanted.targets.push(ChannelTarget::new(master, false)),
            }
        }
        for place in &left {
            self.unsubscribe(place, &channel);
        }
        self.subscribe_due(slot);
        self.publish_subscribed(slot);
    }

    /// Adds the target of a migration as a place, since messages come from there too.
    fn add_migration_target(&mut self, slot: Slot, source: &Address, target: Address) {
        let master = self.topology.master_of(slot);
        let Some(wanted) = self.channels.get_mut(&slot) else {
            return;
        };
        let known = wanted.targets.iter().any(|place| place.address == target);
        // An answer that arrives after the end of the migration no longer counts.
        if !known && master.as_ref() == Some(source) {
            // There is only one target at a time.
            let (old, kept) =
                std::mem::take(&mut wanted.targets).into_iter().partition(|place| place.asking);
            wanted.targets = kept;
            wanted.targets.push(ChannelTarget::new(target, true));
            let (channel, old): (Bytes, Vec<ChannelTarget>) = (wanted.channel.clone(), old);
            for place in &old {
                self.unsubscribe(place, &channel);
            }
            self.subscribe_due(slot);
        }
    }

    fn reconcile_due(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((at, slot))) = self.due.peek().copied() {
            if at > now {
                return;
            }
            self.due.pop();
            self.subscribe_due(slot);
        }
    }

    /// Joins a slot's channel at all places where a join is due.
    fn subscribe_due(&mut self, slot: Slot) {
        let now = self.clock.now();
        let Some(mut wanted) = self.channels.remove(&slot) else {
            return;
        };
        for place in &mut wanted.targets {
            let due = match place.state {
                TargetState::NoLink => true,
                TargetState::BackingOff(until) => until <= now,
                // If necessary, the link sends the join again.
                TargetState::Subscribing | TargetState::Subscribed(_) => false,
            };
            if due {
                place.state = match wanted.retry_at > now {
                    true => TargetState::BackingOff(wanted.retry_at),
                    false => self.subscribe(place, &wanted.channel, now),
                };
                if let TargetState::BackingOff(until) = place.state {
                    self.due.push(Reverse((until, slot)));
                }
            }
        }
        self.channels.insert(slot, wanted);
    }

    /// Subscribes to a channel at its target, if the link to the server is open. Otherwise opens
    /// the link, or waits for it.
    fn subscribe(
        &mut self,
        place: &ChannelTarget,
        channel: &Bytes,
        now: LocalInstant,
    ) -> TargetState {
        match self.links.get(&place.address) {
            Some(link) if link.retry_at > now => TargetState::BackingOff(link.retry_at),
            Some(LinkState { commands: Some(commands), is_connected: true, .. }) => {
                let _ = commands.send(LinkCommand::Subscribe {
                    channel: channel.clone(),
                    asking: place.asking,
                });
                TargetState::Subscribing
            }
            Some(LinkState { commands: Some(_), is_connected: false, .. }) => TargetState::NoLink,
            _ => {
                self.open_link(place.address.clone());
                TargetState::NoLink
            }
        }
    }

    fn unsubscribe(&self, place: &ChannelTarget, channel: &Bytes) {
        if let TargetState::Subscribed(_) = place.state {
            telemetry::record_unsubscribed(&place.address, Slot::of(channel));
        }
        let commands = self.links.get(&place.address).and_then(|link| link.commands.as_ref());
        if let (Some(commands), TargetState::Subscribing | TargetState::Subscribed(_)) =
            (commands, place.state)
        {
            let _ = commands.send(LinkCommand::Unsubscribe { channel: channel.clone() });
        }
    }

    fn open_link(&mut self, address: Address) {
        let (commands, taken) = mpsc::unbounded_channel();
        self.next_link_id += 1;
        let failures = self.links.get(&address).map_or(0, |link| link.failures);
        let link = SubscriptionLink {
            address: address.clone(),
            id: self.next_link_id,
            connector: self.connector.clone(),
            connections: self.topology.connections.clone(),
            clock: self.clock.clone(),
            connect_timeout: self.connect_timeout,
            commands: taken,
            link_events: self.link_events.clone(),
            events: self.events.clone(),
        };
        self.runtime.spawn("link of subscriptions", link.run());
        let rest_until = LocalInstant::default();
        let state = LinkState {
            id: self.next_link_id,
            commands: Some(commands),
            is_connected: false,
            server_name: None,
            failures,
            retry_at: rest_until,
        };
        self.links.insert(address, state);
    }

    /// The place of this channel at that server, if it is wanted there.
    pub(super) fn target_mut(
        &mut self,
        address: &Address,
        channel: &Bytes,
    ) -> Option<(Slot, &mut ChannelTarget)> {
        let slot = Slot::of(channel);
        let wanted = self.channels.get_mut(&slot).filter(|wanted| wanted.channel == *channel)?;
        wanted.targets.iter_mut().find(|place| place.address == *address).map(|place| (slot, place))
    }

    /// Publishes the server where a slot's channel is joined, if that is the slot's master and has
    /// a name.
    pub(super) fn publish_subscribed(&self, slot: Slot) {
        let master = self.topology.master_of(slot);
        let joined = self.channels.get(&slot).and_then(|wanted| {
            wanted.targets.iter().find(|place| {
                matches!(place.state, TargetState::Subscribed(_))
                    && Some(&place.address) == master.as_ref()
            })
        });
        let name = joined.and_then(|place| self.links.get(&place.address)?.server_name.clone());
        let mut table = write(&self.subscribed);
        match name {
            Some(name) => table.insert(slot, name),
            None => table.remove(&slot),
        };
    }

    pub(super) fn send_event(&self, event: SubscriptionEvent) {
        self.events.send(event);
    }
}

impl Drop for SubscriptionManager {
    /// The subscriptions end because the client does. This is no fault of the servers or the
    /// network.
    fn drop(&mut self) {
        let joined = |place: &&ChannelTarget| matches!(place.state, TargetState::Subscribed(_));
        emit_in_drop(|| {
            for (slot, wanted) in &self.channels {
                for place in wanted.targets.iter().filter(joined) {
                    telemetry::record_unsubscribed(&place.address, *slot);
                }
            }
        });
    }
}
