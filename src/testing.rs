//! What the project's own tests need of the library besides its public interface: the packages in
//! `testing/`, which use `rwlease-core` as well. Nothing here is promised to anybody else, and any
//! version can change it.

#[cfg(any(feature = "native", feature = "redis", feature = "embedded"))]
use std::sync::Arc;

use rwlease_core::protocol::InspectReply;
#[cfg(any(feature = "native", feature = "redis", feature = "embedded"))]
use rwlease_core::resp::Address;
#[cfg(feature = "embedded")]
use rwlease_embedded::EmbeddedCluster;

#[cfg(feature = "fred")]
pub use crate::backend::fred::FredConnector;
#[cfg(feature = "native")]
pub use crate::backend::native::decoder::{Decoder, Frame};
#[cfg(feature = "native")]
pub use crate::backend::native::pending_replies::{
    CommandOffsets, FrameAction, PendingReplies, PendingReply, PipelineOutcome,
};
pub use crate::backend::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    PubSubConnection, PubSubEvent, ResponseFuture,
};
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub use crate::backend::{LIB_NAME, LIB_VERSION};
pub use crate::client::config::ClientConfig;
pub use crate::clock::Clock;
pub use crate::health::ClientHealth;
pub use crate::router::parsers::{
    ParsedReport, ParsedSlots, parse_cluster_slots, parse_redirect, parse_sentinel_report,
    parse_server_info,
};
pub use crate::scripts::Scripts;
#[cfg(feature = "embedded")]
pub use rwlease_embedded::script_step::{LockHash, ScriptInput, ScriptOutput, ScriptStep};

#[cfg(any(feature = "native", feature = "redis"))]
use crate::backend::Credentials;
#[cfg(any(feature = "native", feature = "redis"))]
use crate::backend::dialer::{Dialer, RedactedUrl, SentinelUrl, ServerUrl, sentinel};
#[cfg(feature = "embedded")]
use crate::backend::embedded::EmbeddedConnector;
#[cfg(feature = "native")]
use crate::backend::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::backend::redis::RedisConnector;
use crate::client::label::ClientLabel;
#[cfg(feature = "embedded")]
use crate::error::Result;
#[cfg(feature = "embedded")]
use crate::lock::builder::ClientBuilder;
#[cfg(feature = "embedded")]
use crate::lock::client::Client;
use crate::lock::status::{LockStatus, status};

/// Connects by the library's own backend.
#[cfg(feature = "native")]
pub fn native_connector(credentials: Option<Credentials>, database: i64) -> Arc<dyn Connector> {
    Arc::new(NativeConnector { dialer: dialer(credentials, database) })
}

/// Connects by the `redis` crate.
#[cfg(feature = "redis")]
pub fn redis_connector(credentials: Option<Credentials>, database: i64) -> Arc<dyn Connector> {
    Arc::new(RedisConnector { dialer: dialer(credentials, database) })
}

#[cfg(any(feature = "native", feature = "redis"))]
fn dialer(credentials: Option<Credentials>, database: i64) -> Dialer {
    let credentials = credentials.map(|credentials| Arc::new(credentials) as _);
    Dialer { credentials, database, ..Dialer::default() }
}

/// The parts of a URL of servers or of sentinels.
#[cfg(any(feature = "native", feature = "redis"))]
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedUrl {
    /// One server, or the sentinels.
    pub addresses: Vec<Address>,
    /// The name of the master, if the URL is of sentinels.
    pub master: Option<String>,
    pub tls: bool,
    /// The user, if there is one, and the password.
    pub credentials: Option<(Option<String>, String)>,
    pub database: i64,
}

/// Parses a URL of a server or of sentinels.
#[cfg(any(feature = "native", feature = "redis"))]
pub fn parse_url(url: &str) -> Option<ParsedUrl> {
    let parts = |credentials: Credentials| {
        let (user, password) = credentials.parts();
        (user.map(str::to_owned), password.to_owned())
    };
    if SentinelUrl::matches(url) {
        let url: SentinelUrl = url.parse().ok()?;
        return Some(ParsedUrl {
            addresses: url.sentinels,
            master: Some(url.master),
            tls: url.tls,
            credentials: url.credentials.map(parts),
            database: url.database,
        });
    }
    let url: ServerUrl = url.parse().ok()?;
    Some(ParsedUrl {
        addresses: vec![url.address],
        master: None,
        tls: url.tls,
        credentials: url.credentials.map(parts),
        database: url.database,
    })
}

/// Parses the address of a sentinel.
#[cfg(any(feature = "native", feature = "redis"))]
pub fn parse_sentinel(address: &str) -> Option<Address> {
    sentinel(address).ok()
}

/// A URL as errors show it.
#[cfg(any(feature = "native", feature = "redis"))]
pub fn redact_url(url: &str) -> String {
    RedactedUrl(url).to_string()
}

/// Whether a text can be the label of a client.
pub fn is_label(text: &str) -> bool {
    ClientLabel::Text(text.to_owned()).check().is_ok()
}

/// The first page of a lock's status.
pub fn lock_status(reply: InspectReply, page_size: usize) -> LockStatus {
    status(reply, 0, page_size)
}

/// Connects to the servers of an embedded cluster, without the router in front of them.
#[cfg(feature = "embedded")]
pub fn embedded_connector(engine: &EmbeddedCluster) -> Arc<dyn Connector> {
    Arc::new(EmbeddedConnector::new(engine))
}

/// Starts a client with these settings over any connector and clock. A client without a label of
/// its own has no record.
#[cfg(feature = "embedded")]
pub async fn start_client(
    settings: ClientBuilder,
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    id: [u8; 11],
    seeds: Vec<Address>,
) -> Result<Client> {
    settings.connect_through(connector, clock, id, seeds).await
}
