//! How many calls may be in flight on a connection: fewer, while their replies come too late.
//!
//! A server answers in order. If it needs longer for all calls in flight than a call has time, each
//! call is sent in vain, and its outcome is in doubt. So the limit is halved when a reply is late,
//! and grows by one call with each full set of replies in time: additive increase, multiplicative
//! decrease, as in TCP (RFC 5681). The other calls wait in the client, and those that run out of
//! time were not sent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rwlease_core::time::LocalInstant;
use tokio::sync::Semaphore;

use crate::locks::lock;

/// The lowest limit. So many calls are a short wait at any server but a very slow one.
const MIN_CALLS: usize = 16;

#[derive(Debug)]
pub(super) struct CallLimit {
    /// The free permits. All permits, with those in use, are `limit + excess`.
    permits: Semaphore,
    max: usize,
    /// The limit is below `max`. Read before each lock of `state`, which is idle otherwise.
    is_reduced: AtomicBool,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    limit: usize,
    /// Permits in use that end with their calls.
    excess: usize,
    /// The replies in time since the limit changed.
    replies: usize,
    reduced_at: Option<LocalInstant>,
}

impl CallLimit {
    pub(super) fn new(max: usize) -> CallLimit {
        let state = LimitState { limit: max, excess: 0, replies: 0, reduced_at: None };
        CallLimit {
            permits: Semaphore::new(max),
            max,
            is_reduced: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(super) fn permits(&self) -> &Semaphore {
        &self.permits
    }

    /// A call has ended.
    pub(super) fn return_permit(&self) {
        if self.is_reduced.load(Ordering::Relaxed) {
            let mut state = lock(&self.state);
            if state.excess > 0 {
                state.excess -= 1;
                return;
            }
        }
        self.permits.add_permits(1);
    }

    /// The reply to a call arrived in time.
    pub(super) fn on_reply(&self) {
        if !self.is_reduced.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        state.replies += 1;
        if state.replies < state.limit || state.limit == self.max {
            return;
        }
        state.limit += 1;
        state.replies = 0;
        match state.excess.checked_sub(1) {
            Some(excess) => state.excess = excess,
            None => self.permits.add_permits(1),
        }
        self.is_reduced.store(state.limit < self.max, Ordering::Relaxed);
    }

    /// The time of a call ended before its reply. Halves the limit, unless fewer calls than half of
    /// it are in flight, or the call was sent before the limit was last reduced.
    pub(super) fn on_late_reply(&self, sent: LocalInstant, now: LocalInstant) {
        let mut state = lock(&self.state);
        let in_flight =
            (state.limit + state.excess).saturating_sub(self.permits.available_permits());
        let is_known = state.reduced_at.is_some_and(|reduced_at| sent <= reduced_at);
        if is_known || in_flight < state.limit / 2 {
            return;
        }
        let limit = (state.limit / 2).max(MIN_CALLS).min(state.limit);
        for _ in limit..state.limit {
            match self.permits.try_acquire() {
                Ok(permit) => permit.forget(),
                Err(_) => state.excess += 1,
            }
        }
        state.limit = limit;
        state.replies = 0;
        state.reduced_at = Some(now);
        self.is_reduced.store(limit < self.max, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
