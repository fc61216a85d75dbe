//! Locks of all kinds, and tasks that want one of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rwlease::{CachedRwLock, RwLock};
use tokio::time::sleep;

#[derive(Clone)]
pub enum Any {
    Cached(CachedRwLock),
    Plain(RwLock),
    Memory(Arc<tokio::sync::RwLock<()>>),
}

impl Any {
    async fn pair(&self, reads: bool) {
        match (self, reads) {
            (Any::Cached(lock), true) => drop(lock.read().await.expect("a guard")),
            (Any::Cached(lock), false) => drop(lock.write().await.expect("a guard")),
            (Any::Plain(lock), true) => {
                lock.read().await.expect("a guard").release().await.expect("an answer");
            }
            (Any::Plain(lock), false) => {
                lock.write().await.expect("a guard").release().await.expect("an answer");
            }
            (Any::Memory(lock), true) => drop(lock.clone().read_owned().await),
            (Any::Memory(lock), false) => drop(lock.clone().write_owned().await),
        }
    }
}

/// What came of a crowd.
pub struct Crowd {
    pairs: u64,
    elapsed: Duration,
    /// Of some of the pairs, the longest among them.
    pub waits: Vec<Duration>,
}

impl Crowd {
    pub fn per_second(&self) -> f64 {
        self.pairs as f64 / self.elapsed.as_secs_f64()
    }
}

/// So many tasks for each of these handles of one lock, which take and give it back again and
/// again.
pub async fn crowd(locks: &[Any], tasks: usize, reads: u32, time: Duration) -> Crowd {
    let begun = Instant::now();
    let until = begun + time;
    let mut running = Vec::new();
    for (client, lock) in locks.iter().enumerate() {
        for task in 0..tasks {
            let lock = lock.clone();
            running.push(tokio::spawn(async move {
                let mut random = Rng::with_seed((client * 1_000 + task) as u64);
                let (mut pairs, mut waits) = (0, Vec::new());
                let mut asked = Instant::now();
                while asked < until {
                    lock.pair(random.u32(..100) < reads).await;
                    let had = Instant::now();
                    pairs += 1;
                    waits.push(had - asked);
                    asked = had;
                }
                (pairs, waits)
            }));
        }
    }
    let mut all = Crowd { pairs: 0, elapsed: Duration::ZERO, waits: Vec::new() };
    for task in running {
        let (pairs, waits) = task.await.expect("a task failed");
        all.pairs += pairs;
        all.waits.extend(waits);
    }
    all.elapsed = begun.elapsed();
    all
}

/// One pair by each in turn, with a pause between.
pub async fn in_turn(locks: Vec<Any>, turns: usize, pause: Duration) -> Duration {
    let mut took = Duration::ZERO;
    for turn in 0..turns {
        let begun = Instant::now();
        locks[turn % locks.len()].pair(false).await;
        took += begun.elapsed();
        sleep(pause).await;
    }
    took
}
