//! Connects to servers that URLs name: TCP or TLS, and credentials. It serves all backends that
//! take URLs.

mod redacted_url;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rwlease_core::resp::{Address, Command};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use crate::backend::{
    CONNECTION_FAILED, ConnectionError, Credentials, CredentialsProvider, Resolver,
};
use crate::health::{ClientHealth, catch, catch_future};
use crate::telemetry::callback_panicked;
use tcp::dial;

pub(crate) use redacted_url::RedactedUrl;
pub(crate) use url::{SentinelUrl, ServerUrl, UrlError, sentinel};

/// Certificates in PEM, where those of the system are not enough.
#[derive(Clone, Default)]
pub(crate) struct TlsCertificates {
    /// Certificates to trust, instead of the system's root certificates.
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's own certificate and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// The kind of channels to subscribe to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PubSubKind {
    /// Shard channels.
    #[default]
    Sharded,
    /// Regular channels: sentinels have no shard channels.
    Regular,
}

/// Dials servers, with the settings for a session.
#[derive(Clone, Default)]
pub(crate) struct Dialer {
    /// TLS to all servers, with these certificates.
    pub(crate) tls: Option<TlsCertificates>,
    #[cfg(feature = "tls")]
    pub(crate) tls_configs: tls::TlsConfigCache,
    pub(crate) credentials: Option<Arc<dyn CredentialsProvider>>,
    /// The database; a cluster has only one.
    pub(crate) database: i64,
    /// The name in the server's `CLIENT LIST`.
    pub(crate) client_name: Option<String>,
    pub(crate) channels: PubSubKind,
    pub(crate) resolver: Resolver,
    /// The health of the client whose connections these are.
    pub(crate) health: ClientHealth,
}

impl PubSubKind {
    pub(super) fn subscribe_command(self, channel: &[u8]) -> Command {
        let subscribe = match self {
            PubSubKind::Sharded => "SSUBSCRIBE",
            PubSubKind::Regular => "SUBSCRIBE",
        };
        Command::new().arg(subscribe).arg(channel)
    }

    pub(super) fn unsubscribe_command(self, channel: &[u8]) -> Command {
        let unsubscribe = match self {
            PubSubKind::Sharded => "SUNSUBSCRIBE",
            PubSubKind::Regular => "UNSUBSCRIBE",
        };
        Command::new().arg(unsubscribe).arg(channel)
    }
}

/// A connection on which nothing was sent yet.
pub(super) enum RawStream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
}

debug_fields!(|dialer| Dialer {
    tls: dialer.tls.is_some(),
    credentials: dialer.credentials.is_some(),
    database: dialer.database,
    client_name: dialer.client_name
});

impl Dialer {
    /// Connects, at `place` if the host name was resolved before, and begins the session by
    /// `begin`. An address at which no session begins does not hide the next one. Returns the
    /// server's address, too.
    pub(super) async fn dial<S, F>(
        &self,
        address: &Address,
        place: Option<&str>,
        begin: impl Fn(RawStream) -> F + Sync,
    ) -> Result<(S, IpAddr), ConnectionError>
    where
        F: Future<Output = Result<S, ConnectionError>> + Send,
        S: Send,
    {
        let place = place.and_then(|place| place.parse().ok());
        #[cfg(feature = "tls")]
        let session = &match &self.tls {
            Some(files) => Some(self.tls_configs.session(address, files)?),
            None => None,
        };
        // Refused earlier, by the URL.
        #[cfg(not(feature = "tls"))]
        if self.tls.is_some() {
            return Err(ConnectionError {
                is_permanent: true,
                ..ConnectionError::not_sent("TLS is not supported: enable the feature `tls`")
            });
        }
        let begin = &begin;
        dial(&self.resolver, address, place, |stream| async move {
            #[cfg(feature = "tls")]
            if let Some(session) = session {
                return begin(session.connect(stream).await?).await;
            }
            begin(RawStream::Tcp(stream)).await
        })
        .await
    }

    /// The credentials to send, if any.
    pub(super) async fn credentials(&self) -> Result<Option<Credentials>, ConnectionError> {
        let Some(provider) = &self.credentials else {
            return Ok(None);
        };
        let provided = catch_future(async { provider.credentials().await }).await;
        let provided = provided.map_err(|panic| {
            callback_panicked("CredentialsProvider::credentials", &panic);
            ConnectionError::not_sent(format!(
                "no credentials: `CredentialsProvider::credentials` panicked: {panic}"
            ))
        })?;
        provided.map(Some).map_err(|source| ConnectionError {
            source: Some(source.into()),
            ..ConnectionError::not_sent("no credentials: the `CredentialsProvider` failed")
        })
    }

    /// Whether the next connection may have other credentials. They may, if the provider panics at
    /// this question.
    pub(super) fn rotates_credentials(&self) -> bool {
        self.credentials.as_ref().is_some_and(|provider| {
            catch(|| provider.can_change()).unwrap_or_else(|panic| {
                callback_panicked("CredentialsProvider::can_change", &panic);
                true
            })
        })
    }
}

pub(super) fn hide_password(
    failure: ConnectionError,
    credentials: Option<&Credentials>,
) -> ConnectionError {
    match credentials.map(Credentials::parts) {
        Some((_, password)) => failure.without_password(password),
        None => failure,
    }
}

/// Converts a failure to connect, or another failure for which `maybe_sent` does not matter.
impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> ConnectionError {
        ConnectionError {
            is_permanent: is_final_of_tls(&error),
            is_connection_refused: error.kind() == io::ErrorKind::ConnectionRefused,
            is_closed_by_peer: is_disconnect(&error),
            ..ConnectionError::not_sent(CONNECTION_FAILED)
        }
        .with_source(error)
    }
}

/// Returns true if the other side ended the connection.
pub(super) fn is_disconnect(error: &(dyn StdError + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ConnectionReset | BrokenPipe | UnexpectedEof))
}

/// Returns true if TLS failed in a way that no retry with the same settings can fix.
#[cfg(feature = "tls")]
pub(super) fn is_final_of_tls(error: &(dyn StdError + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let of_tls = match inner {
        Some(inner) => inner.downcast_ref::<rustls::Error>(),
        None => error.downcast_ref::<rustls::Error>(),
    };
    of_tls.is_some_and(tls::is_final)
}

// No connection has TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn is_final_of_tls(_: &(dyn StdError + 'static)) -> bool {
    false
}

#[cfg(all(test, feature = "tls"))]
mod tests;
