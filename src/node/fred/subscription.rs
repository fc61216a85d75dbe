//! Shard subscriptions by `fred`.
//!
//! The crate drops the pushes that report the end of a subscription, so it never announces that a
//! slot has moved. Therefore each channel is subscribed again at intervals. That changes nothing
//! where the channel is subscribed, and is refused where it no longer can be. Until then waiters
//! poll.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::fred::interfaces::{EventInterface, PubsubInterface};
use ::fred::types::{Message, Value};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, select, try_join_all};
use tokio::sync::broadcast::Receiver;
use tokio::sync::mpsc;

use crate::clock::{Clock, SystemClock};
use crate::health::ClientHealth;
use crate::node::fred::connection::Connection;
use crate::node::fred::pipelined;
use crate::node::fred::reply::{failed, reply_of_value};
use crate::node::task::Task;
use crate::node::{
    Command, NodeError, NodeFuture, Notice, Reply, ServerError, Subscribed, Subscription,
};

/// How often channels are subscribed again, and how many of them each time. If a slot has left the
/// server and come back, the server passes over its waiters until then. A client can have a channel
/// for each of 16,384 slots, and each costs a round trip.
const ASK_AGAIN: Duration = Duration::from_millis(250);
const AT_ONCE: usize = 16;

/// Turns a connection into one that carries subscriptions.
pub(super) fn start(connection: Connection, health: &ClientHealth) -> Subscribed {
    let (notify, notices) = mpsc::unbounded_channel();
    let messages = connection.client().message_rx();
    let channels =
        Arc::new(Channels { connection, joined: Mutex::default(), notify: notify.downgrade() });
    // The reader holds the only sender, so the receiver ends with the reader, which ends with the
    // connection.
    let reader = read(messages, channels.connection.ended().boxed(), notify);
    let asker = ask_again(Arc::downgrade(&channels));
    let _tasks = [
        Task::spawn(health, "messages of `fred`", reader),
        Task::spawn(health, "subscriptions of `fred`", asker),
    ];
    (Arc::new(FredSubscription { channels, _tasks }), notices)
}

/// The router's handle.
#[derive(Debug)]
struct FredSubscription {
    channels: Arc<Channels>,
    _tasks: [Task; 2],
}

/// The channels of a connection.
#[derive(Debug)]
struct Channels {
    connection: Connection,
    joined: Mutex<Joined>,
    notify: mpsc::WeakUnboundedSender<Notice>,
}

/// The channels that are joined, or being joined.
#[derive(Debug, Default)]
struct Joined {
    channels: BTreeMap<Bytes, Join>,
    /// The number of joins so far.
    joins: u64,
}

/// The last join of a channel.
#[derive(Clone, Copy, Debug)]
struct Join {
    number: u64,
    asking: bool,
}

impl Joined {
    fn add(&mut self, channel: &Bytes, asking: bool) -> Join {
        self.joins += 1;
        let join = Join { number: self.joins, asking };
        self.channels.insert(channel.clone(), join);
        join
    }

    /// Removes a channel that was refused, unless it was left or joined again meanwhile. Returns
    /// true if it was removed.
    fn refused(&mut self, channel: &Bytes, join: Join) -> bool {
        let is_last = self.channels.get(channel).is_some_and(|last| last.number == join.number);
        is_last && self.channels.remove(channel).is_some()
    }
}

impl Subscription for FredSubscription {
    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        self.channels.connection.call(command).boxed()
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
        async move {
            let channels = &self.channels;
            let channel = Bytes::copy_from_slice(channel);
            // Before it is sent: a leave that is under way must not end what this begins.
            let join = channels.lock().add(&channel, asking);
            match channels.subscribe(&channel, asking).await? {
                Ok(()) => channels.tell(Notice::Joined { channel }),
                Err(error) => {
                    channels.lock().refused(&channel, join);
                    channels.tell(Notice::Refused { channel, error });
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        async move {
            let channel = Bytes::copy_from_slice(channel);
            self.channels.lock().channels.remove(&channel);
            self.channels.unsubscribe(&channel).await?;
            // `fred` drops the server's confirmation as well, which is a push.
            if self.channels.last_join(&channel).is_none() {
                self.channels.tell(Notice::Left { channel });
            }
            Ok(())
        }
        .boxed()
    }
}

impl Channels {
    /// Subscribes. The inner result is the server's answer.
    async fn subscribe(
        &self,
        channel: &Bytes,
        asking: bool,
    ) -> Result<Result<(), ServerError>, NodeError> {
        let join = Command::new().word("SSUBSCRIBE").word(channel);
        let reply = if asking {
            let both = [Command::asking(), join];
            let mut results = self.connection.run(|client| pipelined(client, &both)).await?;
            match (results.len(), results.pop()) {
                (2, Some(last)) => reply_of_value(last),
                (_, Some(Err(error))) => return Err(failed(&error)),
                _ => Reply::Nil,
            }
        } else {
            self.connection.call(&join).await?
        };
        Ok(match reply {
            Reply::Error(error) => Err(error),
            _ => Ok(()),
        })
    }

    /// Unsubscribes, unless the channel is joined again meanwhile.
    ///
    /// The crate gives an error reply to SUNSUBSCRIBE (MOVED) to the callers of other commands. A
    /// channel that can be subscribed can be left without one, unless it moves in between.
    async fn unsubscribe(&self, channel: &Bytes) -> Result<(), NodeError> {
        if self.subscribe(channel, false).await?.is_err() || self.last_join(channel).is_some() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(channel).into_owned();
        self.connection.run(|client| client.sunsubscribe(name)).await
    }

    /// Subscribes a channel again, if it is joined. If it was left meanwhile, the new subscription
    /// may have come after that: then it is left once more.
    async fn ask_again(&self, channel: Bytes) -> Result<(), NodeError> {
        // Repeats only if the channel was joined again while it was left once more.
        while let Some(join) = self.last_join(&channel) {
            if self.subscribe(&channel, join.asking).await?.is_err() {
                if self.lock().refused(&channel, join) {
                    self.tell(Notice::Left { channel });
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

    fn last_join(&self, channel: &Bytes) -> Option<Join> {
        self.lock().channels.get(channel).copied()
    }

    fn tell(&self, notice: Notice) {
        if let Some(notify) = self.notify.upgrade() {
            let _ = notify.send(notice);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes messages on until the connection ends. It also ends if it was too slow and lost messages:
/// then everything is subscribed anew, and waiters poll.
async fn read(
    mut messages: Receiver<Message>,
    ended: BoxFuture<'static, ()>,
    notify: mpsc::UnboundedSender<Notice>,
) {
    let pass_on = async {
        while let Ok(message) = messages.recv().await {
            let payload = match message.value {
                Value::String(text) => text.into_inner(),
                Value::Bytes(bytes) => bytes,
                _ => continue,
            };
            let channel = message.channel.into_inner();
            let _ = notify.send(Notice::Message { channel, payload });
        }
    };
    select(pin!(pass_on), ended).await;
}

/// Subscribes the channels again, in turn, until the connection is gone.
async fn ask_again(channels: Weak<Channels>) {
    let clock = SystemClock;
    let mut last = Bytes::new();
    loop {
        clock.sleep_until(clock.now().after(ASK_AGAIN)).await;
        let Some(channels) = channels.upgrade() else {
            return;
        };
        let turn = next(&channels.lock().channels, &last);
        // After the very last channel it starts over.
        last = turn.get(AT_ONCE - 1).cloned().unwrap_or_default();
        let asked = turn.into_iter().map(|channel| channels.ask_again(channel));
        if try_join_all(asked).await.is_err() {
            return;
        }
    }
}

/// The channels to subscribe again next, after the one that was last.
fn next<V>(joined: &BTreeMap<Bytes, V>, last: &Bytes) -> Vec<Bytes> {
    let later = joined.range::<Bytes, _>((Bound::Excluded(last), Bound::Unbounded));
    later.take(AT_ONCE).map(|(channel, _)| channel.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_earlier_join_keeps_the_later_join_of_the_channel() {
        let (mut joined, channel) = (Joined::default(), Bytes::from("one"));
        let first = joined.add(&channel, false);
        let second = joined.add(&channel, true);
        assert!(!joined.refused(&channel, first));
        assert!(joined.channels[&channel].asking);
        assert!(joined.refused(&channel, second));
        assert!(!joined.refused(&channel, second), "it was left");
    }

    #[test]
    fn subscriptions_asked_again_in_batches_cover_each_channel_once() {
        let joined: BTreeMap<Bytes, ()> =
            (0..2 * AT_ONCE + 1).map(|number| (format!("{number:05}").into(), ())).collect();
        let (mut last, mut asked) = (Bytes::new(), Vec::new());
        for expected in [AT_ONCE, AT_ONCE, 1] {
            let turn = next(&joined, &last);
            assert_eq!(turn.len(), expected);
            last = turn.last().cloned().unwrap();
            asked.extend(turn);
        }
        assert!(asked.iter().eq(joined.keys()));
        assert!(next(&joined, &last).is_empty());
    }
}
