//! The conformance suite over the `redis` crate.

use crate::support::{Backend, Cluster, ClusterConfig};
use rwlease::Locks;

lock_tests!(two_clients);
server_tests!(Backend::Redis);
server_tests!(Backend::Redis, with push);

async fn two_clients() -> (Locks, Locks, Cluster) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        Backend::Redis.connect(Locks::builder(), &[url]).await.unwrap()
    };
    (connect(0).await, connect(1).await, cluster)
}
