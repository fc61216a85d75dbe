//! Servers of another cluster at the addresses of known servers.

use rwlease::embedded::{EmbeddedCluster, ServedCommand};
use testkit::SimulatedNetwork;

use crate::census::Census;
use crate::verdict::Court;

/// Another cluster, and a server without cluster mode.
pub struct Strangers {
    network: SimulatedNetwork,
    cluster: EmbeddedCluster,
    single: EmbeddedCluster,
}

impl Strangers {
    pub fn new(
        engine: &EmbeddedCluster,
        network: &SimulatedNetwork,
        court: &Court,
        census: &Census,
    ) -> Strangers {
        let cluster = EmbeddedCluster::builder().same_addresses_as(engine).build();
        let single = EmbeddedCluster::builder().standalone().same_addresses_as(engine).build();
        for stranger in [&cluster, &single] {
            let (court, census) = (court.clone(), census.clone());
            stranger.set_observer(move |served: &ServedCommand<'_>| judge(served, &court, &census));
        }
        Strangers { network: network.clone(), cluster, single }
    }

    /// Gives one of them the address of a server that is down.
    pub fn come(&self, server: usize, is_cluster: bool) {
        let stranger = if is_cluster { (&self.cluster, server) } else { (&self.single, 0) };
        self.network.redirect_connections(server, Some(stranger));
    }

    /// Gives the address back to its server.
    pub fn go(&self, server: usize) {
        self.network.redirect_connections(server, None);
        self.cluster.faults().kill_connections(server);
        self.single.faults().kill_connections(0);
    }
}

/// A client may query a stranger's identity, and nothing else.
fn judge(served: &ServedCommand<'_>, court: &Court, census: &Census) {
    let Some(command) = served.words().first() else { return };
    census.count("a stranger was met");
    if command.starts_with(b"EVAL") || command.starts_with(b"SCRIPT") {
        court.accuse("an unexpected server gets no request for a lock", || {
            let words = served.words().iter().map(|word| String::from_utf8_lossy(word));
            words.collect::<Vec<_>>().join(" ")
        });
    }
}
