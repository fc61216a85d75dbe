//! How the manager handles the events of its links.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::resp::{Address, ServerError};
use rwlease_core::slot::Slot;

use crate::backend::PubSubEvent;
use crate::router::cluster::refresh::RefreshSource;
use crate::router::connections::error_reply::moved_target;
use crate::router::connections::limits::{DIAL_BACKOFF, FREE_REDIRECTS, redial_pause};
use crate::router::subscriptions::SubscriptionEvent;
use crate::router::subscriptions::link::{LinkCommand, LinkEvent, LinkEventKind};
use crate::router::subscriptions::manager::{SubscriptionManager, TargetState};
use crate::router::telemetry;

/// When a server that does not support or does not permit shard subscriptions is tried again: it
/// may have been upgraded.
const UNSUPPORTED_RETRY: Duration = Duration::from_secs(60);

impl SubscriptionManager {
    pub(super) fn on_link_event(&mut self, LinkEvent { address, id, kind: what }: LinkEvent) {
        let Some(link) = self.links.get_mut(&address).filter(|link| link.id == id) else {
            return;
        };
        match what {
            LinkEventKind::Connected { name } => {
                link.is_connected = true;
                link.server_name = name;
                self.reconcile_all();
            }
            LinkEventKind::PubSub(PubSubEvent::Subscribed { channel }) => {
                link.failures = 0;
                self.on_subscribed(&address, channel);
            }
            LinkEventKind::PubSub(PubSubEvent::Unsubscribed { channel }) => {
                self.on_unsubscribed(&address, &channel)
            }
            LinkEventKind::PubSub(PubSubEvent::Rejected { channel, error }) => {
                self.on_rejected(&address, &channel, &error)
            }
            LinkEventKind::PubSub(PubSubEvent::Message { .. }) => {} // the listener gets it
            LinkEventKind::Ended { idle } => self.on_ended(address, idle),
        }
    }

    fn on_subscribed(&mut self, address: &Address, channel: Bytes) {
        let now = self.clock.now();
        match self.target_mut(address, &channel) {
            Some((slot, place)) => {
                if !matches!(place.state, TargetState::Subscribed(_)) {
                    place.state = TargetState::Subscribed(now);
                    if let Some(wanted) = self.channels.get_mut(&slot) {
                        wanted.redirect_count = 0;
                    }
                    telemetry::record_subscribed(address, slot);
                    self.publish_subscribed(slot);
                    self.send_event(SubscriptionEvent::PollRequired { slot });
                }
            }
            // The place was given up meanwhile.
            None => {
                let commands = self.links.get(address).and_then(|link| link.commands.as_ref());
                if let Some(commands) = commands {
                    let _ = commands.send(LinkCommand::Unsubscribe { channel });
                }
            }
        }
    }

    fn on_unsubscribed(&mut self, address: &Address, channel: &Bytes) {
        let now = self.clock.now();
        // If the channel is being joined, this ends an earlier subscription.
        let Some((slot, place)) = self.target_mut(address, channel) else {
            return;
        };
        let TargetState::Subscribed(since) = place.state else {
            return;
        };
        telemetry::record_subscription_lost(address, slot);
        if now.saturating_duration_since(since) >= DIAL_BACKOFF.max {
            place.failure_count = 0;
        }
        self.back_off(slot, address, None);
        // The slot has probably moved, and this server knows where to.
        drop(self.topology.refresh(RefreshSource::Prefer(address.clone())));
        self.publish_subscribed(slot);
        self.send_event(SubscriptionEvent::PollRequired { slot });
    }

    fn on_rejected(&mut self, address: &Address, channel: &Bytes, error: &ServerError) {
        let Some((slot, place)) = self.target_mut(address, channel) else {
            return;
        };
        let was_joined = matches!(place.state, TargetState::Subscribed(_));
        telemetry::record_subscribe_rejected(address, slot, error);
        if was_joined {
            telemetry::record_subscription_lost(address, slot);
        }
        if let Some((_, master)) =
            moved_target(error, address, self.topology.translation()).filter(|(of, _)| *of == slot)
        {
            self.back_off(slot, address, None);
            self.on_redirect(slot, &master);
        } else if is_unsupported(error) {
            let until = self.clock.now().saturating_add(UNSUPPORTED_RETRY);
            if let Some(link) = self.links.get_mut(address) {
                link.retry_at = until;
            }
            self.back_off(slot, address, Some(UNSUPPORTED_RETRY));
        } else {
            self.back_off(slot, address, None);
            drop(self.topology.refresh(RefreshSource::Avoid(address.clone())));
        }
        if was_joined {
            self.publish_subscribed(slot);
            self.send_event(SubscriptionEvent::PollRequired { slot });
        }
    }

    /// Joins where a server sends it. Each of two servers that redirect to each other teaches the
    /// opposite, so the map is not changed then.
    fn on_redirect(&mut self, slot: Slot, master: &Address) {
        let Some(wanted) = self.channels.get_mut(&slot) else {
            return;
        };
        wanted.redirect_count = wanted.redirect_count.saturating_add(1);
        match wanted.redirect_count.checked_sub(FREE_REDIRECTS) {
            None => self.topology.on_moved(slot, master),
            Some(beyond) => {
                wanted.retry_at = self.clock.now().saturating_add(DIAL_BACKOFF.delay(beyond));
                drop(self.topology.refresh(RefreshSource::Several));
            }
        }
        self.reconcile(slot);
    }

    /// Delays the next join at a place after a failure: by `rest`, or by a pause that grows. A
    /// place that ASK named is not tried again.
    fn back_off(&mut self, slot: Slot, address: &Address, rest: Option<Duration>) {
        let now = self.clock.now();
        let Some(wanted) = self.channels.get_mut(&slot) else {
            return;
        };
        wanted.targets.retain(|place| !(place.asking && place.address == *address));
        for place in wanted.targets.iter_mut().filter(|place| place.address == *address) {
            let until =
                now.saturating_add(rest.unwrap_or_else(|| DIAL_BACKOFF.delay(place.failure_count)));
            place.failure_count += 1;
            place.state = TargetState::BackingOff(until);
            self.due.push(Reverse((until, slot)));
        }
    }

    fn on_ended(&mut self, address: Address, idle: bool) {
        let now = self.clock.now();
        let Some(link) = self.links.get_mut(&address) else {
            return;
        };
        link.commands = None;
        link.is_connected = false;
        if !idle {
            link.retry_at = now.saturating_add(redial_pause(link.failures));
            link.failures += 1;
        }
        let rest_until = link.retry_at;
        let mut lost = Vec::new();
        let mut needed = false;
        for (slot, wanted) in &mut self.channels {
            for place in wanted.targets.iter_mut().filter(|place| place.address == address) {
                needed = true;
                if matches!(place.state, TargetState::Subscribed(_)) {
                    telemetry::record_subscription_lost(&address, *slot);
                    lost.push(*slot);
                }
                place.state = TargetState::BackingOff(rest_until);
                self.due.push(Reverse((rest_until, *slot)));
            }
            wanted.targets.retain(|place| !(place.asking && place.address == address));
        }
        if !needed {
            self.links.remove(&address);
        } else if !idle {
            drop(self.topology.refresh(RefreshSource::Avoid(address)));
        }
        for slot in lost {
            self.publish_subscribed(slot);
            self.send_event(SubscriptionEvent::PollRequired { slot });
        }
    }
}

/// Returns true if the server does not support shard subscriptions (before 7.0), or does not let
/// this user subscribe: frequent attempts would be useless.
fn is_unsupported(error: &ServerError) -> bool {
    error.code == "NOPERM" || (error.code == "ERR" && error.message.starts_with("unknown command"))
}
