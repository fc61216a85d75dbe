//! Connections by the `redis` crate: one `MultiplexedConnection` to each server.

mod reply;
mod url;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::node::{
    Address, Connector, CredentialsProvider, Ear, Node, NodeError, Notice, Reply, Subscribed, Subscription, Words,
};
use reply::text_of;
pub(crate) use reply::{connect_failure, reply_of};

pub(crate) use url::Server;

/// When nothing was heard for this long the kernel asks the other side whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Certificates in PEM, where the system's do not do.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// Whom to trust, instead of the system's root certificates.
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's own certificate and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Opens connections.
#[derive(Clone, Default)]
pub(crate) struct RedisConnector {
    /// TLS to all servers, with these certificates.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) credentials: Option<Arc<dyn CredentialsProvider>>,
    /// The database, which a cluster has only one of.
    pub(crate) database: i64,
    /// The name in the server's `CLIENT LIST`.
    pub(crate) client_name: Option<String>,
}

impl fmt::Debug for RedisConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnector")
            .field("tls", &self.tls.is_some())
            .field("credentials", &self.credentials.is_some())
            .field("database", &self.database)
            .field("client_name", &self.client_name)
            .finish()
    }
}

impl Connector for RedisConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Result<Arc<dyn Node>, NodeError>> {
        async move {
            let broken = Arc::new(AtomicBool::new(false));
            let tell = broken.clone();
            let connection = self
                .open(address, move |push| {
                    if push.kind == PushKind::Disconnection {
                        tell.store(true, Ordering::Relaxed);
                    }
                })
                .await?;
            let node: Arc<dyn Node> = Arc::new(RedisNode { connection, broken });
            Ok(node)
        }
        .boxed()
    }

    fn subscribe<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, Result<Subscribed, NodeError>> {
        async move {
            let (notify, notices) = mpsc::unbounded_channel();
            // The connection's own task holds the only sender, so the receiver ends with it.
            let weak = notify.downgrade();
            let ear = Arc::new(OnceLock::<Ear>::new());
            let heard_by = ear.clone();
            let connection = self
                .open(address, move |push| match (notice_of(push), heard_by.get()) {
                    (Some(Notice::Message { channel, payload }), Some(ear)) => ear(channel, payload),
                    (Some(notice), _) => drop(notify.send(notice)),
                    (None, _) => {}
                })
                .await?;
            let subscription: Arc<dyn Subscription> = Arc::new(RedisSubscription {
                connection,
                notify: weak,
                ear,
            });
            Ok((subscription, notices))
        }
        .boxed()
    }
}

impl RedisConnector {
    /// Connects with RESP3, in which a server's pushes are told from replies, and which also tells when the connection is gone.
    async fn open(
        &self,
        address: &Address,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, NodeError> {
        let client = self.client(address).await?;
        let config = AsyncConnectionConfig::new()
            // Time limits are the router's.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push| -> Result<(), ()> {
                on_push(push);
                Ok(())
            });
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(connect_failure)?;
        if let Some(name) = &self.client_name {
            // It may be refused: the name is only for people to read.
            let mut command = Cmd::new();
            command.arg("CLIENT").arg("SETNAME").arg(name);
            connection
                .send_packed_command(&command)
                .await
                .map_err(connect_failure)?;
        }
        Ok(connection)
    }

    async fn client(&self, address: &Address) -> Result<Client, NodeError> {
        let mut session = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(self.database)
            .set_skip_set_lib_name();
        if let Some(provider) = &self.credentials {
            let credentials = provider.credentials().await.map_err(|source| NodeError {
                source: Some(source.into()),
                ..NodeError::unsent("no credentials")
            })?;
            let (username, password) = credentials.parts();
            session = session.set_password(password);
            if let Some(username) = username {
                session = session.set_username(username);
            }
        }
        let host = address.host.to_string();
        match &self.tls {
            None => Client::open(info(ConnectionAddr::Tcp(host, address.port), session).map_err(connect_failure)?)
                .map_err(connect_failure),
            Some(files) => tls_client(host, address.port, session, files),
        }
    }
}

/// How to connect to an address, once that is authenticated so.
fn info(address: ConnectionAddr, session: RedisConnectionInfo) -> Result<ConnectionInfo, RedisError> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    Ok(address
        .into_connection_info()?
        .set_redis_settings(session)
        .set_tcp_settings(tcp))
}

#[cfg(feature = "redis-tls")]
fn tls_client(host: String, port: u16, session: RedisConnectionInfo, files: &TlsFiles) -> Result<Client, NodeError> {
    use ::redis::{ClientTlsConfig, TlsCertificates};

    // The `redis` crate uses the process's provider of cryptography, and panics if there is none. If the application has
    // installed one, that one stays.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if another thread was faster, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let certificates = TlsCertificates {
        client_tls: files.client.clone().map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: files.roots.clone(),
    };
    let address = ConnectionAddr::TcpTls {
        host,
        port,
        insecure: false,
        tls_params: None,
    };
    info(address, session)
        .and_then(|info| Client::build_with_tls(info, certificates))
        .map_err(|error| NodeError {
            permanent: true,
            ..connect_failure(error)
        })
}

#[cfg(not(feature = "redis-tls"))]
fn tls_client(_: String, _: u16, _: RedisConnectionInfo, _: &TlsFiles) -> Result<Client, NodeError> {
    Err(NodeError {
        permanent: true,
        ..NodeError::unsent("TLS needs the feature `redis-tls`")
    })
}

/// A connection that carries commands.
struct RedisNode {
    connection: MultiplexedConnection,
    broken: Arc<AtomicBool>,
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

impl Node for RedisNode {
    fn call<'a>(&'a self, command: &'a Words) -> BoxFuture<'a, Result<Reply, NodeError>> {
        async move {
            self.check()?;
            let outcome = self.connection.clone().send_packed_command(&packed(command)).await;
            outcome.map(reply_of).map_err(|error| self.failed(error))
        }
        .boxed()
    }

    fn pipeline<'a>(&'a self, commands: &'a [Words]) -> BoxFuture<'a, Result<Vec<Reply>, NodeError>> {
        async move {
            self.check()?;
            let outcome = self
                .connection
                .clone()
                .send_packed_commands(&pipeline(commands), 0, commands.len())
                .await;
            outcome
                .map(|values| values.into_iter().map(reply_of).collect())
                .map_err(|error| self.failed(error))
        }
        .boxed()
    }

    fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }
}

impl RedisNode {
    fn check(&self) -> Result<(), NodeError> {
        if self.is_usable() {
            Ok(())
        } else {
            Err(NodeError::unsent("the connection is gone"))
        }
    }

    /// A failure after the command was handed over. How far it got nobody can tell.
    fn failed(&self, error: RedisError) -> NodeError {
        if error.is_unrecoverable_error() {
            self.broken.store(true, Ordering::Relaxed);
        }
        NodeError {
            maybe_sent: true,
            ..connect_failure(error)
        }
    }
}

/// A connection that carries subscriptions.
struct RedisSubscription {
    connection: MultiplexedConnection,
    notify: mpsc::WeakUnboundedSender<Notice>,
    ear: Arc<OnceLock<Ear>>,
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisSubscription")
    }
}

impl Subscription for RedisSubscription {
    fn hear_by(&self, ear: Ear) {
        let _ = self.ear.set(ear); // the first one stays
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> BoxFuture<'a, Result<(), NodeError>> {
        async move {
            let asking = asking.then(|| Words::new().word("ASKING"));
            let join = Words::new().word("SSUBSCRIBE").word(channel);
            let commands: Vec<Words> = asking.into_iter().chain([join]).collect();
            // Whether it succeeded is told by a push alone. A reply here may be another's: the crate takes an unasked
            // `sunsubscribe` for one. But an error is never pushed.
            let outcome = self
                .connection
                .clone()
                .send_packed_commands(&pipeline(&commands), 0, commands.len())
                .await;
            let replies = outcome.map_err(|error| NodeError {
                maybe_sent: true,
                ..connect_failure(error)
            })?;
            let refused = replies.into_iter().map(reply_of).find_map(|reply| match reply {
                Reply::Error(error) => Some(error),
                _ => None,
            });
            if let Some((error, notify)) = refused.zip(self.notify.upgrade()) {
                let _ = notify.send(Notice::Refused {
                    channel: Bytes::copy_from_slice(channel),
                    error,
                });
            }
            Ok(())
        }
        .boxed()
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<(), NodeError>> {
        async move {
            let command = Words::new().word("SUNSUBSCRIBE").word(channel);
            let outcome = self.connection.clone().send_packed_command(&packed(&command)).await;
            outcome.map(drop).map_err(|error| NodeError {
                maybe_sent: true,
                ..connect_failure(error)
            })
        }
        .boxed()
    }
}

/// What a push on a subscription's connection tells.
fn notice_of(push: PushInfo) -> Option<Notice> {
    let PushInfo { kind, data } = push;
    let mut data = data.into_iter();
    let channel = text_of(data.next()?)?;
    match kind {
        PushKind::SSubscribe => Some(Notice::Joined { channel }),
        PushKind::SUnsubscribe => Some(Notice::Left { channel }),
        PushKind::SMessage => Some(Notice::Message {
            channel,
            payload: text_of(data.next()?)?,
        }),
        _ => None,
    }
}

fn pipeline(commands: &[Words]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(packed(command));
    }
    pipeline
}

pub(crate) fn packed(command: &Words) -> Cmd {
    let bytes = command.iter().map(<[u8]>::len).sum();
    let mut packed = Cmd::with_capacity(command.len(), bytes);
    for word in command.iter() {
        packed.arg(word);
    }
    packed
}
