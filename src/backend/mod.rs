//! The seam to the servers: one connection to one server, without retries and redirects.
//!
//! A backend (`native`, `redis`, `fred`, `embedded`) implements [`Connector`],
//! [`CommandConnection`] and [`PubSubConnection`]. It returns the server's answers unchanged, and
//! says of each failure whether the command may have been sent. The router keeps the deadlines: it
//! drops the future of a call whose time is up. A command that was sent stays sent.

#[cfg(any(feature = "native", feature = "redis"))]
mod credentials;
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) mod dialer;
#[cfg(feature = "embedded")]
pub(crate) mod embedded;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(feature = "fred")]
pub(crate) mod fred;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
mod handshake_error;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
mod in_turn;
#[cfg(feature = "native")]
pub(crate) mod native;
#[cfg(any(feature = "redis", feature = "fred"))]
mod pipelining;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
mod resolve;

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use rwlease_core::resp::{
    Address, Command, EncodedScriptCall, ProtocolError, RespValue, ServerError,
};
use tokio::sync::mpsc;
#[cfg(feature = "native")]
use tokio::sync::oneshot;

#[cfg(feature = "native")]
use crate::backend::native::NativeConnection;
use crate::error::ErrorChain;
use crate::health::ClientHealth;

#[cfg(any(feature = "native", feature = "redis"))]
pub use credentials::{Credentials, CredentialsFuture, CredentialsProvider};
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub(crate) use resolve::Resolver;
pub use rwlease_core::resp::PubSubEvent;

/// The library name that servers from 7.2 on show for a connection in `CLIENT LIST`. Servers that
/// refuse it (an older version, a user without the right) are used without it.
pub const LIB_NAME: &str = env!("CARGO_PKG_NAME");
pub const LIB_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns true if the error means that the server does not recognise the client, or refuses its
/// credentials.
pub(crate) fn is_auth_error(code: &str) -> bool {
    matches!(code, "NOAUTH" | "WRONGPASS")
}

/// What failed when the server does not recognise the user, or refuses the credentials.
pub(crate) const AUTHENTICATION_FAILED: &str =
    "authentication failed; check the user and the password";

/// What failed when an I/O error is the reason.
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub(crate) const CONNECTION_FAILED: &str = "connection failed";

/// What failed where a client crate does not say more.
#[cfg(any(feature = "redis", feature = "fred"))]
pub(crate) const INVALID_RESP3: &str =
    "invalid RESP3; check that a Redis or Valkey server listens at this port";

/// A call that got no answer from the server.
#[derive(Clone, Debug)]
pub struct ConnectionError {
    /// What failed. The words of the source are not repeated.
    pub message: String,
    /// The command may have reached the server. True if it is unknown.
    pub maybe_sent: bool,
    /// No later attempt with the same settings can succeed: wrong password, no TLS provider, a bad
    /// certificate.
    pub is_permanent: bool,
    /// Nothing listens at that address: the machine is there, the server is not.
    pub is_connection_refused: bool,
    /// The other side ended the connection.
    pub is_closed_by_peer: bool,
    /// The caller's settings are wrong: no server of this kind can be used by them.
    pub is_invalid: bool,
    /// The replies on the connection do not fit its commands.
    pub is_protocol_error: bool,
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ConnectionError {
    /// A failure before anything was sent.
    pub fn not_sent(message: impl Into<String>) -> ConnectionError {
        ConnectionError {
            message: message.into(),
            maybe_sent: false,
            is_permanent: false,
            is_connection_refused: false,
            is_closed_by_peer: false,
            is_invalid: false,
            is_protocol_error: false,
            source: None,
        }
    }

    pub(crate) fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        ConnectionError { source: Some(Arc::new(source)), ..self }
    }

    /// Displays the failure and its sources.
    pub(crate) fn chain(&self) -> ErrorChain<'_> {
        ErrorChain(self)
    }

    /// Names the server in the message.
    pub(crate) fn at(self, address: &Address) -> ConnectionError {
        ConnectionError { message: format!("{address}: {}", self.message), ..self }
    }

    /// Without the arguments of an unknown command, which some servers repeat: those of `HELLO`
    /// have the password.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn redact_arguments(self) -> ConnectionError {
        self.map_texts(|text| {
            let end = text.find(", with args beginning with")?;
            Some(text[..end].to_owned())
        })
    }

    /// Replaces the texts for which `redact` returns another one. A source that is not an error of
    /// the server is replaced by its text.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    fn map_texts(self, redact: impl Fn(&str) -> Option<String>) -> ConnectionError {
        let source = self.source.map(|source| {
            if let Some(error) = source.downcast_ref::<ServerError>() {
                let text = |text: &String| redact(text).unwrap_or_else(|| text.clone());
                let [code, message] = [&error.code, &error.message].map(text);
                return Arc::new(ServerError { code, message }) as Arc<dyn StdError + Send + Sync>;
            }
            // Its debug output may be shown, too.
            let is_hidden = redact(&format!("{source:?} {source}")).is_some();
            if !is_hidden {
                return source;
            }
            let text = source.to_string();
            Box::<dyn StdError + Send + Sync>::from(redact(&text).unwrap_or(text)).into()
        });
        let message = redact(&self.message).unwrap_or(self.message);
        ConnectionError { message, source, ..self }
    }

    /// The connection has ended, and no other reason is known.
    pub(crate) fn closed() -> ConnectionError {
        ConnectionError::not_sent("the connection was closed")
    }

    /// The same, of a command that may have been sent.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn closed_in_flight() -> ConnectionError {
        ConnectionError { maybe_sent: true, ..ConnectionError::closed() }
    }

    /// Ranks the failures of several addresses of one name. A failure that no retry can fix has the
    /// highest rank. A refused connection has the lowest rank, because it describes the name only
    /// if all addresses refuse.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    fn weight(&self) -> u8 {
        match (self.is_permanent, self.is_connection_refused) {
            (true, _) => 2,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
}

impl From<ProtocolError> for ConnectionError {
    fn from(error: ProtocolError) -> ConnectionError {
        ConnectionError { is_protocol_error: true, ..ConnectionError::not_sent(error.to_string()) }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ConnectionError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Not the `Arc`, which is a separate error type.
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The future of a connection, or of an operation on one.
pub type ConnectionFuture<'a, T> = BoxFuture<'a, Result<T, ConnectionError>>;

/// Opens connections.
pub trait Connector: Send + Sync + 'static {
    /// Opens and authenticates a connection that carries commands. With `place`, dials that one of
    /// the addresses of the host name.
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands>;

    /// Returns the addresses to which a host name resolves now. Empty if they are unknown.
    fn resolve<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        let _ = address;
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The health of the client that it connects. The tasks of its connections report to it.
    fn health(&self) -> ClientHealth;

    /// As `connect`, for a connection that carries subscriptions alone. Its notices come out of the
    /// receiver, which ends when the connection is gone.
    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        place: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub>;

    fn uses_tls(&self) -> bool {
        false
    }

    /// Whether a new connection may have other credentials than the last one. If so, a server that
    /// refused those is worth dialling again.
    fn rotates_credentials(&self) -> bool {
        false
    }
}

pub type OpenedCommands = Arc<dyn CommandConnection>;

/// A connection that carries subscriptions, and the receiver of its notices.
pub type OpenedPubSub = (Arc<dyn PubSubConnection>, mpsc::UnboundedReceiver<PubSubEvent>);

/// A connection that carries commands. Calls from many tasks share it. Answers come in order.
pub trait CommandConnection: Send + Sync + 'static {
    /// Sends one command, now or at the first poll.
    fn call(&self, command: Command) -> ResponseFuture<RespValue>;

    /// As `call`, for a call of a script, whose words need not be assembled before.
    fn call_script(&self, call: &EncodedScriptCall<'_>) -> ResponseFuture<RespValue> {
        self.call(call.to_command())
    }

    /// Sends the commands in one pipeline, and returns one answer for each, in order. An error
    /// reply is an answer: it does not affect the other commands.
    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>>;

    /// False once the connection is known to be unusable.
    fn is_usable(&self) -> bool;

    /// Returns the address to which the host name resolved when this connection was opened. `None`
    /// if it is unknown.
    fn resolved_addr(&self) -> Option<Arc<str>> {
        None
    }
}

/// Takes a message: channel and payload. It never waits.
pub(crate) type MessageHandler = Box<dyn Fn(Bytes, Bytes) + Send + Sync>;

/// A connection that carries subscriptions, with one channel in each command: shard channels, or
/// the channel of a sentinel if the connector is for sentinels.
pub trait PubSubConnection: Send + Sync + 'static {
    /// Makes the task that reads the connection give each message to `handler` at once. A backend
    /// that cannot do so still sends the messages as notices.
    fn set_handler(&self, handler: MessageHandler) {
        drop(handler);
    }

    /// Why the connection has ended, if that is known.
    fn failure(&self) -> Option<ConnectionError> {
        None
    }

    /// Sends one command. Only before the first channel is joined: after that, its answer could be
    /// mistaken for that of a subscription.
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue>;

    /// `SSUBSCRIBE channel`, after `ASKING` if `asking` is set (`SUBSCRIBE` at a sentinel). The
    /// answer is a [`PubSubEvent`].
    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()>;

    /// `SUNSUBSCRIBE channel`.
    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()>;
}

/// A pending answer. It borrows nothing, so another task can await it after the caller has given
/// up.
pub enum ResponseFuture<T> {
    /// A task of the connection completes it. This needs no box, and no future of the backend's
    /// own.
    #[cfg(feature = "native")]
    Channel {
        reply_rx: oneshot::Receiver<Result<T, ConnectionError>>,
        /// The connection, which stays alive until the reply has arrived.
        connection: Arc<NativeConnection>,
    },
    Boxed(ConnectionFuture<'static, T>),
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, ConnectionError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            #[cfg(feature = "native")]
            ResponseFuture::Channel { reply_rx, connection } => {
                Pin::new(reply_rx).poll(context).map(|reply| {
                    let reply = reply.unwrap_or_else(|_| Err(ConnectionError::closed_in_flight()));
                    reply.and_then(|value| connection.out_of_step().map_or(Ok(value), Err))
                })
            }
            ResponseFuture::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> From<ConnectionFuture<'static, T>> for ResponseFuture<T> {
    fn from(future: ConnectionFuture<'static, T>) -> Self {
        ResponseFuture::Boxed(future)
    }
}

#[cfg(test)]
#[cfg(all(feature = "native", feature = "redis", feature = "fred"))]
mod tests;
