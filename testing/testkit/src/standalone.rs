//! A single server without a cluster.

use super::{PollLimit, Result, Server, ServerSettings};

/// A server for one test. It ends when this is dropped.
#[derive(Debug)]
pub struct StandaloneServer(Server);

impl StandaloneServer {
    pub async fn start() -> Result<StandaloneServer> {
        Self::start_with(ServerSettings::default()).await
    }

    pub async fn start_with(settings: ServerSettings) -> Result<StandaloneServer> {
        Ok(StandaloneServer(Server::start(&ServerSettings { cluster: false, ..settings }).await?))
    }

    /// A replica of this server that confirms what this server writes. Its own
    /// `master_link_status:up` is not enough: the master waits for the first confirmation.
    pub async fn start_replica(&self) -> Result<StandaloneServer> {
        let follow = format!("replicaof 127.0.0.1 {}", self.port());
        let replica = Self::start_with(ServerSettings::default().line(follow)).await?;
        self.wait_for_replica().await?;
        Ok(replica)
    }

    /// Waits until the replica confirms a write.
    pub async fn wait_for_replica(&self) -> Result {
        let wait_limit = PollLimit::new("the replica to confirm");
        let mut connection = self.connect().await?;
        let mut write_and_wait = redis::pipe();
        write_and_wait.cmd("SET").arg("noise").arg(1).ignore();
        write_and_wait.cmd("WAIT").arg(1).arg(100);
        loop {
            let (confirmed,): (u32,) = write_and_wait.query_async(&mut connection).await?;
            if confirmed == 1 {
                return Ok(());
            }
            wait_limit.pause("it does not").await?;
        }
    }
}

impl std::ops::Deref for StandaloneServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}
