//! What the project's own tests need of the library besides its public interface: the packages in
//! `testing/`, which use `rwlease-core` as well. Nothing here is promised to anybody else, and any
//! version can change it.

#[cfg(any(feature = "native", feature = "redis", feature = "embedded"))]
use std::sync::Arc;

use rwlease_core::resp::{Address, Command, RespValue};

#[cfg(feature = "fred")]
pub use crate::backend::fred::FredConnector;
pub use crate::backend::{
    CommandConnection, ConnectionError, Connector, PubSubConnection, PubSubEvent,
};
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
pub use crate::backend::{LIB_NAME, LIB_VERSION};
pub use crate::client::config::ClientConfig;
#[cfg(feature = "embedded")]
pub use crate::embedded::{LockHash, ScriptInput, ScriptOutput, ScriptStep};
pub use crate::scripts::Scripts;

#[cfg(any(feature = "native", feature = "redis"))]
use crate::backend::Credentials;
#[cfg(any(feature = "native", feature = "redis"))]
use crate::backend::dialer::Dialer;
#[cfg(feature = "native")]
use crate::backend::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::backend::redis::RedisConnector;

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

/// The servers of an embedded cluster without the router in front of them.
#[cfg(feature = "embedded")]
pub trait EmbeddedServers {
    /// Connects to the servers.
    fn connector(&self) -> Arc<dyn Connector>;

    /// The addresses of the servers, by number: the masters first.
    fn addresses(&self) -> Vec<Address>;

    /// Sends a command to a server, as over a connection of its own.
    fn query(&self, server: usize, command: &Command) -> RespValue;
}

#[cfg(feature = "embedded")]
impl EmbeddedServers for crate::embedded::EmbeddedCluster {
    fn connector(&self) -> Arc<dyn Connector> {
        self.connector()
    }

    fn addresses(&self) -> Vec<Address> {
        self.addresses()
    }

    fn query(&self, server: usize, command: &Command) -> RespValue {
        self.query(server, command)
    }
}
