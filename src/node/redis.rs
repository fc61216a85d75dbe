//! Connections by the `redis` crate: one `MultiplexedConnection` to each server.

mod reply;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::health::ClientHealth;
use crate::node::coalesced::Coalesced;
use crate::node::dialer::{Channels, Dialer, Stream, hide_password};
use crate::node::handshake_error::{hello_refused, select_refused};
use crate::node::task::Task;
use crate::node::{
    Address, Answering, Command, Connector, Credentials, LIB_NAME, LIB_VERSION, MessageHandler,
    Node, NodeError, NodeFuture, Notice, Reply, ServerError, Subscribed, Subscription, resolved,
};
pub(crate) use reply::{connect_failure, reply_of};
use reply::{is_authentication, text_of};

/// Opens connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct RedisConnector {
    pub(crate) dialer: Dialer,
}

impl Connector for RedisConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Arc<dyn Node>> {
        self.connect_to(address, None)
    }

    fn places<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        resolved(address).boxed()
    }

    fn connect_at<'a>(
        &'a self,
        address: &'a Address,
        place: &'a str,
    ) -> NodeFuture<'a, Arc<dyn Node>> {
        self.connect_to(address, place.parse().ok())
    }

    fn subscribe<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Subscribed> {
        async move {
            let (notify, notices) = mpsc::unbounded_channel();
            // The connection's own task holds the only sender, so the receiver ends with the task.
            let weak = notify.downgrade();
            let handler = Arc::new(OnceLock::<MessageHandler>::new());
            let handled_by = handler.clone();
            let (connection, driver, _) = self
                .open(address, None, move |push| match (notice_of(push), handled_by.get()) {
                    (Some(Notice::Message { channel, payload }), Some(handler)) => {
                        handler(channel, payload)
                    }
                    (Some(notice), _) => drop(notify.send(notice)),
                    (None, _) => {}
                })
                .await?;
            let channels = self.dialer.channels;
            let notify = weak;
            let _driver = driver;
            let subscription: Arc<dyn Subscription> =
                Arc::new(RedisSubscription { connection, channels, notify, handler, _driver });
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

impl RedisConnector {
    /// Opens a connection that carries commands, to the server at `place` if one is given.
    fn connect_to<'a>(
        &'a self,
        address: &'a Address,
        place: Option<IpAddr>,
    ) -> NodeFuture<'a, Arc<dyn Node>> {
        async move {
            let broken = Arc::new(AtomicBool::new(false));
            let tell = broken.clone();
            let (connection, driver, place) = self
                .open(address, place, move |push| {
                    if push.kind == PushKind::Disconnection {
                        tell.store(true, Ordering::Relaxed);
                    }
                })
                .await?;
            let place = place.to_string().into();
            let node = RedisNode { connection, broken, place, _driver: Arc::new(driver) };
            Ok(Coalesced::over(Arc::new(node), &self.dialer.health))
        }
        .boxed()
    }

    /// The failure to begin the session.
    fn not_begun(&self, error: RedisError) -> NodeError {
        match error.code() {
            Some(code) => hello_refused(
                &ServerError::new(code, error.detail().unwrap_or_default()),
                self.renews_credentials(),
            ),
            None => {
                let passes = self.renews_credentials() && is_authentication(&error);
                let failure = connect_failure(error);
                NodeError { permanent: failure.permanent && !passes, ..failure }
            }
        }
    }

    /// Connects with RESP3, which separates a server's pushes from replies and reports when the
    /// connection is gone.
    async fn open(
        &self,
        address: &Address,
        place: Option<IpAddr>,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<(MultiplexedConnection, Task, IpAddr), NodeError> {
        let credentials = self.dialer.credentials().await?;
        let session = session(credentials.as_ref());
        let config = AsyncConnectionConfig::new()
            // The router sets the time limits.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push| -> Result<(), ()> {
                on_push(push);
                Ok(())
            });
        let (stream, place) = self.dialer.dial(address, place).await?;
        let begun = match stream {
            Stream::Tcp(stream) => self.begin(stream, &session, config).await,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => self.begin(stream, &session, config).await,
        };
        let (connection, driver) =
            begun.map_err(|failure| hide_password(failure, credentials.as_ref()))?;
        Ok((connection, driver, place))
    }

    /// The crate would select the database by itself, but it drops the code of a refusal.
    async fn select_database(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), NodeError> {
        if self.dialer.database == 0 {
            return Ok(());
        }
        let mut command = Cmd::new();
        command.arg("SELECT").arg(self.dialer.database);
        let selected = connection.send_packed_command(&command).await;
        let refused = |error: RedisError| match error.code() {
            Some(code) => {
                let said = ServerError::new(code, error.detail().unwrap_or_default());
                select_refused(&said, self.dialer.database)
            }
            None => connect_failure(error),
        };
        selected.and_then(Value::extract_error).map(drop).map_err(refused)
    }

    /// Names the client. The server may refuse it: the name is only informative.
    async fn name(&self, connection: &mut MultiplexedConnection) -> Result<(), NodeError> {
        let Some(name) = &self.dialer.client_name else {
            return Ok(());
        };
        let mut command = Cmd::new();
        command.arg("CLIENT").arg("SETNAME").arg(name);
        connection.send_packed_command(&command).await.map(drop).map_err(connect_failure)
    }

    /// Starts the session on a new connection.
    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        session: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Task), NodeError> {
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(session, stream, config)
                .await
                .map_err(|error| self.not_begun(error))?;
        // Without this, the driver would wait for outstanding answers, which a frozen server never
        // sends.
        let driver = Task::spawn(&self.dialer.health, "connection of `redis`", driver);
        self.select_database(&mut connection).await?;
        self.name(&mut connection).await?;
        Ok((connection, driver))
    }
}

/// The credentials of this client, and its protocol version.
fn session(credentials: Option<&Credentials>) -> RedisConnectionInfo {
    let session = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name(LIB_NAME, LIB_VERSION);
    match credentials.map(Credentials::parts) {
        None => session,
        Some((None, password)) => session.set_password(password),
        Some((Some(username), password)) => session.set_password(password).set_username(username),
    }
}

/// A connection that carries commands.
#[derive(Clone)]
struct RedisNode {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
    place: Arc<str>,
    /// Pending answers keep the task, too.
    _driver: Arc<Task>,
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}

impl Node for RedisNode {
    fn call(&self, command: Command) -> Answering<Reply> {
        let (mut node, command) = (self.clone(), packed(&command));
        async move {
            node.check()?;
            let outcome = node.connection.send_packed_command(&command).await;
            outcome.map(reply_of).map_err(|error| node.failed(error))
        }
        .boxed()
        .into()
    }

    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>> {
        let (mut node, count, pipeline) = (self.clone(), commands.len(), pipeline(commands));
        async move {
            node.check()?;
            let outcome = node.connection.send_packed_commands(&pipeline, 0, count).await;
            outcome
                .map(|values| values.into_iter().map(reply_of).collect())
                .map_err(|error| node.failed(error))
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    fn place(&self) -> Option<Arc<str>> {
        Some(self.place.clone())
    }
}

impl RedisNode {
    fn check(&self) -> Result<(), NodeError> {
        if self.is_usable() { Ok(()) } else { Err(NodeError::gone()) }
    }

    /// A failure after the command was handed over. It is unknown how far the command got.
    fn failed(&self, error: RedisError) -> NodeError {
        if error.is_unrecoverable_error() {
            self.broken.store(true, Ordering::Relaxed);
        }
        NodeError { maybe_sent: true, ..connect_failure(error) }
    }
}

/// A connection that carries subscriptions.
struct RedisSubscription {
    connection: MultiplexedConnection,
    channels: Channels,
    notify: mpsc::WeakUnboundedSender<Notice>,
    handler: Arc<OnceLock<MessageHandler>>,
    _driver: Task,
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisSubscription")
    }
}

impl Subscription for RedisSubscription {
    fn set_handler(&self, handler: MessageHandler) {
        let _ = self.handler.set(handler); // the first one stays
    }

    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        async move {
            let outcome = self.connection.clone().send_packed_command(&packed(command)).await;
            outcome
                .map(reply_of)
                .map_err(|error| NodeError { maybe_sent: true, ..connect_failure(error) })
        }
        .boxed()
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
        async move {
            let asking = asking.then(Command::asking);
            let join = self.channels.join(channel);
            let commands: Vec<Command> = asking.into_iter().chain([join]).collect();
            // Only a push reports success. A reply here may belong to another command: the crate
            // takes an unrequested `sunsubscribe` for one. But an error is never pushed.
            let outcome = self
                .connection
                .clone()
                .send_packed_commands(&pipeline(&commands), 0, commands.len())
                .await;
            let replies = outcome
                .map_err(|error| NodeError { maybe_sent: true, ..connect_failure(error) })?;
            let refused = replies.into_iter().map(reply_of).find_map(|reply| match reply {
                Reply::Error(error) => Some(error),
                _ => None,
            });
            if let Some((error, notify)) = refused.zip(self.notify.upgrade()) {
                let _ = notify
                    .send(Notice::Refused { channel: Bytes::copy_from_slice(channel), error });
            }
            Ok(())
        }
        .boxed()
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        async move {
            let command = self.channels.leave(channel);
            let outcome = self.connection.clone().send_packed_command(&packed(&command)).await;
            let reply = outcome
                .map_err(|error| NodeError { maybe_sent: true, ..connect_failure(error) })?;
            // A push reports success. A server that does not serve the slot answers by an error.
            if let (Reply::Error(_), Some(notify)) = (reply_of(reply), self.notify.upgrade()) {
                let _ = notify.send(Notice::Left { channel: Bytes::copy_from_slice(channel) });
            }
            Ok(())
        }
        .boxed()
    }
}

/// The notice in a push on a subscription's connection.
fn notice_of(push: PushInfo) -> Option<Notice> {
    let PushInfo { kind, data } = push;
    let mut data = data.into_iter();
    let channel = text_of(data.next()?)?;
    match kind {
        PushKind::SSubscribe | PushKind::Subscribe => Some(Notice::Joined { channel }),
        PushKind::SUnsubscribe | PushKind::Unsubscribe => Some(Notice::Left { channel }),
        PushKind::SMessage | PushKind::Message => {
            Some(Notice::Message { channel, payload: text_of(data.next()?)? })
        }
        _ => None,
    }
}

fn pipeline(commands: &[Command]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(packed(command));
    }
    pipeline
}

pub(crate) fn packed(command: &Command) -> Cmd {
    // A few bytes more than its words have.
    let mut packed = Cmd::with_capacity(command.len(), command.bytes().len());
    for word in command.iter() {
        packed.arg(word);
    }
    packed
}
