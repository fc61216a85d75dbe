//! Implements the seam: connections to the servers of an engine.

use std::sync::Arc;

use bytes::Bytes;
use rwlease_core::resp::{Address, Command, RespValue};
use tokio::sync::{mpsc, oneshot};

use super::cluster::EmbeddedState;
use super::cluster_state::ClusterWorld;
use super::lua_host::LuaHost;
use super::routing::KeyKind;
use super::server::ProcessState;
use super::session::Session;
use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    PubSubConnection, ResponseFuture,
};
use crate::health::ClientHealth;
use crate::locks::lock;

/// Opens connections to the servers of one engine.
pub(super) struct EmbeddedConnector(pub(super) Arc<EmbeddedState>, pub(super) ClientHealth);

/// What arrived at a paused server, in order. The server serves it after it resumes, whether or not
/// the client still waits.
#[derive(Debug)]
pub(super) enum PausedInput {
    Commands {
        commands: Vec<Command>,
        session: Arc<Session>,
        replies: oneshot::Sender<Vec<RespValue>>,
    },
    Subscribe {
        connection: u64,
        channel: Bytes,
        asking: bool,
    },
    Unsubscribe {
        connection: u64,
        channel: Bytes,
    },
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
struct EmbeddedLink {
    server: usize,
    generation: u64,
}

#[derive(Clone, Debug)]
struct EmbeddedCommands {
    shared: Arc<EmbeddedState>,
    link: EmbeddedLink,
    session: Arc<Session>,
}

#[derive(Debug)]
struct EmbeddedPubSub {
    shared: Arc<EmbeddedState>,
    link: EmbeddedLink,
    connection: u64,
}

impl Connector for EmbeddedConnector {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        Box::pin(async move {
            let link = EmbeddedLink::open(&lock(&self.0.world), address)?;
            let node = EmbeddedCommands { shared: self.0.clone(), link, session: Arc::default() };
            Ok(Arc::new(node) as Arc<dyn CommandConnection>)
        })
    }

    fn health(&self) -> ClientHealth {
        self.1.clone()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        Box::pin(async move {
            let mut world = lock(&self.0.world);
            let link = EmbeddedLink::open(&world, address)?;
            let (notices, receiver) = mpsc::unbounded_channel();
            world.next_connection += 1;
            let connection = world.next_connection;
            world.servers[link.server].subscribers.connect(connection, notices);
            let subscription = EmbeddedPubSub { shared: self.0.clone(), link, connection };
            Ok((Arc::new(subscription) as Arc<dyn PubSubConnection>, receiver))
        })
    }
}

impl EmbeddedLink {
    fn open(world: &ClusterWorld, address: &Address) -> Result<EmbeddedLink, ConnectionError> {
        let server = world
            .find(address)
            .ok_or_else(|| ConnectionError::not_sent("no embedded server has this address"))?;
        match world.servers[server].health {
            ProcessState::Up | ProcessState::Paused => {
                Ok(EmbeddedLink { server, generation: world.servers[server].generation })
            }
            ProcessState::Down => Err(ConnectionError::not_sent("connection refused")),
        }
    }

    fn is_open(&self, world: &ClusterWorld) -> bool {
        world.servers[self.server].generation == self.generation
    }
}

impl EmbeddedCommands {
    async fn send(&self, commands: &[Command]) -> Result<Vec<RespValue>, ConnectionError> {
        let waiting = {
            let mut host = lock(&self.shared.host);
            let mut world = lock(&self.shared.world);
            if !self.link.is_open(&world) {
                return Err(ConnectionError::not_sent("the connection was closed"));
            }
            let server = &mut world.servers[self.link.server];
            if server.health != ProcessState::Paused {
                drop(world);
                let serve = |command| {
                    self.shared.serve(&mut host, self.link.server, &self.session, command)
                };
                return Ok(commands.iter().map(serve).collect());
            }
            let (replies, waiting) = oneshot::channel();
            server.paused_input.push_back(PausedInput::Commands {
                commands: commands.to_vec(),
                session: self.session.clone(),
                replies,
            });
            waiting
        };
        waiting.await.map_err(|_| ConnectionError {
            maybe_sent: true,
            ..ConnectionError::not_sent("the connection was closed before the reply")
        })
    }
}

impl CommandConnection for EmbeddedCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let node = self.clone();
        ResponseFuture::Boxed(Box::pin(async move {
            let mut replies = node.send(&[command]).await?;
            replies
                .pop()
                .ok_or_else(|| ConnectionError::not_sent("unexpected replies: none to a command"))
        }))
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        ResponseFuture::Boxed(Box::pin(async move { node.send(&commands).await }))
    }

    fn is_usable(&self) -> bool {
        self.link.is_open(&lock(&self.shared.world))
    }
}

impl EmbeddedPubSub {
    fn send(&self, queued: PausedInput) -> Result<(), ConnectionError> {
        let mut world = lock(&self.shared.world);
        let server = self.link.server;
        if !self.link.is_open(&world)
            || !world.servers[server].subscribers.is_connected(self.connection)
        {
            return Err(ConnectionError::not_sent("the connection was closed"));
        }
        match world.servers[server].health {
            ProcessState::Paused => world.servers[server].paused_input.push_back(queued),
            ProcessState::Up | ProcessState::Down => world.subscribe(server, queued),
        }
        Ok(())
    }
}

impl PubSubConnection for EmbeddedPubSub {
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        let node = EmbeddedCommands {
            shared: self.shared.clone(),
            link: self.link,
            session: Arc::default(),
        };
        Box::pin(node.call(command.clone()))
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        Box::pin(async move {
            self.send(PausedInput::Subscribe {
                connection: self.connection,
                channel: Bytes::copy_from_slice(channel),
                asking,
            })
        })
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        Box::pin(async move {
            self.send(PausedInput::Unsubscribe {
                connection: self.connection,
                channel: Bytes::copy_from_slice(channel),
            })
        })
    }
}

impl Drop for EmbeddedPubSub {
    fn drop(&mut self) {
        let mut world = lock(&self.shared.world);
        world.servers[self.link.server].subscribers.disconnect(self.connection);
    }
}

impl EmbeddedState {
    /// Serves what arrived at a server while it was paused.
    pub(super) fn serve_paused_input(&self, host: &mut LuaHost, server: usize) {
        let queue = std::mem::take(&mut lock(&self.world).servers[server].paused_input);
        for queued in queue {
            match queued {
                PausedInput::Commands { commands, session, replies } => {
                    let answers =
                        commands.iter().map(|command| self.serve(host, server, &session, command));
                    let _ = replies.send(answers.collect()); // the client may have given up
                }
                other => lock(&self.world).subscribe(server, other),
            }
        }
    }
}

impl ClusterWorld {
    /// Serves what arrived over a connection of subscriptions.
    fn subscribe(&mut self, server: usize, queued: PausedInput) {
        match queued {
            PausedInput::Commands { .. } => {}
            PausedInput::Subscribe { connection, channel, asking } => {
                let routed = match self.is_cluster {
                    true => self.servers[server].route(&[&channel], KeyKind::Channel, asking, None),
                    false => Ok(()),
                };
                let refusal = self.servers[server].refusal.clone();
                let refusal =
                    refusal.or_else(|| routed.err().map(|redirect| self.client_error(redirect)));
                let subscribers = &mut self.servers[server].subscribers;
                match refusal {
                    None => subscribers.subscribe(connection, channel),
                    Some(failure) => subscribers.refuse(connection, channel, failure.into()),
                }
            }
            PausedInput::Unsubscribe { connection, channel } => {
                self.servers[server].subscribers.unsubscribe(connection, channel)
            }
        }
    }
}
