//! Locks on real clusters whose slots move, and beside servers that are not of the cluster: the
//! caller's results, and the state afterwards. `testing/chaos` has the load and the dying masters.

mod deployments;
mod moves;
mod raw;

use std::time::Duration;

use rwlease::{Client, Slot};
use testkit::{Cluster, ConnectBuilder, PollLimit, Result, Server};

/// No test may pass only because a lease of this length has ended.
const LONG: Duration = Duration::from_secs(120);

/// The longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the cluster. It polls often, so that queues are quick where there is no push.
async fn client(cluster: &Cluster) -> Result<Client> {
    let settings = Client::builder().lease(LONG).poll_interval(Duration::from_millis(50));
    Ok(settings.connect_to(&cluster.urls()).await?)
}

fn key(name: &str) -> String {
    format!("rwlease:{name}")
}

/// `count` names of locks for each of the first three nodes, in slots that the node serves.
async fn on_each_master(cluster: &Cluster, prefix: &str, count: usize) -> Result<Vec<Vec<String>>> {
    let view = cluster.view().await?;
    let mut names = vec![Vec::new(); 3];
    let mut numbers = 0..;
    while names.iter().any(|of_it| of_it.len() < count) {
        let name = format!("{prefix}:{}", numbers.next().unwrap_or(0));
        let master = view.master_of(Slot::of(key(&name)).get());
        if let Some(at) = (0..3).find(|&node| master == Some(cluster.id(node)))
            && names[at].len() < count
        {
            names[at].push(name);
        }
    }
    Ok(names)
}

/// Waits until a node reports that it serves.
async fn serves(server: &Server) -> Result {
    let wait_limit = PollLimit::new(format!("{} to serve", server.address()));
    let does_serve = || async {
        Ok(server.run_words::<String>("CLUSTER INFO").await?.contains("cluster_state:ok"))
    };
    wait_limit.until(does_serve).await
}
