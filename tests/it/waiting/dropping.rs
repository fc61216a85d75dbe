//! Requests that are dropped leave nothing behind: no holder, no place in the queue.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use rwlease::{Locks, RwLock};
use tokio::task::JoinSet;

use super::queue::{Queue, until, until_listening};
use super::{LONG, by_push, hearing, shared, soon};
use crate::support::{Cluster, ConnectBuilder, Error, Result};

const ALL: usize = 10_000;
const AT_ONCE: usize = 50;
const LOCKS: usize = 100;

/// After each of the first `FIRST_POLLS` polls, at least `DROPPED_EACH` requests are dropped.
const FIRST_POLLS: usize = 3;
const DROPPED_EACH: usize = 20;

/// Few requests need more than four.
const MOST_POLLS: usize = 12;

/// How many requests were dropped after how many polls. The next number is at most one more than
/// the highest so far, so each number gets its turn.
#[derive(Debug, Default)]
struct Drops(Mutex<BTreeMap<usize, usize>>);

impl Drops {
    fn next(&self, number: usize) -> usize {
        let most = self.0.lock().unwrap().keys().last().copied().unwrap_or(0);
        1 + number % (most + 1).min(MOST_POLLS)
    }

    fn note(&self, polls: usize) {
        *self.0.lock().unwrap().entry(polls).or_default() += 1;
    }
}

/// Polls a request this many times, as it wakes, and drops it. Returns its output if it completed
/// by then.
async fn polled<F: Future>(
    request: impl IntoFuture<IntoFuture = F>,
    times: usize,
) -> Option<F::Output> {
    let mut request = pin!(request.into_future());
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match request.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// One request of a random kind, dropped after its k-th poll. True if it completed before.
async fn drop_one(lock: RwLock, drops: Arc<Drops>) -> bool {
    let polls = drops.next(fastrand::usize(..));
    let most = Duration::from_secs(1);
    let is_done = match fastrand::u8(0..4) {
        0 => polled(lock.read().timeout(most), polls).await.is_some(),
        1 => polled(lock.write().timeout(most), polls).await.is_some(),
        2 => polled(lock.try_read(), polls).await.is_some(),
        _ => polled(lock.try_write(), polls).await.is_some(),
    };
    if !is_done {
        drops.note(polls);
    }
    is_done
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_dropped_after_any_poll_leave_nothing() -> Result {
    let cluster = shared().await?;
    let clients = [lasting(cluster).await?, lasting(cluster).await?];
    let lock = |client: usize, number: usize| {
        clients[client % 2].rwlock(format!("dropped {}", number % LOCKS))
    };
    let (mut tasks, mut done, drops) = (JoinSet::new(), 0, Arc::new(Drops::default()));
    for number in 0..ALL {
        // The server grants to waiters that are dropped while their grants are on the way.
        tasks.spawn(drop_one(lock(number, number / 3)?, drops.clone()));
        if tasks.len() >= AT_ONCE {
            done += usize::from(soon(tasks.join_next()).await?.transpose()?.unwrap_or(false));
        }
    }
    while let Some(one) = soon(tasks.join_next()).await? {
        done += usize::from(one?);
    }
    let drops = drops.0.lock().unwrap().clone();
    for polls in 1..=FIRST_POLLS {
        assert!(drops.get(&polls) >= Some(&DROPPED_EACH), "after {polls} polls: {drops:?}");
    }
    assert!(
        (ALL / 20..ALL * 19 / 20).contains(&done),
        "{done} of {ALL} were done before they were dropped"
    );
    for client in &clients {
        assert_eq!(client.shutdown(LONG).await, [""; 0]);
    }
    for number in 0..LOCKS {
        let queue = Queue::of(cluster, &lock(0, number)?).await?;
        assert!(queue.is_idle(), "{number}: {queue:?}");
    }
    Ok(())
}

/// A client whose leases and places in queues outlast the test, so that leftovers show.
async fn lasting(cluster: &Cluster) -> Result<Locks> {
    let settings = Locks::builder().lease(LONG).waiter_ttl(LONG).claim_window(LONG);
    Ok(settings.connect_to(&cluster.urls()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn request_dropped_while_its_grant_is_pushed_leaves_nothing() -> Result {
    let cluster = shared().await?;
    let holder = hearing(cluster).await?.rwlock("on its way")?;
    let waiting = by_push().connect_to(&cluster.urls()).await?.rwlock("on its way")?;
    for _ in 0..20 {
        let held = holder.write().await?;
        let mut first = Box::pin(waiting.write().into_future());
        let mut second = Box::pin(waiting.write().into_future());
        // Both requests are in the queue, and are not polled from here on.
        tokio::select! {
            done = &mut first => return Err(Error::new(format!("{done:?}"))),
            done = &mut second => return Err(Error::new(format!("{done:?}"))),
            listening = until_listening(cluster, &holder, 2) => { listening?; }
        }
        let _ = held.release().await?;
        let granted = Queue::of(cluster, &holder).await?;
        assert!(granted.writer().is_some(), "{granted:?}");
        drop((first, second));
        until(cluster, &holder, "nothing is left", Queue::is_idle).await?;
    }
    Ok(())
}
