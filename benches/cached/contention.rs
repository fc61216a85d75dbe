//! Locks of all kinds, and tasks that contend for one of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rwlease::{CachedRwLock, RwLock};
use tokio::time::sleep;

#[derive(Clone)]
pub enum AnyLock {
    Cached(CachedRwLock),
    Plain(RwLock),
    Memory(Arc<tokio::sync::RwLock<()>>),
}

impl AnyLock {
    async fn pair(&self, reads: bool) {
        match (self, reads) {
            (AnyLock::Cached(lock), true) => drop(lock.read().await.expect("a guard")),
            (AnyLock::Cached(lock), false) => drop(lock.write().await.expect("a guard")),
            (AnyLock::Plain(lock), true) => {
                let _ = lock.read().await.expect("a guard").release().await.expect("an answer");
            }
            (AnyLock::Plain(lock), false) => {
                let _ = lock.write().await.expect("a guard").release().await.expect("an answer");
            }
            (AnyLock::Memory(lock), true) => drop(lock.clone().read_owned().await),
            (AnyLock::Memory(lock), false) => drop(lock.clone().write_owned().await),
        }
    }
}

/// Pairs shorter than this are only counted.
const MIN_TIMED_PAIR: Duration = Duration::from_micros(50);

/// The results of a crowd.
pub struct ContentionRun {
    pairs: u64,
    elapsed: Duration,
    /// The durations of the pairs that were not short, sorted.
    timed_pairs: Vec<Duration>,
}

impl ContentionRun {
    pub fn per_second(&self) -> f64 {
        self.pairs as f64 / self.elapsed.as_secs_f64()
    }

    /// The time, in ms, that this part of the pairs did not exceed; 0 if it is a short one.
    pub fn wait(&self, part: f64) -> f64 {
        let beyond = (self.pairs as f64 * (1.0 - part)) as usize;
        let at = self.timed_pairs.len().checked_sub(beyond + 1);
        at.map_or(0.0, |at| self.timed_pairs[at].as_secs_f64() * 1e3)
    }
}

/// Starts `tasks` tasks for each of these handles of one lock. They acquire and release it again
/// and again.
pub async fn crowd(locks: &[AnyLock], tasks: usize, reads: u32, time: Duration) -> ContentionRun {
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
                    if had - asked > MIN_TIMED_PAIR {
                        waits.push(had - asked);
                    }
                    asked = had;
                }
                (pairs, waits)
            }));
        }
    }
    let mut all = ContentionRun { pairs: 0, elapsed: Duration::ZERO, timed_pairs: Vec::new() };
    for task in running {
        let (pairs, waits) = task.await.expect("a task failed");
        all.pairs += pairs;
        all.timed_pairs.extend(waits);
    }
    all.elapsed = begun.elapsed();
    all.timed_pairs.sort_unstable();
    all
}

/// For each handle, acquires the lock `each` times a second in each mode, at random times. Returns
/// the mean wait of a pair, in ms.
pub async fn at_rate(locks: &[AnyLock], each: u32, time: Duration) -> f64 {
    let until = Instant::now() + time;
    let running: Vec<_> = locks
        .iter()
        .cloned()
        .enumerate()
        .flat_map(|(number, lock)| {
            [true, false].map(|reads| {
                let lock = lock.clone();
                tokio::spawn(async move {
                    let mut random = Rng::with_seed(number as u64 * 2 + u64::from(reads));
                    let (mut pairs, mut waited) = (0, Duration::ZERO);
                    while Instant::now() < until {
                        let pause = 2.0 * random.f64() / f64::from(each);
                        sleep(Duration::from_secs_f64(pause)).await;
                        let asked = Instant::now();
                        lock.pair(reads).await;
                        waited += asked.elapsed();
                        pairs += 1;
                    }
                    (pairs, waited)
                })
            })
        })
        .collect();
    let (mut pairs, mut waited) = (0, Duration::ZERO);
    for task in running {
        let (more, time) = task.await.expect("a task failed");
        pairs += more;
        waited += time;
    }
    waited.as_secs_f64() * 1e3 / f64::from(pairs.max(1))
}

/// Each handle in turn acquires and releases the lock, with a pause between. Returns the time
/// without the pauses.
pub async fn round_robin(locks: Vec<AnyLock>, turns: usize, pause: Duration) -> Duration {
    let mut took = Duration::ZERO;
    for turn in 0..turns {
        let begun = Instant::now();
        locks[turn % locks.len()].pair(false).await;
        took += begun.elapsed();
        sleep(pause).await;
    }
    took
}
