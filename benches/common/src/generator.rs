//! The load generator.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::Lock;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct LoadRun {
    pub elapsed: Duration,
    /// From the call that acquires to the end of the call that releases. In an open loop, from when
    /// the pair was due, or from its start if that was earlier.
    pub pairs: Vec<Duration>,
    /// If tasks share locks: the elapsed times of the pairs under way at the end of the run. Their
    /// total times are unknown.
    pub open: Vec<Duration>,
    /// The delays with which the generator started the pairs, in an open loop.
    pub start_delays: Vec<Duration>,
    /// Pairs without a measured time.
    pub untimed: usize,
    /// The processor time of the whole client, if it was measured.
    pub cpu: Option<Duration>,
}

impl LoadRun {
    pub fn per_second(&self) -> f64 {
        (self.pairs.len() + self.untimed) as f64 / self.elapsed.as_secs_f64()
    }
}

/// Whether tasks may request the same lock and wait for one another: unless there are as many locks
/// as tasks.
pub fn are_shared(locks: usize, tasks: usize) -> bool {
    tasks > 1 && locks != tasks
}

/// Runs `tasks` tasks, each of which acquires and releases a lock in a loop. Task `n` uses lock
/// `n`, or a random one if there are more locks than tasks.
///
/// Pairs under way at the end of `time` are completed: a dropped acquire of another library's lock
/// may still succeed, and is then never released. If tasks share locks, such a pair does not count,
/// nor does its time after the end, because a lock that sleeps while it waits may take much longer
/// than the others.
pub async fn closed<L: Lock>(locks: &Arc<[L]>, tasks: usize, time: Duration) -> LoadRun {
    let begun = Instant::now();
    let until = begun + time;
    let shared = are_shared(locks.len(), tasks);
    let work = |task: usize| {
        let locks = locks.clone();
        async move {
            let mut run = LoadRun::default();
            let mut turn = task;
            while Instant::now() < until {
                turn = turn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let at = if locks.len() > tasks { turn >> 33 } else { task };
                let lock = &locks[at % locks.len()];
                let asked = Instant::now();
                L::release(lock.take().await).await;
                let ended = Instant::now();
                if shared && ended > until {
                    run.open.push(until.saturating_duration_since(asked));
                } else {
                    run.pairs.push(ended - asked);
                }
            }
            run
        }
    };
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    let run = gather(begun, running).await;
    let elapsed = if shared { time } else { run.elapsed };
    LoadRun { elapsed, ..run }
}

/// Acquires and releases at fixed times, whether or not earlier pairs have ended. So a pause of the
/// system delays all pairs that are due in it, and counts for each. The timer has a resolution of a
/// millisecond, so pairs that are due within half a millisecond start at once, and are timed from
/// then.
pub async fn open<L: Lock>(locks: &Arc<[L]>, per_second: f64, time: Duration) -> LoadRun {
    let count = (time.as_secs_f64() * per_second) as usize;
    let mut running = Vec::with_capacity(count);
    let begun = Instant::now();
    for number in 0..count {
        let due = begun + Duration::from_secs_f64(number as f64 / per_second);
        if due > Instant::now() + Duration::from_micros(500) {
            sleep_until(due.into()).await;
        }
        let lock = locks[number % locks.len()].clone();
        let now = Instant::now();
        running.push(tokio::spawn(async move {
            L::release(lock.take().await).await;
            LoadRun {
                pairs: vec![due.min(now).elapsed()],
                start_delays: vec![now.saturating_duration_since(due)],
                ..LoadRun::default()
            }
        }));
    }
    gather(begun, running).await
}

async fn gather(begun: Instant, running: Vec<tokio::task::JoinHandle<LoadRun>>) -> LoadRun {
    let mut all = LoadRun::default();
    for task in running {
        let run = task.await.expect("a task failed");
        all.pairs.extend(run.pairs);
        all.open.extend(run.open);
        all.start_delays.extend(run.start_delays);
    }
    all.elapsed = begun.elapsed();
    all
}
