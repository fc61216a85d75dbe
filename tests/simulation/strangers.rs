//! Servers of another cluster at the addresses of known servers.

use rwlease::embedded::{Engine, Network, Served};

use crate::census::Census;
use crate::court::Court;

/// Another cluster, and a server without cluster mode.
pub struct Strangers {
    network: Network,
    cluster: Engine,
    single: Engine,
}

impl Strangers {
    pub fn new(engine: &Engine, network: &Network, court: &Court, census: &Census) -> Strangers {
        let cluster = Engine::builder().beside(engine).build();
        let single = Engine::builder().standalone().beside(engine).build();
        for stranger in [&cluster, &single] {
            let (court, census) = (court.clone(), census.clone());
            stranger.watch(move |served: &Served<'_>| judge(served, &court, &census));
        }
        Strangers { network: network.clone(), cluster, single }
    }

    /// Gives one of them the address of a server that is down.
    pub fn come(&self, server: usize, is_cluster: bool) {
        let stranger = if is_cluster { (&self.cluster, server) } else { (&self.single, 0) };
        self.network.lead_to(server, Some(stranger));
    }

    /// Gives the address back to its server.
    pub fn go(&self, server: usize) {
        self.network.lead_to(server, None);
        self.cluster.faults().kill_connections(server);
        self.single.faults().kill_connections(0);
    }
}

/// A client may query a stranger's identity, and nothing else.
fn judge(served: &Served<'_>, court: &Court, census: &Census) {
    let Some(command) = served.words().first() else { return };
    census.count("a stranger was met");
    if command.starts_with(b"EVAL") || command.starts_with(b"SCRIPT") {
        court.accuse("a stranger is asked for no lock", || {
            let words = served.words().iter().map(|word| String::from_utf8_lossy(word));
            words.collect::<Vec<_>>().join(" ")
        });
    }
}
