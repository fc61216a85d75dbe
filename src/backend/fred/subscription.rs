//! Shard subscriptions by `fred`.
//!
//! The crate drops the pushes that report the end of a subscription, so it never announces that a
//! slot has moved. Therefore each channel is subscribed again at intervals. That changes nothing
//! where the channel is subscribed, and is refused where it no longer can be. Until then waiters
//! poll.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ::fred::interfaces::{EventInterface, PubsubInterface};
use ::fred::types::{Message, Value};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, select, try_join_all};
use rwlease_core::resp::{Command, RespValue, ServerError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::backend::fred::connection::FredConnection;
use crate::backend::fred::pipelined;
use crate::backend::fred::reply::{command_error, from_value};
use crate::backend::{
    ConnectionError, ConnectionFuture, OpenedPubSub, PubSubConnection, PubSubEvent,
};
use crate::clock::{Clock, SystemClock};
use crate::health::ClientHealth;
use crate::locks::lock;

/// How often channels are subscribed again, and how many of them each time. If a slot has left the
/// server and come back, the server passes over its waiters until then. A client can have a channel
/// for each of 16,384 slots, and each costs a round trip.
const RESUBSCRIBE_INTERVAL: Duration = Duration::from_millis(250);
const RESUBSCRIBE_BATCH: usize = 16;

/// Turns a connection into one that carries subscriptions.
pub(super) fn start(connection: FredConnection, health: &ClientHealth) -> OpenedPubSub {
    let (notify, notices) = mpsc::unbounded_channel();
    let messages = connection.client().message_rx();
    let channels =
        Arc::new(FredChannels { connection, joined: Mutex::default(), notify: notify.downgrade() });
    // The reader holds the only sender, so the receiver ends with the reader, which ends with the
    // connection.
    let reader = read(messages, channels.connection.ended().boxed(), notify);
    let asker = resubscribe_in_turn(Arc::downgrade(&channels));
    let _tasks = [
        health.spawn("messages of `fred`", reader),
        health.spawn("subscriptions of `fred`", asker),
    ];
    (Arc::new(FredPubSub { channels, _tasks }), notices)
}

/// The router's handle.
struct FredPubSub {
    channels: Arc<FredChannels>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// The channels of a connection.
struct FredChannels {
    connection: FredConnection,
    joined: Mutex<SubscribedChannels>,
    notify: mpsc::WeakUnboundedSender<PubSubEvent>,
}

/// The channels that are joined, or being joined.
#[derive(Debug, Default)]
struct SubscribedChannels {
    channels: BTreeMap<Bytes, ChannelSubscribe>,
    /// The number of joins so far.
    subscribe_count: u64,
}

/// The last join of a channel.
#[derive(Clone, Copy, Debug)]
struct ChannelSubscribe {
    number: u64,
    asking: bool,
}

impl SubscribedChannels {
    fn add(&mut self, channel: &Bytes, asking: bool) -> ChannelSubscribe {
        self.subscribe_count += 1;
        let join = ChannelSubscribe { number: self.subscribe_count, asking };
        self.channels.insert(channel.clone(), join);
        join
    }

    /// Removes a channel that was refused, unless it was left or joined again meanwhile. Returns
    /// true if it was removed.
    fn refused(&mut self, channel: &Bytes, join: ChannelSubscribe) -> bool {
        let is_last = self.channels.get(channel).is_some_and(|last| last.number == join.number);
        is_last && self.channels.remove(channel).is_some()
    }
}

impl PubSubConnection for FredPubSub {
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        self.channels.connection.call(command).boxed()
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        async move {
            let channels = &self.channels;
            let channel = Bytes::copy_from_slice(channel);
            // Before it is sent: a leave that is under way must not end what this begins.
            let join = lock(&channels.joined).add(&channel, asking);
            match channels.subscribe(&channel, asking).await? {
                Ok(()) => channels.send_event(PubSubEvent::Subscribed { channel }),
                Err(error) => {
                    lock(&channels.joined).refused(&channel, join);
                    channels.send_event(PubSubEvent::Rejected { channel, error });
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        async move {
            let channel = Bytes::copy_from_slice(channel);
            lock(&self.channels.joined).channels.remove(&channel);
            self.channels.unsubscribe(&channel).await?;
            // `fred` drops the server's confirmation as well, which is a push.
            if self.channels.last_join(&channel).is_none() {
                self.channels.send_event(PubSubEvent::Unsubscribed { channel });
            }
            Ok(())
        }
        .boxed()
    }
}

impl FredChannels {
    /// Subscribes. The inner result is the server's answer.
    async fn subscribe(
        &self,
        channel: &Bytes,
        asking: bool,
    ) -> Result<Result<(), ServerError>, ConnectionError> {
        let join = Command::new().arg("SSUBSCRIBE").arg(channel);
        let reply = if asking {
            let both = [Command::asking(), join];
            let mut results = self.connection.run(|client| pipelined(client, &both)).await?;
            match (results.len(), results.pop()) {
                (2, Some(last)) => from_value(last),
                (_, Some(Err(error))) => return Err(command_error(&error)),
                _ => RespValue::Nil,
            }
        } else {
            self.connection.call(&join).await?
        };
        Ok(match reply {
            RespValue::Error(error) => Err(error),
            _ => Ok(()),
        })
    }

    /// Unsubscribes, unless the channel is joined again meanwhile.
    ///
    /// The crate gives an error reply to SUNSUBSCRIBE (MOVED) to the callers of other commands. A
    /// channel that can be subscribed can be left without one, unless it moves in between.
    async fn unsubscribe(&self, channel: &Bytes) -> Result<(), ConnectionError> {
        if self.subscribe(channel, false).await?.is_err() || self.last_join(channel).is_some() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(channel).into_owned();
        self.connection.run(|client| client.sunsubscribe(name)).await
    }

    /// Subscribes a channel again, if it is joined. If this client unsubscribed before, the new
    /// subscription may have arrived later. In that case the client unsubscribes again.
    async fn resubscribe(&self, channel: Bytes) -> Result<(), ConnectionError> {
        // Repeats only if the channel was joined again while it was left once more.
        while let Some(join) = self.last_join(&channel) {
            if self.subscribe(&channel, join.asking).await?.is_err() {
                if lock(&self.joined).refused(&channel, join) {
                    self.send_event(PubSubEvent::Unsubscribed { channel });
                }
                return Ok(());
            }
            if self.last_join(&channel).is_some() {
                return Ok(());
            }
            self.unsubscribe(&channel).await?;
        }
        Ok(())
    }

    fn last_join(&self, channel: &Bytes) -> Option<ChannelSubscribe> {
        lock(&self.joined).channels.get(channel).copied()
    }

    fn send_event(&self, notice: PubSubEvent) {
        if let Some(notify) = self.notify.upgrade() {
            let _ = notify.send(notice);
        }
    }
}

/// Passes messages on until the connection ends. It also ends if it was too slow and lost messages.
/// After that all channels are subscribed again, and waiters poll.
async fn read(
    mut messages: Receiver<Message>,
    ended: BoxFuture<'static, ()>,
    notify: mpsc::UnboundedSender<PubSubEvent>,
) {
    let pass_on = async {
        while let Ok(message) = messages.recv().await {
            let payload = match message.value {
                Value::String(text) => text.into_inner(),
                Value::Bytes(bytes) => bytes,
                _ => continue,
            };
            let channel = message.channel.into_inner();
            let _ = notify.send(PubSubEvent::Message { channel, payload });
        }
    };
    select(pin!(pass_on), ended).await;
}

/// Subscribes the channels again, in turn, until the connection is gone.
async fn resubscribe_in_turn(channels: Weak<FredChannels>) {
    let clock = SystemClock;
    let mut last = Bytes::new();
    loop {
        clock.sleep_until(clock.now().saturating_add(RESUBSCRIBE_INTERVAL)).await;
        let Some(channels) = channels.upgrade() else {
            return;
        };
        let turn = next_batch(&lock(&channels.joined).channels, &last);
        // After the very last channel it starts over.
        last = turn.get(RESUBSCRIBE_BATCH - 1).cloned().unwrap_or_default();
        let asked = turn.into_iter().map(|channel| channels.resubscribe(channel));
        if try_join_all(asked).await.is_err() {
            return;
        }
    }
}

/// The channels to subscribe again next, after the one that was last.
fn next_batch<V>(joined: &BTreeMap<Bytes, V>, last: &Bytes) -> Vec<Bytes> {
    let later = joined.range::<Bytes, _>((Bound::Excluded(last), Bound::Unbounded));
    later.take(RESUBSCRIBE_BATCH).map(|(channel, _)| channel.clone()).collect()
}

#[cfg(test)]
mod tests;
