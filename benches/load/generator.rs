//! The one generator of load. (The package of the other locks has it too.)

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};

use crate::lock::Lock;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub elapsed: Duration,
    /// From the call that takes to the end of the one that gives back; in an open loop, from when the call was due.
    pub pairs: Vec<Duration>,
    /// Of the processor, by the whole client, where that was measured.
    pub cpu: Option<Duration>,
}

impl Run {
    pub fn per_second(&self) -> f64 {
        self.pairs.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// So many tasks, each of which takes a lock and gives it back, again and again: task `n` the lock `n`, or one at random where there are more locks than
/// tasks. Where there are fewer, what is not had in time is given up.
pub async fn closed<L: Lock>(locks: &[L], tasks: usize, time: Duration) -> Run {
    let begun = Instant::now();
    let until = begun + time;
    let alone = locks.len() >= tasks;
    let work = |task: usize| {
        let locks: Vec<L> = match locks.len() {
            most if most > tasks => locks.to_vec(),
            few => vec![locks[task % few].clone()],
        };
        async move {
            let mut pairs = Vec::new();
            let mut turn = task;
            while Instant::now() < until {
                turn = turn
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e_f767_814f);
                let asked = Instant::now();
                let lock = &locks[(turn >> 33) % locks.len()];
                let held = if alone {
                    lock.take().await
                } else {
                    let Ok(held) = timeout_at(until.into(), lock.take()).await else {
                        break;
                    };
                    held
                };
                L::release(held).await;
                pairs.push(asked.elapsed());
            }
            pairs
        }
    };
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    gather(begun, running).await
}

/// Takes and gives back at fixed times, whether or not what came before is done: a pause of the system delays all that was due in it, and
/// counts for each.
pub async fn open<L: Lock>(locks: &[L], per_second: f64, time: Duration) -> Run {
    let begun = Instant::now();
    let count = (time.as_secs_f64() * per_second) as usize;
    let mut running = Vec::with_capacity(count);
    for number in 0..count {
        let due = begun + Duration::from_secs_f64(number as f64 / per_second);
        if due > Instant::now() + Duration::from_micros(500) {
            sleep_until(due.into()).await;
        }
        let lock = locks[number % locks.len()].clone();
        running.push(tokio::spawn(async move {
            L::release(lock.take().await).await;
            vec![due.elapsed()]
        }));
    }
    gather(begun, running).await
}

async fn gather(begun: Instant, running: Vec<tokio::task::JoinHandle<Vec<Duration>>>) -> Run {
    let mut run = Run::default();
    for task in running {
        run.pairs.extend(task.await.expect("a task failed"));
    }
    run.elapsed = begun.elapsed();
    run
}
