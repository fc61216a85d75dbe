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
    /// Ends the connections of one kind, other than the one that orders it; how many there were.
    pub async fn kill_clients(&self, which: Clients) -> Result<u64> {
        self.say(which.command()).await
    }
}

impl Cluster {
    /// Ends every client's connections of both kinds at every running node, again and again.
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
