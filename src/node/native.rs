//! Connections of this library's own: RESP3 over TCP or TLS. Commands that are ready together are
//! written together.
//!
//! A connection has two tasks. Callers put whole commands into the one buffer of a
//! [`Wire`](wire::Wire). The writer takes everything in it, and the reader gives each answer to its
//! caller. The connection knows how far a command got: one that was not passed to the kernel was
//! not sent.

mod decoder;
mod expected;
mod session;
mod subscription;
mod tasks;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use crate::health::ClientHealth;
use crate::node::answering::KeptConnection;
use crate::node::dialer::{Dialer, Stream, hide_password};
use crate::node::{
    Address, Answering, Command, Connector, Node, NodeError, NodeFuture, Reply, ReplyShape,
    ScriptCall, Subscribed, Subscription, resolved,
};
use expected::{Expected, Outcome};
use subscription::NativeSubscription;
use tasks::{Listener, Tasks};
use wire::Wire;

/// Opens connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct NativeConnector {
    pub(crate) dialer: Dialer,
}

impl Connector for NativeConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Arc<dyn Node>> {
        self.connect_to(address, None).boxed()
    }

    fn places<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        resolved(address).boxed()
    }

    fn connect_at<'a>(
        &'a self,
        address: &'a Address,
        place: &'a str,
    ) -> NodeFuture<'a, Arc<dyn Node>> {
        self.connect_to(address, place.parse().ok()).boxed()
    }

    fn subscribe<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Subscribed> {
        async move {
            let (notify, notices) = mpsc::unbounded_channel();
            let handler = Arc::new(OnceLock::new());
            let listener = Listener { notify, handler: handler.clone() };
            let (connection, _) = self.open(address, None, Some(listener)).await?;
            let subscription: Arc<dyn Subscription> =
                Arc::new(NativeSubscription::new(connection, self.dialer.channels, handler));
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

    fn renews_credentials(&self) -> bool {
        self.dialer.renews_credentials()
    }
}

impl NativeConnector {
    /// Opens a connection that carries commands, to the server at `place` if one is given.
    async fn connect_to(
        &self,
        address: &Address,
        place: Option<IpAddr>,
    ) -> Result<Arc<dyn Node>, NodeError> {
        let (connection, place) = self.open(address, place, None).await?;
        let place = place.to_string().into();
        Ok(Arc::new(NativeNode { connection: Arc::new(connection), place }))
    }

    async fn open(
        &self,
        address: &Address,
        place: Option<IpAddr>,
        listener: Option<Listener>,
    ) -> Result<(Connection, IpAddr), NodeError> {
        let credentials = self.dialer.credentials().await?;
        let (stream, place) = self.dialer.dial(address, place).await?;
        let connection = Connection::over(stream, listener, &self.dialer.health);
        let begun = session::begin(&connection, &self.dialer, credentials.as_ref()).await;
        begun.map_err(|failure| hide_password(failure, credentials.as_ref()))?;
        Ok((connection, place))
    }
}

/// A connection with its tasks. It is closed when it is dropped.
#[derive(Debug)]
struct Connection {
    wire: Arc<Wire>,
    _tasks: Tasks,
}

impl Connection {
    fn over(stream: Stream, listener: Option<Listener>, health: &ClientHealth) -> Connection {
        match stream {
            Stream::Tcp(stream) => Connection::over_halves(stream.into_split(), listener, health),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                Connection::over_halves(tokio::io::split(*stream), listener, health)
            }
        }
    }

    fn over_halves(
        (read, write): (
            impl AsyncRead + Send + Unpin + 'static,
            impl AsyncWrite + Send + Unpin + 'static,
        ),
        listener: Option<Listener>,
        health: &ClientHealth,
    ) -> Connection {
        let wire = Arc::new(Wire::new());
        let tasks = Tasks::start(&wire, read, write, listener, health);
        Connection { wire, _tasks: tasks }
    }

    /// Sends commands and waits for the replies.
    async fn exchange(&self, commands: &[Command]) -> Outcome {
        let (tell, told) = oneshot::channel();
        self.wire.put(commands, Expected::replies(commands.len(), tell))?;
        let outcome = told.await.map_err(|_| NodeError::gone_unanswered())?;
        self.out_of_step().map_or(outcome, Err)
    }

    /// Sends commands, each with an answer of its own.
    fn send_each(
        &self,
        commands: &[Command],
    ) -> Result<impl Iterator<Item = oneshot::Receiver<Result<Reply, NodeError>>>, NodeError> {
        let (tell, told): (Vec<_>, Vec<_>) = commands.iter().map(|_| oneshot::channel()).unzip();
        self.wire.put(commands, tell.into_iter().map(Expected::Reply))?;
        Ok(told.into_iter())
    }

    /// Sends one command of `words` words, which `write` adds.
    fn ask(
        self: &Arc<Self>,
        words: usize,
        write: impl FnOnce(&mut Vec<u8>),
        shape: ReplyShape,
    ) -> Answering<Reply> {
        let (tell, told) = oneshot::channel();
        match self.wire.put_one(words, write, shape, Expected::Reply(tell)) {
            Ok(()) => Answering::Told { told, kept: self.clone() },
            Err(failure) => ready(Err(failure)).boxed().into(),
        }
    }
}

impl KeptConnection for Connection {
    fn out_of_step(&self) -> Option<NodeError> {
        self.wire.out_of_step()
    }
}

/// A connection that carries commands.
struct NativeNode {
    /// Pending answers keep the connection, too.
    connection: Arc<Connection>,
    place: Arc<str>,
}

impl fmt::Debug for NativeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeNode").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}

impl Node for NativeNode {
    fn call(&self, command: Command) -> Answering<Reply> {
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(command.bytes());
        self.connection.ask(command.len(), write, command.shape())
    }

    fn call_script(&self, call: &ScriptCall<'_>) -> Answering<Reply> {
        self.connection.ask(call.len(), |bytes| call.write(bytes), ReplyShape::Script(call.shape))
    }

    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>> {
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

    fn place(&self) -> Option<Arc<str>> {
        Some(self.place.clone())
    }
}
