//! Counting and closing connections at the server.

use std::time::Duration;

use tokio::time::sleep;

use super::{Cluster, Result, Server};

/// Which connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Those that carry commands.
    Commands,
    /// Those with a subscription.
    Subscribed,
}

impl Server {
    /// Closes the connections of one kind, except the one that sends this, and returns their
    /// number.
    pub async fn kill_clients(&self, which: ClientKind) -> Result<u64> {
        self.run_words(which.command()).await
    }

    /// The number of connections of one kind, except the one that sends this.
    pub async fn client_count(&self, which: ClientKind) -> Result<u64> {
        let (kind, own) = match which {
            ClientKind::Commands => ("normal", 1),
            ClientKind::Subscribed => ("pubsub", 0),
        };
        let list: String = self.run_words(&format!("CLIENT LIST TYPE {kind}")).await?;
        Ok((list.lines().count() as u64).saturating_sub(own))
    }
}

impl Cluster {
    /// Closes every client's connections of both kinds at every running node, repeatedly.
    pub async fn kill_clients_repeatedly(&self, rounds: usize, pause: Duration) -> Result<u64> {
        let mut killed = 0;
        for _ in 0..rounds {
            for number in self.running() {
                killed += self.node(number).kill_clients(ClientKind::Commands).await?;
                killed += self.node(number).kill_clients(ClientKind::Subscribed).await?;
            }
            sleep(pause).await;
        }
        Ok(killed)
    }
}

impl ClientKind {
    fn command(self) -> &'static str {
        match self {
            ClientKind::Commands => "CLIENT KILL TYPE normal SKIPME yes",
            ClientKind::Subscribed => "CLIENT KILL TYPE pubsub SKIPME yes",
        }
    }
}
