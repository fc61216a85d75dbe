//! An open loop: it starts a fixed number of pairs a second, whether or not earlier ones have
//! ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rwlease::Locks;
use tokio::time::{Instant, sleep};

use crate::paced_proxy::{PacedProxy, ProxyCounters};
use crate::support::Result;

/// How long a caller waits for its lock.
const TIMEOUT: Duration = Duration::from_millis(500);

const LEASE: Duration = Duration::from_secs(30);

/// The interval over which the bench judges whether the service is normal.
const BUCKET: Duration = Duration::from_millis(100);

/// The number of intervals in a row that must be normal.
const NORMAL_BUCKETS: usize = 5;

/// The tasks of the closed loop that measures the capacity.
const TASKS: usize = 256;

pub struct OpenLoop {
    locks: Locks,
    account: ProxyCounters,
    /// The number of pairs so far. Each has its own lock.
    count: u64,
}

/// The results of one stage.
pub struct LoadStage {
    pub requested: u64,
    pub in_doubt: u64,
    pub duplicate_acquires: u64,
    pub retired: u64,
    seconds: f64,
    done: u64,
    outcomes: Arc<Mutex<Outcomes>>,
}

#[derive(Default)]
struct Outcomes {
    /// When each pair was due, from the begin of the stage, and how long its acquire took.
    granted: Vec<(Duration, Duration)>,
    /// When each pair was due, and the lock's name.
    failed: Vec<(Duration, String)>,
}

impl OpenLoop {
    pub async fn connect(paced: &PacedProxy) -> Result<OpenLoop> {
        let locks = Locks::connect([paced.url()]).await?;
        let load = OpenLoop { locks, account: paced.account(), count: 0 };
        // Loads the scripts into the server.
        for number in 0..10 {
            let lock = load.locks.rwlock(format!("warm:{number}"))?;
            let _ = lock.write().await?.release().await?;
        }
        Ok(load)
    }

    /// Measures the pairs per second in a closed loop.
    pub async fn capacity(&self, long: Duration) -> f64 {
        let done = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let tasks = (0..TASKS).map(|task| {
            let (locks, done) = (self.locks.clone(), done.clone());
            async move {
                let lock = locks.rwlock(format!("closed:{task}")).expect("a name");
                while begun.elapsed() < long {
                    let guard = lock.write().await.expect("a lock");
                    let _ = guard.release().await.expect("an answer");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        for task in tasks {
            task.await.expect("a task that ends");
        }
        done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
    }

    /// Starts `a_second` pairs per second.
    pub async fn stage(&mut self, a_second: f64, long: Duration) -> LoadStage {
        let (connections, copies) = (self.account.connections(), self.account.duplicate_acquires());
        let outcomes = Arc::<Mutex<Outcomes>>::default();
        let done = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let mut asked = 0;
        while begun.elapsed() < long {
            while (asked as f64) < begun.elapsed().as_secs_f64() * a_second {
                let due = Duration::from_secs_f64(asked as f64 / a_second);
                let name = format!("overload:{}", self.count);
                let pair =
                    pair(self.locks.clone(), name, begun, due, outcomes.clone(), done.clone());
                tokio::spawn(pair);
                (asked, self.count) = (asked + 1, self.count + 1);
            }
            sleep(Duration::from_millis(1)).await;
        }
        LoadStage {
            requested: asked,
            in_doubt: 0,
            duplicate_acquires: self.account.duplicate_acquires() - copies,
            retired: self.account.connections() - connections,
            seconds: begun.elapsed().as_secs_f64(),
            done: done.load(Ordering::Relaxed),
            outcomes,
        }
    }

    /// Waits for the last pairs, and counts those failed ones that were sent.
    pub async fn settle(&self, stages: &mut [LoadStage]) {
        let connections = self.account.connections();
        sleep(4 * TIMEOUT).await;
        for stage in &mut *stages {
            let outcomes = stage.outcomes.clone();
            let outcomes = locked(&outcomes);
            let sent = |(_, name): &&(Duration, String)| {
                self.account.has_acquire_for(&format!("rwlease:{name}"))
            };
            stage.in_doubt = outcomes.failed.iter().filter(sent).count() as u64;
        }
        if let Some(last) = stages.last_mut() {
            last.retired += self.account.connections() - connections;
        }
    }
}

async fn pair(
    locks: Locks,
    name: String,
    begun: Instant,
    due: Duration,
    outcomes: Arc<Mutex<Outcomes>>,
    done: Arc<AtomicU64>,
) {
    let lock = locks.rwlock(&name).expect("a name");
    match lock.write().lease(LEASE).timeout(TIMEOUT).await {
        Ok(guard) => {
            let took = begun.elapsed().saturating_sub(due);
            locked(&outcomes).granted.push((due, took));
            if guard.release().await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
        Err(_) => locked(&outcomes).failed.push((due, name)),
    }
}

impl LoadStage {
    pub fn request_rate(&self) -> f64 {
        self.requested as f64 / self.seconds
    }

    /// Pairs per second that completed within the stage.
    pub fn completion_rate(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    pub fn failed(&self) -> usize {
        locked(&self.outcomes).failed.len()
    }

    /// The latency of acquires, in ms.
    pub fn latency(&self, quantile: f64) -> f64 {
        let mut histogram = Histogram::<u64>::new_with_max(60_000_000, 3).expect("a histogram");
        for (_, took) in &locked(&self.outcomes).granted {
            histogram.saturating_record(took.as_micros() as u64);
        }
        histogram.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The seconds until no pair failed any more and the median was at most twice `normal_ms` plus
    /// 2 ms.
    pub fn recovery_seconds(&self, normal_ms: f64) -> Option<f64> {
        let outcomes = locked(&self.outcomes);
        let bucket = |due: Duration| (due.as_secs_f64() / BUCKET.as_secs_f64()) as usize;
        let buckets = (self.seconds / BUCKET.as_secs_f64()) as usize;
        let mut took = vec![Vec::new(); buckets + 1];
        for (due, time) in &outcomes.granted {
            took[bucket(*due).min(buckets)].push(*time);
        }
        let mut normal: Vec<bool> = took
            .iter_mut()
            .map(|times| {
                times.sort_unstable();
                let median = times.get(times.len() / 2);
                median.is_some_and(|median| median.as_secs_f64() * 1000.0 <= 2.0 * normal_ms + 2.0)
            })
            .collect();
        for (due, _) in &outcomes.failed {
            normal[bucket(*due).min(buckets)] = false;
        }
        let first = normal
            .windows(NORMAL_BUCKETS)
            .position(|buckets| buckets.iter().all(|normal| *normal))?;
        Some(first as f64 * BUCKET.as_secs_f64())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
