//! What a client costs its runtime, and what a busy runtime costs a client.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease::Locks;
use tokio::time::sleep;

use crate::support::{ConnectTo, Single};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Counts how often a future is polled.
async fn counted<T>(polls: Arc<AtomicU64>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::Relaxed);
        work.as_mut().poll(context)
    })
    .await
}

/// On a real server, whose clients use the machine's clock.
#[tokio::test]
async fn waiting_for_losses_wakes_nobody_each_second() {
    const TASKS: usize = 1_000;
    let server = Single::start().await.unwrap();
    let locks = Locks::builder().lease(60 * SECOND).connect_to(&[server.url()]).await.unwrap();
    let guard = locks.rwlock("long").unwrap().write().await.unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lease, polls) = (guard.clone(), polls.clone());
            tokio::spawn(async move { counted(polls, lease.lost()).await })
        })
        .collect();
    sleep(3500 * MS).await;
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < 2 * TASKS as u64, "{polls} polls of {TASKS} tasks");
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
}
