//! redis/node-redis#932: while the client reconnects without an end, commands pile up that never
//! end, not even with an error.
//!
//! Whoever asks for a lock while no server is there is told when its time is up.

use rwlease::Client;
use tokio::task::JoinSet;

use crate::{SECOND, soon};
use testkit::{ConnectBuilder, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_server_all_end() {
    let server = StandaloneServer::start().await.unwrap();
    let settings = Client::builder().call_timeout(2 * SECOND);
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    server.kill().unwrap();
    let mut requests = JoinSet::new();
    for number in 0..1_000 {
        let lock = locks.rwlock(format!("doc:{number}")).unwrap();
        requests.spawn(async move {
            match number % 2 {
                0 => lock.try_write().await.map(|guard| guard.is_some()).is_err(),
                _ => lock.write().timeout(SECOND).await.is_err(),
            }
        });
    }
    assert!(soon(requests.join_all()).await.into_iter().all(|failed| failed));
    server.restart().await.unwrap();
    let _ = soon(locks.rwlock("doc").unwrap().write()).await.unwrap().release().await.unwrap();
}
