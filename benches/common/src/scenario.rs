//! Hand-offs and crowds, and their times.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Lock;

/// The times from the call of `release` until the waiter runs.
///
/// `settled` returns the time from the start of the wait to the release. For a lock that polls it
/// must vary, so that the release does not always hit the same moment of the pause.
pub async fn hand_offs<L: Lock>(
    locks: [L; 2],
    count: usize,
    settled: impl Fn() -> Duration,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    let mut held = locks[0].take().await;
    for turn in 1..=count {
        let next = locks[turn % 2].clone();
        let waiting = tokio::spawn(async move {
            let held = next.take().await;
            (held, Instant::now())
        });
        sleep(settled()).await;
        let released = Instant::now();
        L::release(held).await;
        let (next, running) = waiting.await.expect("the waiter failed");
        times.push(running.saturating_duration_since(released));
        held = next;
    }
    L::release(held).await;
    times
}

/// The times of tasks that acquire the same lock again and again.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    pub elapsed: Duration,
    /// From each call to acquire the lock until it is granted.
    pub waits: Vec<Duration>,
    /// From the grant to the call that releases the lock.
    pub holds: Vec<Duration>,
}

impl Crowd {
    pub fn add(&mut self, other: Crowd) {
        self.elapsed += other.elapsed;
        self.waits.extend(other.waits);
        self.holds.extend(other.holds);
    }
}

/// Runs `tasks` tasks, each of which acquires the lock `writes` times and holds it for a
/// millisecond.
pub async fn crowd<L: Lock>(lock: &L, tasks: usize, writes: usize) -> Crowd {
    let started = Instant::now();
    let all: Vec<_> = (0..tasks).map(|_| tokio::spawn(writer(lock.clone(), writes))).collect();
    let mut crowd = Crowd::default();
    for one in all {
        crowd.add(one.await.expect("a writer failed"));
    }
    crowd.elapsed = started.elapsed();
    crowd
}

async fn writer<L: Lock>(lock: L, writes: usize) -> Crowd {
    let mut crowd = Crowd::default();
    for _ in 0..writes {
        let asked = Instant::now();
        let held = lock.take().await;
        let taken = Instant::now();
        crowd.waits.push(taken - asked);
        sleep(Duration::from_millis(1)).await;
        crowd.holds.push(taken.elapsed());
        L::release(held).await;
    }
    crowd
}
