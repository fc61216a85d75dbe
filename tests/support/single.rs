//! A single server without a cluster.

use super::{Result, Server, ServerSettings};

/// A server for one test. It ends when this is dropped.
#[derive(Debug)]
pub struct Single(Server);

impl Single {
    pub async fn start() -> Result<Single> {
        Self::start_with(ServerSettings::default()).await
    }

    pub async fn start_with(settings: ServerSettings) -> Result<Single> {
        Ok(Single(Server::start(&ServerSettings { cluster: false, ..settings }).await?))
    }
}

impl std::ops::Deref for Single {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}
