//! Closing connections at the server.

use std::time::Duration;

use tokio::time::sleep;

use super::{Cluster, Result, Server};

/// Which connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Those that carry commands.
    Commanding,
    /// Those with a subscription.
    Subscribed,
}

impl Server {
    /// Closes the connections of one kind, except the one that sends this, and returns their
    /// number.
    pub async fn kill_clients(&self, which: Clients) -> Result<u64> {
        self.say(which.command()).await
    }
}

impl Cluster {
    /// Closes every client's connections of both kinds at every running node, repeatedly.
    pub async fn storm(&self, rounds: usize, pause: Duration) -> Result<u64> {
        let mut killed = 0;
        for _ in 0..rounds {
            for number in self.running() {
                killed += self.node(number).kill_clients(Clients::Commanding).await?;
                killed += self.node(number).kill_clients(Clients::Subscribed).await?;
            }
            sleep(pause).await;
        }
        Ok(killed)
    }
}

impl Clients {
    fn command(self) -> &'static str {
        match self {
            Clients::Commanding => "CLIENT KILL TYPE normal SKIPME yes",
            Clients::Subscribed => "CLIENT KILL TYPE pubsub SKIPME yes",
        }
    }
}
