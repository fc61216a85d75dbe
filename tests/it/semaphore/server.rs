//! On a real server.

use std::time::Duration;

use rwlease::{ErrorKind, Semaphore};

use crate::support::{PollLimit, StandaloneServer, connect};

const LONG: Duration = Duration::from_secs(60);

async fn wait_for_waiters(semaphore: &Semaphore) {
    let wait_limit = PollLimit::new("a waiter in the queue");
    while semaphore.status().await.unwrap().waiters == 0 {
        wait_limit.pause("nobody waits").await.unwrap();
    }
}

/// One client receives pushes. The other one cannot, and polls.
#[tokio::test(flavor = "multi_thread")]
async fn semaphore_release_grants_the_next_client_by_push_or_poll() {
    let server = StandaloneServer::start().await.unwrap();
    server
        .run_words::<()>("ACL SETUSER deaf on >secret ~* &* +@all -ssubscribe -spublish")
        .await
        .unwrap();
    let deaf = server.url().replace("redis://", "redis://deaf:secret@");
    let polls = connect(&[deaf]).await.unwrap();
    let hears = connect(&[server.url()]).await.unwrap();
    for (number, other) in [&polls, &hears].into_iter().enumerate() {
        let name = format!("uploads:{number}");
        let one = hears.semaphore(&name, 4).unwrap();
        let other = other.semaphore(&name, 4).unwrap();
        let held = one.acquire(3).await.unwrap();
        let waiter = other.clone();
        let waiting = tokio::spawn(async move { waiter.acquire(2).timeout(LONG).await });
        wait_for_waiters(&one).await;
        let token = held.token();
        let _ = held.release().await.unwrap();
        let held = waiting.await.unwrap().unwrap();
        assert!(held.token() > token);
        let _ = held.release().await.unwrap();
        assert_eq!(one.status().await.unwrap().in_use, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn semaphore_of_two_clients_never_exceeds_the_limit() {
    let server = StandaloneServer::start().await.unwrap();
    let clients =
        [connect(&[server.url()]).await.unwrap(), connect(&[server.url()]).await.unwrap()];
    let in_use = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tasks = (0..16u32).map(|number| {
        let semaphore = clients[number as usize % 2].semaphore("shared", 5).unwrap();
        let in_use = in_use.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let permits = 1 + (number + round) % 5;
                let mut guard = semaphore.acquire(permits).timeout(LONG).await.unwrap();
                let before = in_use.fetch_add(permits, std::sync::atomic::Ordering::SeqCst);
                assert!(before + permits <= 5, "{before} and {permits}");
                tokio::task::yield_now().await;
                if permits > 1 {
                    in_use.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release_some(1).await.unwrap();
                }
                in_use.fetch_sub(guard.permits(), std::sync::atomic::Ordering::SeqCst);
                let _ = guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn semaphore_on_a_string_key_returns_foreign() {
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    server.run_words::<()>("SET rwlease:text something").await.unwrap();
    let error = locks.semaphore("text", 1).unwrap().acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert_eq!(server.run_words::<String>("GET rwlease:text").await.unwrap(), "something");
}
