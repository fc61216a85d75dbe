//! The conformance suite over connections of the library's own.

use crate::support::{Backend, Cluster, ClusterConfig, ServerSettings, StandaloneServer};
use rwlease::{Credentials, ErrorKind, Locks};

lock_tests!(two_clients);
server_tests!(Backend::Native);
server_tests!(Backend::Native, with push);

async fn two_clients() -> (Locks, Locks, Cluster) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        Backend::Native.connect(Locks::builder(), &[url]).await.unwrap()
    };
    (connect(0).await, connect(1).await, cluster)
}

#[tokio::test]
async fn urls_must_agree_in_what_they_say_beside_the_address() {
    let settings = ServerSettings::default().password("right");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let at = server.address();
    let first = format!("redis://:right@{at}");
    for other in ["", ":wrong@", "user:right@"].map(|who| format!("redis://{who}{at}")) {
        let urls = [&first, &other];
        let error = Locks::connect(urls).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{other}: {error:?}");
        let provided = Locks::builder().servers(urls).credentials(Credentials::password("right"));
        assert!(provided.connect().await.is_ok(), "{other}");
    }
    let error = Locks::connect([&first, &format!("{first}/1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(Locks::connect([&first, &first]).await.is_ok());
}
