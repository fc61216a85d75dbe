//! The seam to the servers: one connection to ONE server, which neither retries nor redirects.
//!
//! A backend (`native`, `redis`, `fred`, `embedded`) implements [`Connector`], [`Node`] and
//! [`Subscription`].
//! It adds nothing to what the server answers, and says of each failure whether the command may
//! have been sent. Deadlines are the router's: it drops the future of a call whose time is up, and
//! what was sent stays sent.

mod answering;
#[cfg(any(feature = "redis", feature = "fred"))]
mod coalesced;
mod command;
#[cfg(any(feature = "native", feature = "redis"))]
mod credentials;
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) mod dialer;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(feature = "fred")]
pub(crate) mod fred;
#[cfg(feature = "native")]
pub(crate) mod native;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
mod resolve;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
mod task;
#[cfg(all(test, feature = "native", feature = "redis", feature = "fred"))]
mod tests;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

pub(crate) use answering::Answering;
pub(crate) use command::{Command, ScriptCall};
#[cfg(any(feature = "native", feature = "redis"))]
pub use credentials::{Credentials, CredentialsFuture, CredentialsProvider};
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub(crate) use resolve::resolved;

/// What servers from 7.2 on show of a connection in `CLIENT LIST`. Those that refuse it (an older
/// one, a user without the right) are left in peace.
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub(crate) const LIB_NAME: &str = env!("CARGO_PKG_NAME");
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub(crate) const LIB_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a server listens, as the client dials it (after any address translation).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a server answered to one command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    /// A bulk or a simple string ("OK").
    Text(Bytes),
    List(Vec<Reply>),
    Error(ServerError),
}

/// An error reply: the word it begins with (`MOVED`, `NOSCRIPT`, `ERR`), and the rest of the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {detail}")]
pub(crate) struct ServerError {
    pub(crate) code: String,
    pub(crate) detail: String,
}

/// Whether the error says that the server does not know who the client is, or does not believe it.
pub(crate) fn is_about_credentials(code: &str) -> bool {
    matches!(code, "NOAUTH" | "WRONGPASS")
}

/// A call that got no answer from the server.
#[derive(Clone, Debug)]
pub(crate) struct NodeError {
    pub(crate) message: String,
    /// The command may have reached the server. When in doubt, true.
    pub(crate) maybe_sent: bool,
    /// No later attempt with the same settings can succeed: wrong password, no TLS provider, a bad
    /// certificate.
    pub(crate) permanent: bool,
    /// Nobody listens at that address: the machine is there, the server is not.
    pub(crate) refused: bool,
    pub(crate) source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl NodeError {
    /// A failure before anything was sent.
    pub(crate) fn unsent(message: impl Into<String>) -> NodeError {
        NodeError {
            message: message.into(),
            maybe_sent: false,
            permanent: false,
            refused: false,
            source: None,
        }
    }

    /// The connection has ended, and no other reason is known.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn gone() -> NodeError {
        NodeError::unsent("the connection is gone")
    }

    /// The same, of a command that may have been sent.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn gone_unanswered() -> NodeError {
        NodeError { maybe_sent: true, ..NodeError::gone() }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for NodeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Not the `Arc`, which is an error type of its own.
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// What comes of a connection, or on one.
pub(crate) type NodeFuture<'a, T> = BoxFuture<'a, Result<T, NodeError>>;

/// Opens connections.
pub(crate) trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens and authenticates a connection that carries commands.
    fn connect<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Arc<dyn Node>>;

    /// The addresses that a host name stands for now; none where that cannot be told.
    fn places<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Vec<Arc<str>>> {
        let _ = address;
        Box::pin(std::future::ready(Vec::new()))
    }

    /// As `connect`, to the server at one of the addresses that the host name stands for.
    fn connect_at<'a>(
        &'a self,
        address: &'a Address,
        place: &'a str,
    ) -> NodeFuture<'a, Arc<dyn Node>> {
        let _ = place;
        self.connect(address)
    }

    /// Opens a connection that carries subscriptions alone. What happens on it comes out of the
    /// receiver, which ends when the connection is gone.
    fn subscribe<'a>(&'a self, address: &'a Address) -> NodeFuture<'a, Subscribed>;

    /// Whether a new connection may have other credentials than the last one: then it is worth
    /// dialling a server that did not accept those.
    fn renews_credentials(&self) -> bool {
        false
    }
}

/// A connection that carries subscriptions, and what happens on it.
pub(crate) type Subscribed = (Arc<dyn Subscription>, mpsc::UnboundedReceiver<Notice>);

/// A connection that carries commands. Calls from many tasks share it; their answers come in order.
pub(crate) trait Node: fmt::Debug + Send + Sync + 'static {
    /// Sends one command, now or at the first poll.
    fn call(&self, command: Command) -> Answering<Reply>;

    /// The same with a call of a script, whose words need not be put together before.
    fn call_script(&self, call: &ScriptCall<'_>) -> Answering<Reply> {
        self.call(call.to_command())
    }

    /// Sends the commands in one pipeline, and gives one answer for each, in their order. An error
    /// reply is an answer: the others of the pipeline stand.
    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>>;

    /// False once the connection is known to be of no further use.
    fn is_usable(&self) -> bool;

    /// The address that the host name stood for when this was opened; none where that is not
    /// known.
    fn place(&self) -> Option<Arc<str>> {
        None
    }
}

/// Takes a message on a channel: channel and payload. It never waits.
pub(crate) type MessageHandler = Box<dyn Fn(Bytes, Bytes) + Send + Sync>;

/// A connection that carries subscriptions, one channel a command: of shards, or where the
/// connector is for sentinels, of a sentinel.
pub(crate) trait Subscription: fmt::Debug + Send + Sync + 'static {
    /// Has the task that reads the connection give each message to `handler` at once. A backend
    /// that cannot do so sends the messages as notices still.
    fn set_handler(&self, handler: MessageHandler) {
        drop(handler);
    }

    /// Sends one command. Only before the first channel is joined: after that an answer could be
    /// mistaken for a subscription's.
    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply>;

    /// `SSUBSCRIBE channel`, with `ASKING` before it if asked for (`SUBSCRIBE` at a sentinel). The
    /// answer is a [`Notice`].
    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()>;

    /// `SUNSUBSCRIBE channel`.
    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()>;
}

/// What a subscription's connection tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    /// The server confirmed the subscription.
    Joined {
        channel: Bytes,
    },
    /// The server ended it, requested or not (the slot has moved, the master was demoted).
    Left {
        channel: Bytes,
    },
    /// The server refused it (`MOVED`, `NOPERM`, unknown command).
    Refused {
        channel: Bytes,
        error: ServerError,
    },
    Message {
        channel: Bytes,
        payload: Bytes,
    },
}
