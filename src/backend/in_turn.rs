//! Dials the addresses of a name one after another, as RFC 8305 does: the next one begins when the
//! last one has failed, or has had a head start. A dial succeeds when the server has let the client
//! in.

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
mod tests;
