//! How the keeper handles the events of its links.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;

use crate::node::{Address, ServerError};
use crate::router::answer::moved_to;
use crate::router::subscriptions::Event;
use crate::router::subscriptions::keeper::Keeper;
use crate::router::subscriptions::link::{LinkCommand, LinkEvent, What};
use crate::router::subscriptions::place::State;
use crate::router::telemetry;
use crate::router::topology::RefreshFrom;
use crate::router::{DIALS, first_redial};
use crate::slot::Slot;

/// When a server that does not support or does not permit shard subscriptions is tried again: it
/// may have been upgraded.
const DEAF_REST: Duration = Duration::from_secs(60);

impl Keeper {
    pub(super) fn hear(&mut self, LinkEvent { address, id, what }: LinkEvent) {
        let Some(link) = self.links.get_mut(&address).filter(|link| link.id == id) else {
            return;
        };
        match what {
            What::Up { name } => {
                link.up = true;
                link.name = name;
                self.settle_all();
            }
            What::Joined(channel) => {
                link.failures = 0;
                self.on_joined(&address, channel);
            }
            What::Left(channel) => self.on_left(&address, &channel),
            What::Refused(channel, error) => self.on_refused(&address, &channel, &error),
            What::Ended { idle } => self.on_ended(address, idle),
        }
    }

    fn on_joined(&mut self, address: &Address, channel: Bytes) {
        let now = self.clock.now();
        match self.place(address, &channel) {
            Some((slot, place)) => {
                if !matches!(place.state, State::Joined(_)) {
                    place.state = State::Joined(now);
                    telemetry::joined(address, slot);
                    self.tell_joined(slot);
                    self.tell(Event::Poll { slot });
                }
            }
            // The place was given up meanwhile.
            None => {
                let commands = self.links.get(address).and_then(|link| link.commands.as_ref());
                if let Some(commands) = commands {
                    let _ = commands.send(LinkCommand::Leave { channel });
                }
            }
        }
    }

    fn on_left(&mut self, address: &Address, channel: &Bytes) {
        let now = self.clock.now();
        // If the channel is being joined, this ends an earlier subscription.
        let Some((slot, place)) = self.place(address, channel) else {
            return;
        };
        let State::Joined(since) = place.state else {
            return;
        };
        telemetry::unsubscribed(address, slot);
        if now.since(since) >= DIALS.most {
            place.failures = 0;
        }
        self.fail(slot, address, None);
        // The slot has probably moved, and this server knows where to.
        drop(self.topology.refresh(RefreshFrom::First(address.clone())));
        self.tell_joined(slot);
        self.tell(Event::Poll { slot });
    }

    fn on_refused(&mut self, address: &Address, channel: &Bytes, error: &ServerError) {
        let Some((slot, place)) = self.place(address, channel) else {
            return;
        };
        let was_joined = matches!(place.state, State::Joined(_));
        telemetry::subscribe_refused(address, slot, error);
        if was_joined {
            telemetry::unsubscribed(address, slot);
        }
        if let Some((_, master)) =
            moved_to(error, address, self.topology.translation()).filter(|(of, _)| *of == slot)
        {
            self.fail(slot, address, None);
            self.topology.moved(slot, &master);
            self.settle(slot);
        } else if is_deaf(error) {
            let until = self.clock.now().after(DEAF_REST);
            if let Some(link) = self.links.get_mut(address) {
                link.rest_until = until;
            }
            self.fail(slot, address, Some(DEAF_REST));
        } else {
            self.fail(slot, address, None);
            drop(self.topology.refresh(RefreshFrom::Another(address.clone())));
        }
        if was_joined {
            self.tell_joined(slot);
            self.tell(Event::Poll { slot });
        }
    }

    /// Delays the next join at a place after a failure: by `rest`, or by a pause that grows. A
    /// place that ASK named is not tried again.
    fn fail(&mut self, slot: Slot, address: &Address, rest: Option<Duration>) {
        let now = self.clock.now();
        let Some(wanted) = self.wanted.get_mut(&slot) else {
            return;
        };
        wanted.places.retain(|place| !(place.asking && place.address == *address));
        for place in wanted.places.iter_mut().filter(|place| place.address == *address) {
            let until = now.after(rest.unwrap_or_else(|| DIALS.pause(place.failures)));
            place.failures += 1;
            place.state = State::Resting(until);
            self.due.push(Reverse((until, slot)));
        }
    }

    fn on_ended(&mut self, address: Address, idle: bool) {
        let now = self.clock.now();
        let Some(link) = self.links.get_mut(&address) else {
            return;
        };
        link.commands = None;
        link.up = false;
        if !idle {
            let pause = match link.failures {
                0 => first_redial(),
                failures => DIALS.pause(failures),
            };
            link.rest_until = now.after(pause);
            link.failures += 1;
        }
        let rest_until = link.rest_until;
        let mut lost = Vec::new();
        let mut needed = false;
        for (slot, wanted) in &mut self.wanted {
            for place in wanted.places.iter_mut().filter(|place| place.address == address) {
                needed = true;
                if matches!(place.state, State::Joined(_)) {
                    telemetry::unsubscribed(&address, *slot);
                    lost.push(*slot);
                }
                place.state = State::Resting(rest_until);
                self.due.push(Reverse((rest_until, *slot)));
            }
            wanted.places.retain(|place| !(place.asking && place.address == address));
        }
        if !needed {
            self.links.remove(&address);
        } else if !idle {
            drop(self.topology.refresh(RefreshFrom::Another(address)));
        }
        for slot in lost {
            self.tell_joined(slot);
            self.tell(Event::Poll { slot });
        }
    }
}

/// Returns true if the server does not support shard subscriptions (before 7.0), or does not let
/// this user subscribe: frequent attempts would be useless.
fn is_deaf(error: &ServerError) -> bool {
    error.code == "NOPERM" || (error.code == "ERR" && error.detail.starts_with("unknown command"))
}
