//! Connections by the `redis` crate: one `MultiplexedConnection` to each server.

mod reply;

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
use rwlease_core::resp::{Address, Command, RespValue, ServerError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::backend::dialer::{Dialer, PubSubKind, RawStream, hide_password};
use crate::backend::handshake_error::{hello_refused, select_refused};
use crate::backend::pipelining::PipeliningConnection;
use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, Credentials, LIB_NAME,
    LIB_VERSION, MessageHandler, OpenedCommands, OpenedPubSub, PubSubConnection, PubSubEvent,
    ResponseFuture,
};
use crate::health::ClientHealth;
pub(crate) use reply::{connect_error, from_value};
use reply::{is_login_rejected, text_in};

/// Opens connections.
#[derive(Clone, Default)]
pub(crate) struct RedisConnector {
    pub(crate) dialer: Dialer,
}

/// Takes the pushes of one connection.
type PushHandler = Box<dyn Fn(PushInfo) + Send + Sync>;

/// A connection on which the session has begun.
struct RedisSession<T> {
    connection: MultiplexedConnection,
    driver: AbortOnDropHandle<()>,
    /// What takes from its `PushHandler`.
    pushes: T,
}

impl Connector for RedisConnector {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        let pushes = || {
            let broken = Arc::new(AtomicBool::new(false));
            let tell = broken.clone();
            let on_push = move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    tell.store(true, Ordering::Relaxed);
                }
            };
            (Box::new(on_push) as PushHandler, broken)
        };
        async move {
            let (session, place) = self.open(address, place, pushes).await?;
            let RedisSession { connection, driver, pushes: broken } = session;
            let place = place.to_string().into();
            let node = RedisCommands { connection, broken, place, _driver: Arc::new(driver) };
            Ok(PipeliningConnection::wrap(Arc::new(node), &self.dialer.health))
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
        let pushes = || {
            let (notify, notices) = mpsc::unbounded_channel();
            // The connection's own task holds the only sender, so the receiver ends with the task.
            let weak = notify.downgrade();
            let handler = Arc::new(OnceLock::<MessageHandler>::new());
            let handled_by = handler.clone();
            let on_push = move |push| match (event_of(push), handled_by.get()) {
                (Some(PubSubEvent::Message { channel, payload }), Some(handler)) => {
                    handler(channel, payload)
                }
                (Some(notice), _) => drop(notify.send(notice)),
                (None, _) => {}
            };
            (Box::new(on_push) as PushHandler, (notices, weak, handler))
        };
        async move {
            let (session, _) = self.open(address, place, pushes).await?;
            let RedisSession { connection, driver: _driver, pushes } = session;
            let (notices, notify, handler) = pushes;
            let channels = self.dialer.channels;
            let subscription: Arc<dyn PubSubConnection> =
                Arc::new(RedisPubSub { connection, channels, notify, handler, _driver });
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

impl RedisConnector {
    /// The failure to begin the session.
    fn not_begun(&self, error: RedisError) -> ConnectionError {
        match error.code() {
            Some(code) => hello_refused(
                &ServerError::new(code, error.detail().unwrap_or_default()),
                self.rotates_credentials(),
            ),
            None => {
                let passes = self.rotates_credentials() && is_login_rejected(&error);
                let failure = connect_error(error);
                ConnectionError { is_permanent: failure.is_permanent && !passes, ..failure }
            }
        }
    }

    /// Connects with RESP3, which separates a server's pushes from replies and reports when the
    /// connection is gone. `pushes` makes what takes the pushes of each connection that is tried.
    async fn open<T: Send>(
        &self,
        address: &Address,
        place: Option<&str>,
        pushes: impl Fn() -> (PushHandler, T) + Sync,
    ) -> Result<(RedisSession<T>, IpAddr), ConnectionError> {
        let credentials = self.dialer.credentials().await?;
        let session = session(credentials.as_ref());
        let (session, pushes) = (&session, &pushes);
        let begin = |stream| async move {
            let (on_push, pushes) = pushes();
            let config = AsyncConnectionConfig::new()
                // The router sets the time limits.
                .set_connection_timeout(None)
                .set_response_timeout(None)
                .set_push_sender(move |push| -> Result<(), ()> {
                    on_push(push);
                    Ok(())
                });
            let (connection, driver) = match stream {
                RawStream::Tcp(stream) => self.start_session(stream, session, config).await?,
                #[cfg(feature = "tls")]
                RawStream::Tls(stream) => self.start_session(stream, session, config).await?,
            };
            Ok(RedisSession { connection, driver, pushes })
        };
        let opened = self.dialer.dial(address, place, begin).await;
        opened.map_err(|failure| hide_password(failure, credentials.as_ref()))
    }

    /// The crate would select the database by itself, but it drops the code of a refusal.
    async fn select_database(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), ConnectionError> {
        if self.dialer.database == 0 {
            return Ok(());
        }
        let mut command = Cmd::new();
        command.arg("SELECT").arg(self.dialer.database);
        let selected = connection.send_packed_command(&command).await;
        let refused = |error: RedisError| match error.code() {
            Some(code) => {
                let server_error = ServerError::new(code, error.detail().unwrap_or_default());
                select_refused(&server_error, self.dialer.database)
            }
            None => connect_error(error),
        };
        selected.and_then(Value::extract_error).map(drop).map_err(refused)
    }

    /// Names the client. The server may refuse it: the name is only informative.
    async fn set_client_name(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), ConnectionError> {
        let Some(name) = &self.dialer.client_name else {
            return Ok(());
        };
        let mut command = Cmd::new();
        command.arg("CLIENT").arg("SETNAME").arg(name);
        connection.send_packed_command(&command).await.map(drop).map_err(connect_error)
    }

    async fn start_session(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        session: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, AbortOnDropHandle<()>), ConnectionError> {
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(session, stream, config)
                .await
                .map_err(|error| self.not_begun(error))?;
        // Without this, the driver would wait for outstanding answers, which a frozen server never
        // sends.
        let driver = self.dialer.health.spawn("connection of `redis`", driver);
        self.select_database(&mut connection).await?;
        self.set_client_name(&mut connection).await?;
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
struct RedisCommands {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
    place: Arc<str>,
    /// Pending answers keep the task, too.
    _driver: Arc<AbortOnDropHandle<()>>,
}

impl CommandConnection for RedisCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let (mut node, command) = (self.clone(), to_cmd(&command));
        async move {
            node.check()?;
            let outcome = node.connection.send_packed_command(&command).await;
            outcome.map(from_value).map_err(|error| node.command_error(error))
        }
        .boxed()
        .into()
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (mut node, count, pipeline) = (self.clone(), commands.len(), pipeline(commands));
        async move {
            node.check()?;
            let outcome = node.connection.send_packed_commands(&pipeline, 0, count).await;
            outcome
                .map(|values| values.into_iter().map(from_value).collect())
                .map_err(|error| node.command_error(error))
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    fn resolved_addr(&self) -> Option<Arc<str>> {
        Some(self.place.clone())
    }
}

impl RedisCommands {
    fn check(&self) -> Result<(), ConnectionError> {
        if self.is_usable() { Ok(()) } else { Err(ConnectionError::closed()) }
    }

    /// A failure after the command was handed over. It is unknown how far the command got.
    fn command_error(&self, error: RedisError) -> ConnectionError {
        if error.is_unrecoverable_error() {
            self.broken.store(true, Ordering::Relaxed);
        }
        ConnectionError { maybe_sent: true, ..connect_error(error) }
    }
}

/// A connection that carries subscriptions.
struct RedisPubSub {
    connection: MultiplexedConnection,
    channels: PubSubKind,
    notify: mpsc::WeakUnboundedSender<PubSubEvent>,
    handler: Arc<OnceLock<MessageHandler>>,
    _driver: AbortOnDropHandle<()>,
}

impl PubSubConnection for RedisPubSub {
    fn set_handler(&self, handler: MessageHandler) {
        let _ = self.handler.set(handler); // the first one stays
    }

    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        async move {
            let outcome = self.connection.clone().send_packed_command(&to_cmd(command)).await;
            outcome
                .map(from_value)
                .map_err(|error| ConnectionError { maybe_sent: true, ..connect_error(error) })
        }
        .boxed()
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        async move {
            let asking = asking.then(Command::asking);
            let join = self.channels.subscribe_command(channel);
            let commands: Vec<Command> = asking.into_iter().chain([join]).collect();
            // Only a push reports success. A reply here may belong to another command: the crate
            // takes an unrequested `sunsubscribe` for one. But an error is never pushed.
            let outcome = self
                .connection
                .clone()
                .send_packed_commands(&pipeline(&commands), 0, commands.len())
                .await;
            let replies = outcome
                .map_err(|error| ConnectionError { maybe_sent: true, ..connect_error(error) })?;
            // The last one: a refused `ASKING` is no answer to the subscription.
            let refused = match replies.into_iter().next_back().map(from_value) {
                Some(RespValue::Error(error)) => Some(error),
                _ => None,
            };
            if let Some((error, notify)) = refused.zip(self.notify.upgrade()) {
                let _ = notify.send(PubSubEvent::Rejected {
                    channel: Bytes::copy_from_slice(channel),
                    error,
                });
            }
            Ok(())
        }
        .boxed()
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        async move {
            let command = self.channels.unsubscribe_command(channel);
            let outcome = self.connection.clone().send_packed_command(&to_cmd(&command)).await;
            let reply = outcome
                .map_err(|error| ConnectionError { maybe_sent: true, ..connect_error(error) })?;
            // A push reports success. A server that does not serve the slot answers by an error.
            if let (RespValue::Error(_), Some(notify)) = (from_value(reply), self.notify.upgrade())
            {
                let _ = notify
                    .send(PubSubEvent::Unsubscribed { channel: Bytes::copy_from_slice(channel) });
            }
            Ok(())
        }
        .boxed()
    }
}

/// The notice in a push on a subscription's connection.
fn event_of(push: PushInfo) -> Option<PubSubEvent> {
    let PushInfo { kind, data } = push;
    let mut data = data.into_iter();
    let channel = text_in(data.next()?)?;
    match kind {
        PushKind::SSubscribe | PushKind::Subscribe => Some(PubSubEvent::Subscribed { channel }),
        PushKind::SUnsubscribe | PushKind::Unsubscribe => {
            Some(PubSubEvent::Unsubscribed { channel })
        }
        PushKind::SMessage | PushKind::Message => {
            Some(PubSubEvent::Message { channel, payload: text_in(data.next()?)? })
        }
        _ => None,
    }
}

fn pipeline(commands: &[Command]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(to_cmd(command));
    }
    pipeline
}

pub(crate) fn to_cmd(command: &Command) -> Cmd {
    // A few bytes more than its words have.
    let mut packed = Cmd::with_capacity(command.word_count(), command.bytes().len());
    for word in command.iter() {
        packed.arg(word);
    }
    packed
}
