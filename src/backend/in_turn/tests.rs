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
async fn connect_first_of_many_that_hang_begins_all_within_half_a_second() {
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
