//! A clock that can be moved by hand.

use std::time::Duration;

use futures::future::{self, BoxFuture};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Clock, Moment};

/// A clock that [`advance`](ManualClock::advance) moves at once.
///
/// One that was made by [`ManualClock::running`] also follows tokio's time, so that it works in a test with paused
/// time as well as in a program. One that was made by [`ManualClock::still`] moves by hand alone: what it reads
/// depends on nothing outside the process.
#[derive(Debug)]
pub(crate) struct ManualClock {
    origin: Option<Instant>,
    advanced: watch::Sender<Duration>,
}

impl ManualClock {
    /// A clock that starts at the origin now and runs as tokio's time does.
    #[allow(clippy::disallowed_methods)] // this is a clock
    pub(crate) fn running() -> Self {
        ManualClock {
            origin: Some(Instant::now()),
            advanced: watch::Sender::new(Duration::ZERO),
        }
    }

    /// A clock that stands at the origin until it is moved.
    pub(crate) fn still() -> Self {
        ManualClock {
            origin: None,
            advanced: watch::Sender::new(Duration::ZERO),
        }
    }

    /// Moves the clock on, and wakes every sleeper whose time has come.
    pub(crate) fn advance(&self, by: Duration) {
        self.advanced
            .send_modify(|advanced| *advanced = advanced.saturating_add(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        reading(self.origin, *self.advanced.borrow())
    }

    #[allow(clippy::disallowed_methods)] // this is a clock
    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()> {
        let origin = self.origin;
        let mut advanced = self.advanced.subscribe();
        Box::pin(async move {
            loop {
                // An advance between this look and the wait below is seen by the wait.
                let left = until.since(reading(origin, *advanced.borrow_and_update()));
                if left.is_zero() {
                    return;
                }
                let moved = async {
                    if advanced.changed().await.is_err() {
                        future::pending::<()>().await; // the clock is gone: nobody moves it any more
                    }
                };
                match origin {
                    None => moved.await,
                    Some(_) => tokio::select! {
                        () = moved => {}
                        () = tokio::time::sleep(left) => {}
                    },
                }
            }
        })
    }
}

fn reading(origin: Option<Instant>, advanced: Duration) -> Moment {
    let run = origin.map(|origin| origin.elapsed()).unwrap_or_default();
    Moment::from_origin(run.saturating_add(advanced))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn an_advance_wakes_every_sleeper_whose_time_has_come() {
        let clock = Arc::new(ManualClock::still());
        let sleep = |hours| tokio::spawn(clock.sleep_until(Moment::from_origin(HOUR * hours)));
        let (first, second, third) = (sleep(1), sleep(2), sleep(3));
        tokio::task::yield_now().await;
        clock.advance(HOUR * 2);
        first.await.unwrap();
        second.await.unwrap();
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        assert_eq!(clock.now(), Moment::from_origin(HOUR * 2));
        clock.advance(HOUR);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn an_advance_before_the_first_poll_counts() {
        let clock = ManualClock::still();
        let sleep = clock.sleep_until(Moment::from_origin(HOUR));
        clock.advance(HOUR);
        sleep.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_clock_follows_tokio_and_the_hand() {
        let clock = ManualClock::running();
        clock.sleep_until(Moment::from_origin(HOUR)).await; // tokio's paused time moves by itself
        assert_eq!(clock.now(), Moment::from_origin(HOUR));
        clock.advance(HOUR);
        assert_eq!(clock.now(), Moment::from_origin(HOUR * 2));
        clock.sleep_until(Moment::from_origin(HOUR * 2)).await;
    }
}
