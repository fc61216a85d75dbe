//! The conformance suite over the `fred` crate.

#![cfg(feature = "fred")]

#[macro_use]
mod conformance;
mod support;

use rwlease::Locks;
use support::{Backend, Cluster, Shape};

lock_tests!(two_clients);
server_tests!(Backend::Fred);
server_tests!(Backend::Fred, with push);

async fn two_clients() -> (Locks, Locks, Cluster) {
    let cluster = Cluster::start_with(Shape::of(3, 0)).await.unwrap();
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        Backend::Fred.connect(Locks::builder(), &[url]).await.unwrap()
    };
    (connect(0).await, connect(1).await, cluster)
}
