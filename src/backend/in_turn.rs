//! Dials the addresses of a name one after another, as RFC 8305 does: the next one begins when the
//! last one has failed, or has had a head start.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::clock::{Clock, SystemClock};

/// The head start of each dial. A server of a healthy network answers within it, so that a name
/// with many addresses costs one connection.
const HEAD_START: Duration = Duration::from_millis(100);

/// The time in which all dials have begun, however many there are: what limits them all is the
/// connect timeout.
const ALL_BEGUN: Duration = Duration::from_millis(500);

/// The first success. If all fail, the failure of the greatest `weight`, and of these the first.
/// `None` if there are no dials.
pub(super) async fn first_success<T, E>(
    dials: Vec<BoxFuture<'_, Result<T, E>>>,
    weight: impl Fn(&E) -> u8,
) -> Option<Result<T, E>> {
    let shares = u32::try_from(dials.len()).unwrap_or(u32::MAX).max(1);
    let head_start = HEAD_START.min(ALL_BEGUN / shares);
    let mut waiting = dials.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut heaviest: Option<E> = None;
    loop {
        under_way.extend(waiting.next());
        let late = SystemClock.sleep_until(SystemClock.now().saturating_add(head_start));
        tokio::select! {
            biased;
            outcome = under_way.next() => match outcome {
                Some(Ok(success)) => return Some(Ok(success)),
                Some(Err(failure)) => {
                    let is_heavier = |before: &E| weight(&failure) > weight(before);
                    if heaviest.as_ref().is_none_or(is_heavier) {
                        heaviest = Some(failure);
                    }
                }
                None => return heaviest.map(Err),
            },
            () = late, if waiting.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    /// Dials that count how many have begun. `None` never ends.
    fn dials<'a>(
        outcomes: &[Option<Result<u8, u8>>],
        begun: &'a AtomicUsize,
    ) -> Vec<BoxFuture<'a, Result<u8, u8>>> {
        let dial = |outcome: Option<Result<u8, u8>>| {
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await; // as a dial that takes a while
                match outcome {
                    Some(outcome) => outcome,
                    None => pending().await,
                }
            }
            .boxed()
        };
        outcomes.iter().map(|outcome| dial(*outcome)).collect()
    }

    async fn outcome(outcomes: &[Option<Result<u8, u8>>]) -> (Option<Result<u8, u8>>, usize) {
        let begun = AtomicUsize::new(0);
        let outcome = first_success(dials(outcomes, &begun), |failure| *failure).await;
        (outcome, begun.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn first_success_with_healthy_address_dials_no_other() {
        assert_eq!(outcome(&[Some(Ok(1)); 20]).await, (Some(Ok(1)), 1));
    }

    #[tokio::test]
    async fn first_success_after_failure_or_head_start_dials_next_address() {
        let (failed, hangs, good) = (Some(Err(0)), None, Some(Ok(7)));
        assert_eq!(outcome(&[failed, failed, good, good]).await, (Some(Ok(7)), 3));
        assert_eq!(outcome(&[hangs, hangs, good, good]).await, (Some(Ok(7)), 3));
        assert_eq!(outcome(&[hangs, failed, good]).await, (Some(Ok(7)), 3));
    }

    #[tokio::test]
    async fn first_success_of_many_that_hang_begins_all_within_half_a_second() {
        let mut many = vec![None; 50];
        many.push(Some(Ok(7)));
        let limit = SystemClock.now().saturating_add(Duration::from_secs(5));
        let (outcome, begun) = outcome(&many).await;
        assert_eq!((outcome, begun), (Some(Ok(7)), 51));
        assert!(SystemClock.now() < limit);
    }

    #[tokio::test]
    async fn first_success_with_no_healthy_address_returns_heaviest_error() {
        let failures = [1, 3, 2, 3].map(|weight| Some(Err(weight)));
        assert_eq!(outcome(&failures).await, (Some(Err(3)), 4));
        assert_eq!(outcome(&[]).await.0, None);
    }
}
