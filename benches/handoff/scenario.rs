//! What is done with a lock of any library, and how long it took.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::lock::Lock;

/// The times from the call of `release` to the moment when the other one, who has been waiting,
/// runs.
///
/// `settled` gives the time that the other one waits before that: for a lock that polls it must
/// vary, else it is always hit at the same moment of its pause.
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

/// What came of tasks that all want the same lock, again and again.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    pub elapsed: Duration,
    /// From each call to take the lock until it was had.
    pub waits: Vec<Duration>,
    /// From then to the call that released it.
    pub holds: Vec<Duration>,
}

impl Crowd {
    pub fn add(&mut self, other: Crowd) {
        self.elapsed += other.elapsed;
        self.waits.extend(other.waits);
        self.holds.extend(other.holds);
    }
}

/// `tasks` tasks, each of which takes the lock `writes` times and holds it for a millisecond.
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
