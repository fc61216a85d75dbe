//! redis/redis#12798: a sentinel that was away reports an old failover when it returns. Clients
//! believe the message and go to a replica.
//!
//! A message of a failover is a reason to ask, and not believed by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rwlease::{Client, SentinelConfig};

use crate::{SECOND, soon};
use testkit::{Fake, SentinelConfigForTest, SentinelDeployment, ServerAct};

#[tokio::test(flavor = "multi_thread")]
async fn old_message_of_a_failover_misleads_nobody() {
    let watch =
        SentinelConfigForTest { replicas: 1, sentinels: 1, ..SentinelConfigForTest::default() };
    let watched = SentinelDeployment::start_with(watch).await.unwrap();
    let master = watched.master().await.unwrap();
    let (own, other) = (watched.server(master).port(), watched.server(1 - master).port());
    let text = format!("mymaster 127.0.0.1 {own} 127.0.0.1 {other}");
    let lies = Arc::new(AtomicBool::new(false));
    let fake = Fake::before(watched.sentinel(0), {
        let lies = lies.clone();
        move |act| {
            let mut says = ServerAct::forward(act);
            // It comes on each connection, with whatever is answered.
            if lies.load(Ordering::SeqCst) && !act.is_opened() {
                let push = format!(
                    ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{text}\r\n",
                    text.len()
                );
                says.push(ServerAct::Bytes(push.into_bytes()));
            }
            says
        }
    });
    let fake = fake.await.unwrap();
    let sentinel = SentinelConfig::new("mymaster").node(format!("127.0.0.1:{}", fake.port()));
    let locks = Client::builder().sentinel(sentinel).connect().await.unwrap();
    let lock = locks.rwlock("doc").unwrap();
    let _ = lock.write().await.unwrap().release().await.unwrap();
    lies.store(true, Ordering::SeqCst);
    for _ in 0..10 {
        tokio::time::sleep(SECOND / 2).await;
        let guard = soon(lock.write()).await.unwrap();
        let key = "EXISTS rwlease:doc";
        assert!(
            watched.server(master).run_words::<bool>(key).await.unwrap(),
            "it is at the master"
        );
        let _ = guard.release().await.unwrap();
    }
}
