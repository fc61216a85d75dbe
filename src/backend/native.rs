//! Connections of this library's own: RESP3 over TCP or TLS. Commands that are ready together are
//! written together.
//!
//! A connection has two tasks. Callers put whole commands into the one buffer of a
//! [`WriteQueue`]. The writer takes everything in it, and the reader gives each answer to its
//! caller. The connection knows how far a command got: one that was not passed to the kernel was
//! not sent.

pub(crate) mod decoder;
mod handshake;
pub(crate) mod pending_replies;
mod pubsub;
mod tasks;
#[cfg(test)]
mod tests;
mod write_queue;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use rwlease_core::resp::{Address, Command, EncodedScriptCall, ReplyShape, RespValue};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use crate::backend::dialer::{Dialer, RawStream, hide_password};
use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    PubSubConnection, ResponseFuture,
};
use crate::health::ClientHealth;
use pending_replies::{PendingReply, PipelineOutcome};
use pubsub::NativePubSub;
use tasks::{ConnectionTasks, PubSubSink};
use write_queue::WriteQueue;

/// Opens connections.
#[derive(Clone, Default)]
pub(crate) struct NativeConnector {
    pub(crate) dialer: Dialer,
}

impl Connector for NativeConnector {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        async move {
            let (connection, place) = self.open(address, place, None).await?;
            let place = place.to_string().into();
            Ok(Arc::new(NativeCommands { connection: Arc::new(connection), place })
                as Arc<dyn CommandConnection>)
        }
        .boxed()
    }

    fn resolve<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        self.dialer.resolver.places(address).boxed()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        async move {
            let (notify, notices) = mpsc::unbounded_channel();
            let handler = Arc::new(OnceLock::new());
            let listener = PubSubSink { events: notify, handler: handler.clone() };
            let (connection, _) = self.open(address, place, Some(listener)).await?;
            let subscription: Arc<dyn PubSubConnection> =
                Arc::new(NativePubSub::new(connection, self.dialer.channels, handler));
            Ok((subscription, notices))
        }
        .boxed()
    }

    fn health(&self) -> ClientHealth {
        self.dialer.health.clone()
    }

    fn uses_tls(&self) -> bool {
        self.dialer.tls.is_some()
    }

    fn rotates_credentials(&self) -> bool {
        self.dialer.rotates_credentials()
    }
}

impl NativeConnector {
    async fn open(
        &self,
        address: &Address,
        place: Option<&str>,
        listener: Option<PubSubSink>,
    ) -> Result<(NativeConnection, IpAddr), ConnectionError> {
        let credentials = self.dialer.credentials().await?;
        let (credentials, listener) = (credentials.as_ref(), &listener);
        let begin = |stream| async move {
            let health = &self.dialer.health;
            let connection = NativeConnection::from_stream(stream, listener.clone(), health);
            handshake::handshake(&connection, &self.dialer, credentials).await?;
            Ok(connection)
        };
        let opened = self.dialer.dial(address, place, begin).await;
        opened.map_err(|failure| hide_password(failure, credentials))
    }
}

/// A connection with its tasks. It is closed when it is dropped.
#[derive(Debug)]
pub struct NativeConnection {
    wire: Arc<WriteQueue>,
    _tasks: ConnectionTasks,
}

impl NativeConnection {
    fn from_stream(
        stream: RawStream,
        listener: Option<PubSubSink>,
        health: &ClientHealth,
    ) -> NativeConnection {
        match stream {
            RawStream::Tcp(stream) => {
                NativeConnection::over_halves(stream.into_split(), listener, health)
            }
            #[cfg(feature = "tls")]
            RawStream::Tls(stream) => {
                NativeConnection::over_halves(tokio::io::split(*stream), listener, health)
            }
        }
    }

    fn over_halves(
        (read, write): (
            impl AsyncRead + Send + Unpin + 'static,
            impl AsyncWrite + Send + Unpin + 'static,
        ),
        listener: Option<PubSubSink>,
        health: &ClientHealth,
    ) -> NativeConnection {
        let wire = Arc::new(WriteQueue::new());
        let tasks = ConnectionTasks::start(&wire, read, write, listener, health);
        NativeConnection { wire, _tasks: tasks }
    }

    pub(super) fn out_of_step(&self) -> Option<ConnectionError> {
        self.wire.out_of_step()
    }

    /// Sends commands and waits for the replies.
    async fn exchange(&self, commands: &[Command]) -> PipelineOutcome {
        let (reply_tx, reply_rx) = oneshot::channel();
        self.wire.push_all(commands, PendingReply::replies(commands.len(), reply_tx))?;
        let outcome = reply_rx.await.map_err(|_| ConnectionError::closed_in_flight())?;
        self.out_of_step().map_or(outcome, Err)
    }

    /// Sends commands, each with an answer of its own.
    fn send_each(
        &self,
        commands: &[Command],
    ) -> Result<
        impl Iterator<Item = oneshot::Receiver<Result<RespValue, ConnectionError>>>,
        ConnectionError,
    > {
        let (reply_tx, reply_rx): (Vec<_>, Vec<_>) =
            commands.iter().map(|_| oneshot::channel()).unzip();
        self.wire.push_all(commands, reply_tx.into_iter().map(PendingReply::Reply))?;
        Ok(reply_rx.into_iter())
    }

    /// Sends one command of `words` words, which `write` adds.
    fn send_one(
        self: &Arc<Self>,
        words: usize,
        write: impl FnOnce(&mut Vec<u8>),
        shape: ReplyShape,
    ) -> ResponseFuture<RespValue> {
        let (reply_tx, reply_rx) = oneshot::channel();
        match self.wire.push(words, write, shape, PendingReply::Reply(reply_tx)) {
            Ok(()) => ResponseFuture::Channel { reply_rx, connection: self.clone() },
            Err(failure) => ready(Err(failure)).boxed().into(),
        }
    }
}

/// A connection that carries commands.
struct NativeCommands {
    /// Pending answers keep the connection, too.
    connection: Arc<NativeConnection>,
    place: Arc<str>,
}

impl CommandConnection for NativeCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(command.bytes());
        self.connection.send_one(command.word_count(), write, command.shape())
    }

    fn call_script(&self, call: &EncodedScriptCall<'_>) -> ResponseFuture<RespValue> {
        self.connection.send_one(
            call.word_count(),
            |bytes| call.write(bytes),
            ReplyShape::Script(call.shape),
        )
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (connection, commands) = (self.connection.clone(), commands.to_vec());
        async move {
            match commands.is_empty() {
                true => Ok(Vec::new()),
                false => connection.exchange(&commands).await,
            }
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        self.connection.wire.is_usable()
    }

    fn resolved_addr(&self) -> Option<Arc<str>> {
        Some(self.place.clone())
    }
}
