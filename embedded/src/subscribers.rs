//! The subscribers of each shard channel of one server.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rwlease_core::resp::ServerError;
use rwlease_core::slot::Slot;
use tokio::sync::mpsc::UnboundedSender;

use rwlease_core::resp::PubSubEvent;

/// The connections that carry subscriptions, and the channels of each.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    connections: BTreeMap<u64, UnboundedSender<PubSubEvent>>,
    channels: BTreeMap<Bytes, BTreeSet<u64>>,
}

impl Subscribers {
    pub(crate) fn connect(&mut self, connection: u64, notices: UnboundedSender<PubSubEvent>) {
        self.connections.insert(connection, notices);
    }

    pub(crate) fn disconnect(&mut self, connection: u64) {
        self.connections.remove(&connection);
        self.channels.retain(|_, listeners| {
            listeners.remove(&connection);
            !listeners.is_empty()
        });
    }

    pub(crate) fn disconnect_all(&mut self) {
        *self = Subscribers::default();
    }

    pub(crate) fn is_connected(&self, connection: u64) -> bool {
        self.connections.contains_key(&connection)
    }

    pub(crate) fn subscribe(&mut self, connection: u64, channel: Bytes) {
        self.channels.entry(channel.clone()).or_default().insert(connection);
        self.send(connection, PubSubEvent::Subscribed { channel });
    }

    pub(crate) fn refuse(&mut self, connection: u64, channel: Bytes, error: ServerError) {
        self.send(connection, PubSubEvent::Rejected { channel, error });
    }

    /// Ends one subscription. The server confirms it even if there was none.
    pub(crate) fn unsubscribe(&mut self, connection: u64, channel: Bytes) {
        if let Some(listeners) = self.channels.get_mut(&channel) {
            listeners.remove(&connection);
            if listeners.is_empty() {
                self.channels.remove(&channel);
            }
        }
        self.send(connection, PubSubEvent::Unsubscribed { channel });
    }

    /// Ends the subscriptions in all slots that are no longer served here.
    pub(crate) fn unsubscribe_slots(&mut self, is_served: impl Fn(Slot) -> bool) {
        self.channels.retain(|channel, listeners| {
            let stays = is_served(Slot::of(channel));
            if !stays {
                let listeners =
                    listeners.iter().filter_map(|connection| self.connections.get(connection));
                for notices in listeners {
                    let channel = channel.clone();
                    let _ = notices.send(PubSubEvent::Unsubscribed { channel }); // the client may have closed it
                }
            }
            stays
        });
    }

    /// Sends to all subscribers, and returns their number. One that has closed its end does not
    /// count.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let Some(listeners) = self.channels.get(channel) else {
            return 0;
        };
        let channel = Bytes::copy_from_slice(channel);
        let payload = Bytes::copy_from_slice(payload);
        let message = PubSubEvent::Message { channel, payload };
        let listeners = listeners.iter().filter_map(|connection| self.connections.get(connection));
        listeners.filter(|notices| notices.send(message.clone()).is_ok()).count()
    }

    fn send(&mut self, connection: u64, notice: PubSubEvent) {
        if let Some(notices) = self.connections.get(&connection)
            && notices.send(notice).is_err()
        {
            self.disconnect(connection);
        }
    }
}
