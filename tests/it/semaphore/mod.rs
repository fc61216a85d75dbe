//! Semaphores: permits that are shared, waited for and partly released, with the server's limit.

#[cfg(feature = "embedded")]
mod flying;

use crate::fixture::{LONG, eventually, single};
use testkit::connect;

/// One client receives pushes. The other one cannot, and polls.
#[tokio::test(flavor = "multi_thread")]
async fn semaphore_release_grants_the_next_client_by_push_or_poll() {
    let (server, hears) = single().await;
    server
        .run_words::<()>("ACL SETUSER deaf on >secret ~* &* +@all -ssubscribe -spublish")
        .await
        .unwrap();
    let deaf = server.url().replace("redis://", "redis://deaf:secret@");
    let polls = connect(&[deaf]).await.unwrap();
    for (number, other) in [&polls, &hears].into_iter().enumerate() {
        let name = format!("uploads:{number}");
        let one = hears.semaphore(&name, 4).unwrap();
        let other = other.semaphore(&name, 4).unwrap();
        let held = one.acquire(3).await.unwrap();
        let waiter = other.clone();
        let waiting = tokio::spawn(async move { waiter.acquire(2).timeout(LONG).await });
        eventually("it waits", async || one.status().await.unwrap().waiter_count > 0).await;
        let token = held.fencing_token().get();
        let _ = held.release().await.unwrap();
        let held = waiting.await.unwrap().unwrap();
        assert!(held.fencing_token().get() > token);
        let _ = held.release().await.unwrap();
        assert_eq!(one.status().await.unwrap().in_use, 0);
    }
}
