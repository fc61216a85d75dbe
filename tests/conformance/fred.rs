//! The conformance suite over the `fred` crate.

#[cfg(any(feature = "native", feature = "redis"))]
use crate::support::StandaloneServer;
use crate::support::{Backend, Cluster, ClusterConfig};
#[cfg(any(feature = "native", feature = "redis"))]
use rwlease::ErrorKind;
use rwlease::Locks;

lock_tests!(two_clients);
server_tests!(Backend::Fred);
server_tests!(Backend::Fred, with push);

async fn two_clients() -> (Locks, Locks, Cluster) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        Backend::Fred.connect(Locks::builder(), &[url]).await.unwrap()
    };
    (connect(0).await, connect(1).await, cluster)
}

/// Above all, a client with certificates must not connect without checking them.
#[cfg(any(feature = "native", feature = "redis"))]
#[tokio::test]
async fn connect_fred_with_settings_for_urls_is_refused() {
    let server = StandaloneServer::start().await.unwrap();
    for (setting, settings) in crate::support::url_only_settings() {
        let error = Backend::Fred.connect(settings, &[server.url()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{setting}");
        assert!(error.to_string().contains(setting), "{setting}: {error}");
    }
}
