//! Nordix/eredis#2: an error reply that arrives in several pieces is taken for a success.
//!
//! Replies, errors and messages mean the same however they are cut up.

use rwlease::ErrorKind;

use crate::support::{Fake, ServerAct, StandaloneServer, connect, wait_for_waiters};
use crate::{LONG, client, soon};

#[tokio::test(flavor = "multi_thread")]
async fn replies_byte_by_byte_mean_the_same() {
    let server = StandaloneServer::start().await.unwrap();
    let fake = Fake::before(&server, |act| match act.is_opened() {
        true => vec![ServerAct::InPieces],
        false => vec![ServerAct::Forward],
    });
    let fake = fake.await.unwrap();
    let (locks, near) = (connect(&[fake.url()]).await.unwrap(), client(&server).await);
    server.run_words::<()>("SET rwlease:text x").await.unwrap();
    for number in 0..20 {
        let lock = locks.rwlock(format!("doc:{number}")).unwrap();
        let held = near.rwlock(format!("doc:{number}")).unwrap().write().lease(LONG).await.unwrap();
        assert!(lock.try_read().await.unwrap().is_none());
        let error = locks.rwlock("text").unwrap().write().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        server.run_words::<()>("SCRIPT FLUSH").await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.write().await?.release().await }
        });
        wait_for_waiters(&lock, 1).await.unwrap();
        let _ = held.release().await.unwrap();
        let _ = soon(waiting).await.unwrap().unwrap();
    }
}
