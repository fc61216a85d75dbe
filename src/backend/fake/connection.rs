use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use rwlease_core::resp::{Address, Command, RespValue};
use tokio::sync::mpsc;

use super::{DialBehavior, FakeCluster, FakeReply, SubscribeReply, server_error};
use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    PubSubConnection, PubSubEvent, ResponseFuture,
};
use crate::health::ClientHealth;

impl Connector for FakeCluster {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        async move {
            let host = self.host_of(&address.host, place);
            self.open(host).await
        }
        .boxed()
    }

    fn resolve<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        if self.0.names_hang.load(Ordering::Relaxed) {
            return future::pending().boxed();
        }
        let places = self.0.names.lock().unwrap().get(&address.host).cloned();
        future::ready(places.unwrap_or_else(|| vec![address.host.clone()])).boxed()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        async move {
            let host = self.host_of(&address.host, place);
            self.open_pubsub(host).await
        }
        .boxed()
    }

    fn health(&self) -> ClientHealth {
        self.0.health.clone()
    }

    fn rotates_credentials(&self) -> bool {
        self.0.renews.load(Ordering::Relaxed)
    }
}

impl FakeCluster {
    /// The server that is dialled at `place`, or under this name.
    fn host_of(&self, name: &Arc<str>, place: Option<&str>) -> Arc<str> {
        if let Some(place) = place {
            return place.into();
        }
        let hosts = self.0.names.lock().unwrap().get(name).cloned().unwrap_or_default();
        let open = |host: &&Arc<str>| self.with(host, |server| server.door == DialBehavior::Accept);
        hosts.iter().find(open).or(hosts.first()).unwrap_or(name).clone()
    }

    async fn open(&self, host: Arc<str>) -> Result<Arc<dyn CommandConnection>, ConnectionError> {
        let generation = self.dial(&host).await?;
        let out_of_step = Arc::default();
        Ok(Arc::new(FakeCommands { fakes: self.clone(), host, generation, out_of_step }))
    }

    async fn open_pubsub(&self, host: Arc<str>) -> Result<OpenedPubSub, ConnectionError> {
        self.dial(&host).await?;
        let (notify, notices) = mpsc::unbounded_channel();
        self.with(&host, |server| server.subscribers.push(notify.clone()));
        let notify = notify.downgrade();
        let subscription: Arc<dyn PubSubConnection> =
            Arc::new(FakePubSub { fakes: self.clone(), host, notify });
        Ok((subscription, notices))
    }

    async fn dial(&self, host: &str) -> Result<usize, ConnectionError> {
        let door = self.with(host, |server| {
            server.dials += 1;
            server.door
        });
        tokio::task::yield_now().await;
        match door {
            DialBehavior::Accept => Ok(self.with(host, |server| server.generation)),
            DialBehavior::Refuse => Err(ConnectionError {
                is_connection_refused: true,
                ..ConnectionError::not_sent("connection refused")
            }),
            DialBehavior::Unreachable => Err(ConnectionError::not_sent("network is unreachable")),
            DialBehavior::Hang => future::pending().await,
            DialBehavior::AcceptDelayed(pause) => {
                tokio::time::sleep(pause).await;
                Ok(self.with(host, |server| server.generation))
            }
            DialBehavior::WrongPassword => Err(ConnectionError {
                is_permanent: !self.rotates_credentials(),
                ..ConnectionError::not_sent("WRONGPASS")
            }),
        }
    }
}

#[derive(Clone)]
struct FakeCommands {
    fakes: FakeCluster,
    host: Arc<str>,
    generation: usize,
    /// A reply that did not fit its command.
    out_of_step: Arc<OnceLock<ConnectionError>>,
}

impl CommandConnection for FakeCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let replies = self.pipeline(&[command]);
        async move { Ok(replies.await?.pop().unwrap_or(RespValue::Nil)) }.boxed().into()
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        async move {
            if !node.is_usable() {
                return Err(broken(false));
            }
            node.fakes.with(&node.host, |server| server.pipelines += 1);
            let mut replies = Vec::new();
            // A server takes the whole pipeline, whatever its first commands result in.
            let acts: Vec<FakeReply> =
                commands.iter().map(|command| node.fakes.act(&node.host, command)).collect();
            tokio::task::yield_now().await;
            let round_trip = node.fakes.with(&node.host, |server| server.round_trip);
            if !round_trip.is_zero() {
                tokio::time::sleep(round_trip).await;
            }
            for act in acts {
                match act {
                    FakeReply::Answer(reply) => replies.push(reply),
                    FakeReply::Delayed(wait, reply) => {
                        tokio::time::sleep(wait).await;
                        replies.push(reply);
                    }
                    FakeReply::DelayedRead(wait, turns, reply) => {
                        replies.push(reply_after_yields(wait, turns, reply).await)
                    }
                    FakeReply::Hang => future::pending().await,
                    FakeReply::Break { maybe_sent } => return Err(broken(maybe_sent)),
                    FakeReply::Short => {}
                }
            }
            if !node.is_usable() {
                return Err(broken(true));
            }
            node.check(&commands, &replies)?;
            Ok(replies)
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        self.out_of_step.get().is_none()
            && self.fakes.with(&self.host, |server| server.generation) == self.generation
    }

    fn resolved_addr(&self) -> Option<Arc<str>> {
        Some(self.host.clone())
    }
}

impl FakeCommands {
    /// Ends the connection at a reply that does not fit its command.
    fn check(&self, commands: &[Command], replies: &[RespValue]) -> Result<(), ConnectionError> {
        let mut pairs = commands.iter().zip(replies);
        let mismatch = pairs.find_map(|(command, reply)| command.shape().check(reply).err());
        if let Some(mismatch) = mismatch {
            let _ = self.out_of_step.set(mismatch.into());
        }
        let failure = self.out_of_step.get().cloned();
        failure.map_or(Ok(()), |failure| Err(ConnectionError { maybe_sent: true, ..failure }))
    }
}

struct FakePubSub {
    fakes: FakeCluster,
    host: Arc<str>,
    notify: mpsc::WeakUnboundedSender<PubSubEvent>,
}

impl PubSubConnection for FakePubSub {
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        async move {
            match self.fakes.act(&self.host, command) {
                FakeReply::Answer(reply) => Ok(reply),
                FakeReply::Hang => future::pending().await,
                _ => Err(broken(true)),
            }
        }
        .boxed()
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        async move {
            let Some(notify) = self.notify.upgrade() else {
                return Err(broken(false));
            };
            let (stopped, act) = self.fakes.with(&self.host, |server| {
                let asked = if asking { " asking" } else { "" };
                server.log.push(format!("SSUBSCRIBE {}{asked}", String::from_utf8_lossy(channel)));
                (server.stopped, server.joins.pop_front())
            });
            let channel = Bytes::copy_from_slice(channel);
            let is_held = self.fakes.with(&self.host, |server| {
                let held = server.held_joins.as_mut();
                held.map(|held| held.push_back((notify.downgrade(), channel.clone()))).is_some()
            });
            match act {
                _ if is_held => {}
                _ if stopped => {}
                None => drop(notify.send(PubSubEvent::Subscribed { channel })),
                Some(SubscribeReply::Refuse(text)) => {
                    drop(notify.send(PubSubEvent::Rejected { channel, error: server_error(text) }))
                }
                Some(SubscribeReply::Ignore) => {}
            }
            Ok(())
        }
        .boxed()
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        async move {
            let Some(notify) = self.notify.upgrade() else {
                return Err(broken(false));
            };
            self.fakes.with(&self.host, |server| {
                server.log.push(format!("SUNSUBSCRIBE {}", String::from_utf8_lossy(channel)));
            });
            drop(
                notify.send(PubSubEvent::Unsubscribed { channel: Bytes::copy_from_slice(channel) }),
            );
            Ok(())
        }
        .boxed()
    }
}

async fn reply_after_yields(wait: Duration, turns_of_others: usize, reply: RespValue) -> RespValue {
    let reader = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        for _ in 0..turns_of_others {
            tokio::task::yield_now().await;
        }
        reply
    });
    reader.await.unwrap_or(RespValue::Nil)
}

fn broken(maybe_sent: bool) -> ConnectionError {
    ConnectionError { maybe_sent, ..ConnectionError::not_sent("connection reset") }
}
