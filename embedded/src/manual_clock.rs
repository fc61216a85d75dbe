use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rwlease_core::time::LocalInstant;
use tokio::time::Instant;

use crate::locks::lock;

/// A clock that [`advance`](ManualClock::advance) moves at once.
///
/// [`ManualClock::following_tokio`] makes a clock that also follows tokio's time, so it works in a
/// test with paused time as well as in a program. [`ManualClock::frozen`] makes a clock that moves
/// by hand alone: its readings, and the order in which it wakes sleepers, depend on nothing outside
/// the process.
#[derive(Debug)]
pub struct ManualClock {
    origin: Option<Instant>,
    time: Arc<Mutex<ManualTime>>,
}

#[derive(Debug, Default)]
struct ManualTime {
    advanced: Duration,
    /// The sleepers, by the time when they wake, in the order in which they began.
    sleepers: BTreeMap<(LocalInstant, u64), Waker>,
    next_sleeper: u64,
}

impl ManualClock {
    /// A clock that starts at the origin now and follows tokio's time.
    #[allow(clippy::disallowed_methods)] // this is a clock
    pub fn following_tokio() -> Self {
        ManualClock { origin: Some(Instant::now()), time: Arc::default() }
    }

    /// A clock that stays at the origin until it is moved.
    pub fn frozen() -> Self {
        ManualClock { origin: None, time: Arc::default() }
    }

    /// Moves the clock forward, and wakes every sleeper whose time has come.
    pub fn advance(&self, by: Duration) {
        let woken = {
            let mut time = lock(&self.time);
            time.advanced = time.advanced.saturating_add(by);
            let reached = LocalInstant::from_duration(time.advanced);
            let later = match self.origin {
                None => time.sleepers.split_off(&(reached, u64::MAX)),
                // They also wait for tokio's time, and must compute again how much is left.
                Some(_) => BTreeMap::new(),
            };
            std::mem::replace(&mut time.sleepers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// When the next sleeper wakes.
    pub fn next_wake(&self) -> Option<LocalInstant> {
        lock(&self.time).sleepers.first_key_value().map(|((moment, _), _)| *moment)
    }

    /// Returns the time.
    pub fn now(&self) -> LocalInstant {
        read_clock(self.origin, lock(&self.time).advanced)
    }

    /// Returns a future that resolves when the clock has reached that moment, or a little later.
    #[allow(clippy::disallowed_methods)] // this is a clock
    pub fn sleep_until(
        &self,
        until: LocalInstant,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let time = self.time.clone();
        let Some(origin) = self.origin else {
            return Box::pin(Sleep { time, until, key: None });
        };
        Box::pin(async move {
            loop {
                let (advanced, mut moved) = {
                    let advanced = lock(&time).advanced;
                    // Its time never comes; the sleep ends when the clock is moved.
                    let until = LocalInstant::from_duration(Duration::MAX);
                    (advanced, Sleep { time: time.clone(), until, key: None })
                };
                let left = until.saturating_duration_since(read_clock(Some(origin), advanced));
                if left.is_zero() {
                    return;
                }
                let mut sleep = pin!(tokio::time::sleep(left));
                poll_fn(|context| match moved.poll_advanced(advanced, context) {
                    Poll::Pending => sleep.as_mut().poll(context),
                    ready => ready,
                })
                .await;
            }
        })
    }
}

/// Resolves when the clock is moved to that moment.
#[derive(Debug)]
struct Sleep {
    time: Arc<Mutex<ManualTime>>,
    until: LocalInstant,
    key: Option<u64>,
}

impl Sleep {
    /// Ready when the clock has been moved since it stood at `advanced`.
    fn poll_advanced(&mut self, advanced: Duration, context: &Context<'_>) -> Poll<()> {
        if lock(&self.time).advanced != advanced {
            return Poll::Ready(());
        }
        self.wait(context)
    }

    fn wait(&mut self, context: &Context<'_>) -> Poll<()> {
        let before = {
            let mut time = lock(&self.time);
            let place = *self.key.get_or_insert_with(|| {
                time.next_sleeper += 1;
                time.next_sleeper
            });
            time.sleepers.insert((self.until, place), context.waker().clone())
        };
        drop(before); // outside of the lock, because dropping a waker may drop a whole task
        Poll::Pending
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if LocalInstant::from_duration(lock(&self.time).advanced) >= self.until {
            return Poll::Ready(());
        }
        self.wait(context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.key {
            let waker = lock(&self.time).sleepers.remove(&(self.until, place));
            drop(waker);
        }
    }
}

fn read_clock(origin: Option<Instant>, advanced: Duration) -> LocalInstant {
    let run = origin.map(|origin| origin.elapsed()).unwrap_or_default();
    LocalInstant::from_duration(run.saturating_add(advanced))
}

#[cfg(test)]
mod tests;
