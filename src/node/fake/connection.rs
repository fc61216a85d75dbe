//! Connections to fake servers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tokio::sync::mpsc;

use super::{Act, Door, Fakes, JoinAct, server_error};
use crate::health::ClientHealth;
use crate::node::{
    Address, Answering, Command, Connector, Node, NodeError, NodeFuture, Notice, Reply, Subscribed,
    Subscription,
};

impl Connector for Fakes {
    fn connect<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Arc<dyn Node>> {
        async move {
            let host = self.host_of(&address.host);
            self.open(host).await
        }
        .boxed()
    }

    fn places<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        if self.0.names_hang.load(Ordering::Relaxed) {
            return future::pending().boxed();
        }
        let places = self.0.names.lock().unwrap().get(&address.host).cloned();
        future::ready(places.unwrap_or_else(|| vec![address.host.clone()])).boxed()
    }

    fn connect_at<'a>(&'a self, _: &'a Address, place: &'a str) -> NodeFuture<'a, Arc<dyn Node>> {
        self.open(place.into()).boxed()
    }

    fn subscribe<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Subscribed> {
        async move {
            self.enter(&address.host).await?;
            let (notify, notices) = mpsc::unbounded_channel();
            self.with(&address.host, |server| server.subscribers.push(notify.clone()));
            let subscription: Arc<dyn Subscription> = Arc::new(FakeSubscription {
                fakes: self.clone(),
                host: address.host.clone(),
                notify: notify.downgrade(),
            });
            Ok((subscription, notices))
        }
        .boxed()
    }

    fn health(&self) -> ClientHealth {
        self.0.health.clone()
    }

    fn renews_credentials(&self) -> bool {
        self.0.renews.load(Ordering::Relaxed)
    }
}

impl Fakes {
    /// The server that is dialled under this name.
    fn host_of(&self, name: &Arc<str>) -> Arc<str> {
        let hosts = self.0.names.lock().unwrap().get(name).cloned().unwrap_or_default();
        let open = |host: &&Arc<str>| self.with(host, |server| server.door == Door::Open);
        hosts.iter().find(open).or(hosts.first()).unwrap_or(name).clone()
    }

    async fn open(&self, host: Arc<str>) -> Result<Arc<dyn Node>, NodeError> {
        let generation = self.enter(&host).await?;
        let out_of_step = Arc::default();
        Ok(Arc::new(FakeNode { fakes: self.clone(), host, generation, out_of_step }))
    }

    async fn enter(&self, host: &str) -> Result<usize, NodeError> {
        let door = self.with(host, |server| {
            server.dials += 1;
            server.door
        });
        tokio::task::yield_now().await;
        match door {
            Door::Open => Ok(self.with(host, |server| server.generation)),
            Door::Refuses => {
                Err(NodeError { refused: true, ..NodeError::unsent("connection refused") })
            }
            Door::Unreachable => Err(NodeError::unsent("network is unreachable")),
            Door::Hangs => future::pending().await,
            Door::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(self.with(host, |server| server.generation))
            }
            Door::Locked => Err(NodeError {
                permanent: !self.renews_credentials(),
                ..NodeError::unsent("WRONGPASS")
            }),
        }
    }
}

#[derive(Clone, Debug)]
struct FakeNode {
    fakes: Fakes,
    host: Arc<str>,
    generation: usize,
    /// A reply that did not fit its command.
    out_of_step: Arc<OnceLock<NodeError>>,
}

impl Node for FakeNode {
    fn call(&self, command: Command) -> Answering<Reply> {
        let replies = self.pipeline(&[command]);
        async move { Ok(replies.await?.pop().unwrap_or(Reply::Nil)) }.boxed().into()
    }

    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        async move {
            if !node.is_usable() {
                return Err(broken(false));
            }
            node.fakes.with(&node.host, |server| server.pipelines += 1);
            let mut replies = Vec::new();
            // A server takes the whole pipeline, whatever its first commands result in.
            let acts: Vec<Act> =
                commands.iter().map(|command| node.fakes.act(&node.host, command)).collect();
            tokio::task::yield_now().await;
            for act in acts {
                match act {
                    Act::Answer(reply) => replies.push(reply),
                    Act::Late(wait, reply) => {
                        tokio::time::sleep(wait).await;
                        replies.push(reply);
                    }
                    Act::Unread(wait, turns, reply) => {
                        replies.push(unread(wait, turns, reply).await)
                    }
                    Act::Hang => future::pending().await,
                    Act::Break { maybe_sent } => return Err(broken(maybe_sent)),
                    Act::Short => {}
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

    fn place(&self) -> Option<Arc<str>> {
        Some(self.host.clone())
    }
}

impl FakeNode {
    /// Ends the connection at a reply that does not fit its command.
    fn check(&self, commands: &[Command], replies: &[Reply]) -> Result<(), NodeError> {
        let mut pairs = commands.iter().zip(replies);
        let mismatch = pairs.find_map(|(command, reply)| command.shape().check(reply).err());
        if let Some(mismatch) = mismatch {
            let _ = self.out_of_step.set(mismatch.into());
        }
        let failure = self.out_of_step.get().cloned();
        failure.map_or(Ok(()), |failure| Err(NodeError { maybe_sent: true, ..failure }))
    }
}

#[derive(Debug)]
struct FakeSubscription {
    fakes: Fakes,
    host: Arc<str>,
    notify: mpsc::WeakUnboundedSender<Notice>,
}

impl Subscription for FakeSubscription {
    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        async move {
            match self.fakes.act(&self.host, command) {
                Act::Answer(reply) => Ok(reply),
                Act::Hang => future::pending().await,
                _ => Err(broken(true)),
            }
        }
        .boxed()
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
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
                None => drop(notify.send(Notice::Joined { channel })),
                Some(JoinAct::Refuse(text)) => {
                    drop(notify.send(Notice::Refused { channel, error: server_error(text) }))
                }
                Some(JoinAct::Ignore) => {}
            }
            Ok(())
        }
        .boxed()
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        async move {
            let Some(notify) = self.notify.upgrade() else {
                return Err(broken(false));
            };
            self.fakes.with(&self.host, |server| {
                server.log.push(format!("SUNSUBSCRIBE {}", String::from_utf8_lossy(channel)));
            });
            drop(notify.send(Notice::Left { channel: Bytes::copy_from_slice(channel) }));
            Ok(())
        }
        .boxed()
    }
}

async fn unread(wait: Duration, turns_of_others: usize, reply: Reply) -> Reply {
    let reader = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        for _ in 0..turns_of_others {
            tokio::task::yield_now().await;
        }
        reply
    });
    reader.await.unwrap_or(Reply::Nil)
}

fn broken(maybe_sent: bool) -> NodeError {
    NodeError { maybe_sent, ..NodeError::unsent("connection reset") }
}
