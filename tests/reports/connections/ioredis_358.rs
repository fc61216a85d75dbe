//! redis/ioredis#358: a server that has just started answers `LOADING` to everything, and commands
//! fail with that instead of waiting for it.
//!
//! A request that waits outlasts the loading of a server.

use crate::support::{ServerSettings, StandaloneServer, connect};
use crate::{SOON, soon};

#[tokio::test(flavor = "multi_thread")]
async fn write_outlasts_the_loading_of_the_server() {
    let settings = ServerSettings::default()
        .line("key-load-delay 1000")
        .line("loading-process-events-interval-bytes 1024");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    let lock = locks.rwlock("doc").unwrap();
    let _ = lock.write().await.unwrap().release().await.unwrap();
    server.run_words::<()>("DEBUG POPULATE 3000").await.unwrap();
    server.run_words::<()>("SAVE").await.unwrap();
    server.restart().await.unwrap();
    let refused = server.run_words::<i64>("DBSIZE").await.unwrap_err();
    assert!(refused.to_string().contains("loading the dataset"), "{refused}");
    let _ = soon(lock.write().timeout(SOON)).await.unwrap().release().await.unwrap();
}
