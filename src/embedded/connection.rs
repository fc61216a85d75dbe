//! Implements the seam: connections to the servers of an engine.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::cluster::Kind;
use super::engine::Shared;
use super::lock;
use super::script_host::ScriptHost;
use super::server::Health;
use super::session::Session;
use super::world::World;
use crate::health::ClientHealth;
use crate::node::{
    Address, Answering, Command, Connector, Node, NodeError, NodeFuture, Notice, Reply,
    Subscription,
};

/// Opens connections to the servers of one engine.
#[derive(Debug)]
pub(super) struct EmbeddedConnector(pub(super) Arc<Shared>, pub(super) ClientHealth);

/// What arrived at a paused server, in order. The server serves it after it resumes, whether or not
/// the client still waits.
#[derive(Debug)]
pub(super) enum Queued {
    Commands { commands: Vec<Command>, session: Arc<Session>, replies: oneshot::Sender<Vec<Reply>> },
    Join { connection: u64, channel: Bytes, asking: bool },
    Leave { connection: u64, channel: Bytes },
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
struct Link {
    server: usize,
    generation: u64,
}

#[derive(Clone, Debug)]
struct EmbeddedNode {
    shared: Arc<Shared>,
    link: Link,
    session: Arc<Session>,
}

#[derive(Debug)]
struct EmbeddedSubscription {
    shared: Arc<Shared>,
    link: Link,
    connection: u64,
}

impl Connector for EmbeddedConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Arc<dyn Node>> {
        Box::pin(async move {
            let link = Link::open(&lock(&self.0.world), address)?;
            let node = EmbeddedNode { shared: self.0.clone(), link, session: Arc::default() };
            Ok(Arc::new(node) as Arc<dyn Node>)
        })
    }

    fn health(&self) -> ClientHealth {
        self.1.clone()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
    ) -> NodeFuture<'a, (Arc<dyn Subscription>, mpsc::UnboundedReceiver<Notice>)> {
        Box::pin(async move {
            let mut world = lock(&self.0.world);
            let link = Link::open(&world, address)?;
            let (notices, receiver) = mpsc::unbounded_channel();
            world.next_connection += 1;
            let connection = world.next_connection;
            world.servers[link.server].subscribers.connect(connection, notices);
            let subscription = EmbeddedSubscription { shared: self.0.clone(), link, connection };
            Ok((Arc::new(subscription) as Arc<dyn Subscription>, receiver))
        })
    }
}

impl Link {
    fn open(world: &World, address: &Address) -> Result<Link, NodeError> {
        let server =
            world.find(address).ok_or_else(|| NodeError::unsent("no server has this address"))?;
        match world.servers[server].health {
            Health::Up | Health::Paused => {
                Ok(Link { server, generation: world.servers[server].generation })
            }
            Health::Down => Err(NodeError::unsent("connection refused")),
        }
    }

    fn is_open(&self, world: &World) -> bool {
        world.servers[self.server].generation == self.generation
    }
}

impl EmbeddedNode {
    async fn send(&self, commands: &[Command]) -> Result<Vec<Reply>, NodeError> {
        let waiting = {
            let mut host = lock(&self.shared.host);
            let mut world = lock(&self.shared.world);
            if !self.link.is_open(&world) {
                return Err(NodeError::unsent("the connection is broken"));
            }
            let server = &mut world.servers[self.link.server];
            if server.health != Health::Paused {
                drop(world);
                let serve = |command| {
                    self.shared.serve(&mut host, self.link.server, &self.session, command)
                };
                return Ok(commands.iter().map(serve).collect());
            }
            let (replies, waiting) = oneshot::channel();
            server.queue.push_back(Queued::Commands {
                commands: commands.to_vec(),
                session: self.session.clone(),
                replies,
            });
            waiting
        };
        waiting.await.map_err(|_| NodeError {
            maybe_sent: true,
            ..NodeError::unsent("the connection broke before the answer")
        })
    }
}

impl Node for EmbeddedNode {
    fn call(&self, command: Command) -> Answering<Reply> {
        let node = self.clone();
        Answering::Future(Box::pin(async move {
            let mut replies = node.send(&[command]).await?;
            replies.pop().ok_or_else(|| NodeError::unsent("nothing was sent"))
        }))
    }

    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        Answering::Future(Box::pin(async move { node.send(&commands).await }))
    }

    fn is_usable(&self) -> bool {
        self.link.is_open(&lock(&self.shared.world))
    }
}

impl EmbeddedSubscription {
    fn send(&self, queued: Queued) -> Result<(), NodeError> {
        let mut world = lock(&self.shared.world);
        let server = self.link.server;
        if !self.link.is_open(&world)
            || !world.servers[server].subscribers.is_connected(self.connection)
        {
            return Err(NodeError::unsent("the connection is broken"));
        }
        match world.servers[server].health {
            Health::Paused => world.servers[server].queue.push_back(queued),
            Health::Up | Health::Down => world.subscribe(server, queued),
        }
        Ok(())
    }
}

impl Subscription for EmbeddedSubscription {
    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        let node =
            EmbeddedNode { shared: self.shared.clone(), link: self.link, session: Arc::default() };
        Box::pin(node.call(command.clone()))
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
        Box::pin(async move {
            self.send(Queued::Join {
                connection: self.connection,
                channel: Bytes::copy_from_slice(channel),
                asking,
            })
        })
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        Box::pin(async move {
            self.send(Queued::Leave {
                connection: self.connection,
                channel: Bytes::copy_from_slice(channel),
            })
        })
    }
}

impl Drop for EmbeddedSubscription {
    fn drop(&mut self) {
        let mut world = lock(&self.shared.world);
        world.servers[self.link.server].subscribers.disconnect(self.connection);
    }
}

impl Shared {
    /// Serves what arrived at a server while it was paused.
    pub(super) fn serve_queue(&self, host: &mut ScriptHost, server: usize) {
        let queue = std::mem::take(&mut lock(&self.world).servers[server].queue);
        for queued in queue {
            match queued {
                Queued::Commands { commands, session, replies } => {
                    let answers =
                        commands.iter().map(|command| self.serve(host, server, &session, command));
                    let _ = replies.send(answers.collect()); // the client may have given up
                }
                other => lock(&self.world).subscribe(server, other),
            }
        }
    }
}

impl World {
    /// Serves what arrived over a connection of subscriptions.
    fn subscribe(&mut self, server: usize, queued: Queued) {
        match queued {
            Queued::Commands { .. } => {}
            Queued::Join { connection, channel, asking } => {
                let routed = match self.is_cluster {
                    true => self.servers[server].route(&[&channel], Kind::Channel, asking, None),
                    false => Ok(()),
                };
                let refusal = self.servers[server].refusal.clone();
                let refusal =
                    refusal.or_else(|| routed.err().map(|redirect| self.tell_client(redirect)));
                let subscribers = &mut self.servers[server].subscribers;
                match refusal {
                    None => subscribers.join(connection, channel),
                    Some(failure) => subscribers.refuse(connection, channel, failure.into()),
                }
            }
            Queued::Leave { connection, channel } => {
                self.servers[server].subscribers.leave(connection, channel)
            }
        }
    }
}
