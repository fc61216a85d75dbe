//! The task that keeps the wanted channels joined where their slots are served.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tokio::sync::mpsc;

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector};
use crate::router::runtime::Runtime;
use crate::router::subscriptions::link::{Link, LinkCommand, LinkEvent};
use crate::router::subscriptions::place::{LinkState, Place, State, Wanted};
use crate::router::subscriptions::{Event, Events, Joined};
use crate::router::telemetry;
use crate::router::topology::Topology;
use crate::router::write;
use crate::slot::Slot;
use crate::telemetry::emit_in_drop;

/// What the users of subscriptions request.
#[derive(Debug)]
pub(super) enum KeeperCommand {
    Want { slot: Slot, channel: Bytes },
    Unwant { slot: Slot },
    Ask { slot: Slot, source: Address, target: Address },
}

pub(super) struct Keeper {
    runtime: Runtime,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) topology: Arc<Topology>,
    pub(super) events: Events,
    pub(super) joined: Joined,
    pub(super) wanted: BTreeMap<Slot, Wanted>,
    pub(super) links: HashMap<Address, LinkState>,
    pub(super) links_so_far: u64,
    /// When to check which slot. Entries that no longer hold are found out then.
    pub(super) due: BinaryHeap<Reverse<(Moment, Slot)>>,
    pub(super) link_events: mpsc::UnboundedSender<LinkEvent>,
}

impl Keeper {
    pub(super) fn new(
        runtime: Runtime,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        connect_timeout: Duration,
        topology: Arc<Topology>,
        events: Events,
        joined: Joined,
    ) -> Keeper {
        Keeper {
            runtime,
            connector,
            clock,
            connect_timeout,
            topology,
            events,
            joined,
            wanted: BTreeMap::new(),
            links: HashMap::new(),
            links_so_far: 0,
            due: BinaryHeap::new(),
            // Replaced when the keeper runs.
            link_events: mpsc::unbounded_channel().0,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<KeeperCommand>) {
        let (tell, mut link_events) = mpsc::unbounded_channel();
        self.link_events = tell;
        let topology = self.topology.clone();
        let mut changed = std::pin::pin!(topology.changed());
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(link_events) = link_events.recv() => self.hear(link_events),
                () = &mut changed => {
                    changed.set(topology.changed());
                    self.settle_all();
                }
                () = self.next_due() => self.look_after_due(),
            }
        }
    }

    fn next_due(&self) -> BoxFuture<'static, ()> {
        match self.due.peek() {
            Some(Reverse((at, _))) => self.clock.sleep_until(*at),
            None => future::pending().boxed(),
        }
    }

    fn obey(&mut self, command: KeeperCommand) {
        match command {
            KeeperCommand::Want { slot, channel } => {
                if self.wanted.get(&slot).is_some_and(|wanted| wanted.channel == channel) {
                    return;
                }
                self.forget(slot);
                self.wanted.insert(slot, Wanted { channel, places: Vec::new() });
                self.settle(slot);
            }
            KeeperCommand::Unwant { slot } => self.forget(slot),
            KeeperCommand::Ask { slot, source, target } => self.add_guest(slot, &source, target),
        }
    }

    /// Leaves a slot's channel wherever it is joined.
    pub(super) fn forget(&mut self, slot: Slot) {
        let Some(Wanted { channel, places }) = self.wanted.remove(&slot) else {
            return;
        };
        for place in places {
            self.leave(&place, &channel);
        }
        self.tell_joined(slot);
    }

    pub(super) fn settle_all(&mut self) {
        let slots: Vec<Slot> = self.wanted.keys().copied().collect();
        for slot in slots {
            self.settle(slot);
        }
    }

    /// Updates a slot's places from the slot map: one at the master, and after ASK one at the
    /// server that it named.
    pub(super) fn settle(&mut self, slot: Slot) {
        let master = self.topology.master_of(slot);
        let Some(wanted) = self.wanted.get_mut(&slot) else {
            return;
        };
        let channel = wanted.channel.clone();
        let (kept, left): (Vec<Place>, Vec<Place>) = std::mem::take(&mut wanted.places)
            .into_iter()
            .partition(|place| place.asking || Some(&place.address) == master.as_ref());
        wanted.places = kept;
        if let Some(master) = master {
            match wanted.places.iter_mut().find(|place| place.address == master) {
                // The server that ASK named has become the master.
                Some(place) => place.asking = false,
                None => wanted.places.push(Place::new(master, false)),
            }
        }
        for place in &left {
            self.leave(place, &channel);
        }
        self.join_where_due(slot);
        self.tell_joined(slot);
    }

    /// Adds the target of a migration as a place, since messages come from there too.
    fn add_guest(&mut self, slot: Slot, source: &Address, target: Address) {
        let master = self.topology.master_of(slot);
        let Some(wanted) = self.wanted.get_mut(&slot) else {
            return;
        };
        let known = wanted.places.iter().any(|place| place.address == target);
        // An answer that arrives after the end of the migration no longer counts.
        if !known && master.as_ref() == Some(source) {
            // There is only one target at a time.
            let (old, kept) =
                std::mem::take(&mut wanted.places).into_iter().partition(|place| place.asking);
            wanted.places = kept;
            wanted.places.push(Place::new(target, true));
            let (channel, old): (Bytes, Vec<Place>) = (wanted.channel.clone(), old);
            for place in &old {
                self.leave(place, &channel);
            }
            self.join_where_due(slot);
        }
    }

    fn look_after_due(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((at, slot))) = self.due.peek().copied() {
            if at > now {
                return;
            }
            self.due.pop();
            self.join_where_due(slot);
        }
    }

    /// Joins a slot's channel at all places where a join is due.
    fn join_where_due(&mut self, slot: Slot) {
        let now = self.clock.now();
        let Some(mut wanted) = self.wanted.remove(&slot) else {
            return;
        };
        for place in &mut wanted.places {
            let due = match place.state {
                State::Unlinked => true,
                State::Resting(until) => until <= now,
                // If necessary, the link sends the join again.
                State::Joining | State::Joined(_) => false,
            };
            if due {
                place.state = self.join(place, &wanted.channel, now);
                if let State::Resting(until) = place.state {
                    self.due.push(Reverse((until, slot)));
                }
            }
        }
        self.wanted.insert(slot, wanted);
    }

    /// Joins a channel at a place, as far as the link to it allows.
    fn join(&mut self, place: &Place, channel: &Bytes, now: Moment) -> State {
        match self.links.get(&place.address) {
            Some(link) if link.rest_until > now => State::Resting(link.rest_until),
            Some(LinkState { commands: Some(commands), up: true, .. }) => {
                let _ = commands
                    .send(LinkCommand::Join { channel: channel.clone(), asking: place.asking });
                State::Joining
            }
            Some(LinkState { commands: Some(_), up: false, .. }) => State::Unlinked,
            _ => {
                self.open_link(place.address.clone());
                State::Unlinked
            }
        }
    }

    fn leave(&self, place: &Place, channel: &Bytes) {
        if let State::Joined(_) = place.state {
            telemetry::left(&place.address, Slot::of(channel));
        }
        let commands = self.links.get(&place.address).and_then(|link| link.commands.as_ref());
        if let (Some(commands), State::Joining | State::Joined(_)) = (commands, place.state) {
            let _ = commands.send(LinkCommand::Leave { channel: channel.clone() });
        }
    }

    fn open_link(&mut self, address: Address) {
        let (commands, taken) = mpsc::unbounded_channel();
        self.links_so_far += 1;
        let failures = self.links.get(&address).map_or(0, |link| link.failures);
        let link = Link {
            address: address.clone(),
            id: self.links_so_far,
            connector: self.connector.clone(),
            clock: self.clock.clone(),
            connect_timeout: self.connect_timeout,
            commands: taken,
            link_events: self.link_events.clone(),
            events: self.events.clone(),
        };
        self.runtime.spawn("link of subscriptions", link.run());
        let rest_until = Moment::default();
        let state = LinkState {
            id: self.links_so_far,
            commands: Some(commands),
            up: false,
            name: None,
            failures,
            rest_until,
        };
        self.links.insert(address, state);
    }

    /// The place of this channel at that server, if it is wanted there.
    pub(super) fn place(
        &mut self,
        address: &Address,
        channel: &Bytes,
    ) -> Option<(Slot, &mut Place)> {
        let slot = Slot::of(channel);
        let wanted = self.wanted.get_mut(&slot).filter(|wanted| wanted.channel == *channel)?;
        wanted.places.iter_mut().find(|place| place.address == *address).map(|place| (slot, place))
    }

    /// Publishes the server where a slot's channel is joined, if that is the slot's master and has
    /// a name.
    pub(super) fn tell_joined(&self, slot: Slot) {
        let master = self.topology.master_of(slot);
        let joined = self.wanted.get(&slot).and_then(|wanted| {
            wanted.places.iter().find(|place| {
                matches!(place.state, State::Joined(_)) && Some(&place.address) == master.as_ref()
            })
        });
        let name = joined.and_then(|place| self.links.get(&place.address)?.name.clone());
        let mut table = write(&self.joined);
        match name {
            Some(name) => table.insert(slot, name),
            None => table.remove(&slot),
        };
    }

    pub(super) fn tell(&self, event: Event) {
        self.events.tell(event);
    }
}

impl Drop for Keeper {
    /// The subscriptions end because the client does. This is no fault of the servers or the
    /// network.
    fn drop(&mut self) {
        let joined = |place: &&Place| matches!(place.state, State::Joined(_));
        emit_in_drop(|| {
            for (slot, wanted) in &self.wanted {
                for place in wanted.places.iter().filter(joined) {
                    telemetry::left(&place.address, *slot);
                }
            }
        });
    }
}
