//! redis/go-redis#1113: after a timeout the late reply stays in the connection, and each later
//! command gets the reply of the one before it.
//!
//! A reply that comes too late answers no other call.

use tokio::time::sleep;

use crate::support::{Proxy, ProxyFlow, connect};
use crate::{LONG, MS, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn late_replies_answer_no_other_call() {
    let (server, near) = one().await;
    let _held = near.rwlock("held").unwrap().write().lease(LONG).await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let locks = connect(&[proxy.url()]).await.unwrap();
    for round in 0..3 {
        proxy.replies(ProxyFlow::Paused);
        let free = locks.rwlock(format!("free:{round}")).unwrap();
        let early = tokio::spawn(async move { free.try_write().timeout(700 * MS).await.map(drop) });
        // Longer than `response_timeout`.
        sleep(SECOND).await;
        let held = locks.rwlock("held").unwrap();
        let late = tokio::spawn(async move { held.try_write().await });
        sleep(100 * MS).await;
        proxy.heal();
        let _ = soon(early).await.unwrap();
        assert!(soon(late).await.unwrap().unwrap().is_none(), "another client holds it");
        for number in 0..50 {
            let name = if number % 2 == 0 { "held" } else { "other" };
            let tried = soon(locks.rwlock(name).unwrap().try_write()).await.unwrap();
            assert_eq!(tried.is_some(), name == "other");
            if let Some(guard) = tried {
                let _ = guard.release().await.unwrap();
            }
        }
    }
}
