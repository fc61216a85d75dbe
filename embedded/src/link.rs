//! Connections to the servers of an engine.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rwlease_core::resp::{Address, Command, PubSubEvent, RespValue};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::{EmbeddedCluster, EmbeddedState};
use crate::cluster_state::ClusterWorld;
use crate::locks::lock;
use crate::lua_host::LuaHost;
use crate::routing::KeyKind;
use crate::server::ProcessState;
use crate::session::Session;

/// A connection that was not made, or a command that got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// What failed.
    pub message: &'static str,
    /// The command may have reached the server.
    pub maybe_sent: bool,
}

impl LinkError {
    fn not_sent(message: &'static str) -> LinkError {
        LinkError { message, maybe_sent: false }
    }

    fn closed() -> LinkError {
        LinkError::not_sent("the connection was closed")
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl std::error::Error for LinkError {}

/// A connection that carries commands. A clone is the same connection.
#[derive(Clone, Debug)]
pub struct CommandLink {
    shared: Arc<EmbeddedState>,
    end: LinkEnd,
    session: Arc<Session>,
}

/// A connection that carries subscriptions.
#[derive(Debug)]
pub struct PubSubLink {
    shared: Arc<EmbeddedState>,
    end: LinkEnd,
    connection: u64,
}

/// The server at the other end of a connection.
#[derive(Clone, Copy, Debug)]
struct LinkEnd {
    server: usize,
    generation: u64,
}

/// What arrived at a paused server, in order. The server serves it after it resumes, whether or not
/// the client still waits.
#[derive(Debug)]
pub(crate) enum PausedInput {
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

#[doc(hidden)]
impl EmbeddedCluster {
    /// Opens a connection that carries commands.
    pub fn connect(&self, address: &Address) -> Result<CommandLink, LinkError> {
        let end = LinkEnd::open(&lock(&self.shared.world), address)?;
        Ok(CommandLink { shared: self.shared.clone(), end, session: Arc::default() })
    }

    /// Opens a connection that carries subscriptions. The receiver ends when the connection is
    /// gone.
    pub fn subscribe(
        &self,
        address: &Address,
    ) -> Result<(PubSubLink, mpsc::UnboundedReceiver<PubSubEvent>), LinkError> {
        let mut world = lock(&self.shared.world);
        let end = LinkEnd::open(&world, address)?;
        let (notices, receiver) = mpsc::unbounded_channel();
        world.next_connection += 1;
        let connection = world.next_connection;
        world.servers[end.server].subscribers.connect(connection, notices);
        Ok((PubSubLink { shared: self.shared.clone(), end, connection }, receiver))
    }
}

impl LinkEnd {
    fn open(world: &ClusterWorld, address: &Address) -> Result<LinkEnd, LinkError> {
        let server = world
            .find(address)
            .ok_or(LinkError::not_sent("no embedded server has this address"))?;
        match world.servers[server].health {
            ProcessState::Up | ProcessState::Paused => {
                Ok(LinkEnd { server, generation: world.servers[server].generation })
            }
            ProcessState::Down => Err(LinkError::not_sent("connection refused")),
        }
    }

    fn is_open(&self, world: &ClusterWorld) -> bool {
        world.servers[self.server].generation == self.generation
    }
}

impl CommandLink {
    /// Sends the commands at the first poll, and returns one reply for each, in order. If the
    /// future is dropped, what was sent stays sent.
    pub async fn send(&self, commands: &[Command]) -> Result<Vec<RespValue>, LinkError> {
        let waiting = {
            let mut host = lock(&self.shared.host);
            let mut world = lock(&self.shared.world);
            if !self.end.is_open(&world) {
                return Err(LinkError::closed());
            }
            let server = &mut world.servers[self.end.server];
            if server.health != ProcessState::Paused {
                drop(world);
                let serve =
                    |command| self.shared.serve(&mut host, self.end.server, &self.session, command);
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
        waiting.await.map_err(|_| LinkError {
            message: "the connection was closed before the reply",
            maybe_sent: true,
        })
    }

    /// False once the connection is broken.
    pub fn is_open(&self) -> bool {
        self.end.is_open(&lock(&self.shared.world))
    }
}

impl PubSubLink {
    /// Sends one command, as over a connection of its own.
    pub async fn query(&self, command: &Command) -> Result<RespValue, LinkError> {
        let (shared, session) = (self.shared.clone(), Arc::default());
        let link = CommandLink { shared, end: self.end, session };
        let mut replies = link.send(std::slice::from_ref(command)).await?;
        replies.pop().ok_or(LinkError::not_sent("unexpected replies: none to a command"))
    }

    /// Sends `SSUBSCRIBE channel`, after `ASKING` if `asking` is set. The answer is an event.
    pub fn subscribe(&self, channel: &[u8], asking: bool) -> Result<(), LinkError> {
        self.send(PausedInput::Subscribe {
            connection: self.connection,
            channel: Bytes::copy_from_slice(channel),
            asking,
        })
    }

    /// Sends `SUNSUBSCRIBE channel`.
    pub fn unsubscribe(&self, channel: &[u8]) -> Result<(), LinkError> {
        self.send(PausedInput::Unsubscribe {
            connection: self.connection,
            channel: Bytes::copy_from_slice(channel),
        })
    }

    fn send(&self, queued: PausedInput) -> Result<(), LinkError> {
        let mut world = lock(&self.shared.world);
        let server = self.end.server;
        if !self.end.is_open(&world)
            || !world.servers[server].subscribers.is_connected(self.connection)
        {
            return Err(LinkError::closed());
        }
        match world.servers[server].health {
            ProcessState::Paused => world.servers[server].paused_input.push_back(queued),
            ProcessState::Up | ProcessState::Down => world.subscribe(server, queued),
        }
        Ok(())
    }
}

impl Drop for PubSubLink {
    fn drop(&mut self) {
        let mut world = lock(&self.shared.world);
        world.servers[self.end.server].subscribers.disconnect(self.connection);
    }
}

impl EmbeddedState {
    /// Serves what arrived at a server while it was paused.
    pub(crate) fn serve_paused_input(&self, host: &mut LuaHost, server: usize) {
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
