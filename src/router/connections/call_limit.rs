//! How many calls may be in flight on a connection: fewer, while their replies come too late.
//!
//! A server answers in order. If it needs longer for all calls in flight than a call has time, each
//! call is sent in vain, and its outcome is in doubt. So the limit is halved when a reply is late,
//! and grows by one call with each full set of other replies: additive increase, multiplicative
//! decrease, as in TCP (RFC 5681). The other calls wait in the client, and those that run out of
//! time were not sent.
//!
//! A reply is late if it misses the deadline of its call because the server has a queue: it is
//! under way for at least twice the shortest round trip of the connection. The deadline alone
//! shows nothing about the server. A call with less time than a round trip misses its deadline at
//! any limit, and if that lowered the limit, other calls would wait here until they have too little
//! time as well, and the limit would stay low for good.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rwlease_core::time::LocalInstant;
use tokio::sync::Semaphore;

use crate::locks::lock;

/// The lowest limit. So many calls are a short wait at any server but a very slow one.
const MIN_CALLS: usize = 16;

/// A call that waits here is sent only if this many of the shortest round trips are left of its
/// time, or three quarters of a time that was short from the start, and at least one. If a call
/// with enough time is late all the same, it was in a queue of the server for half of its round
/// trip, and half as many calls in flight keep the server as busy.
const MIN_ROUND_TRIPS: u32 = 2;

/// A shorter round trip shows no queue: a busy machine delays a reply by so much.
const MIN_QUEUED: Duration = Duration::from_millis(5);

/// How long a generation of round trips is, if replies are late all the time.
const GENERATION: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct CallLimit {
    /// The free permits. All permits, with those in use, are `limit + excess`.
    permits: Semaphore,
    max: usize,
    /// The shortest round trip of any command on the connection, in nanoseconds. While the limit is
    /// below `max`, it is that of the last [`GENERATION`] or two.
    shortest_round_trip: AtomicU64,
    /// The shortest one since the generation began.
    shortest_of_generation: AtomicU64,
    /// A longer round trip shows a queue, even if all round trips were long: the server may have
    /// been overloaded from the first one on.
    max_round_trip: Duration,
    /// The limit is below `max`. Read before each lock of `state`, which is idle otherwise.
    is_reduced: AtomicBool,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    limit: usize,
    /// Permits in use that end with their calls.
    excess: usize,
    /// The replies since the limit changed, without late ones.
    replies: usize,
    reduced_at: Option<LocalInstant>,
    generation_began: LocalInstant,
}

impl CallLimit {
    /// The limit of a connection with that first round trip.
    pub(super) fn new(
        max: usize,
        first_round_trip: Duration,
        max_round_trip: Duration,
    ) -> CallLimit {
        let state = LimitState {
            limit: max,
            excess: 0,
            replies: 0,
            reduced_at: None,
            generation_began: LocalInstant::default(),
        };
        CallLimit {
            permits: Semaphore::new(max),
            max,
            shortest_round_trip: AtomicU64::new(nanos(first_round_trip)),
            shortest_of_generation: AtomicU64::new(u64::MAX),
            max_round_trip,
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

    /// A reply arrived that was under way for so long, to a call or to any other command.
    pub(super) fn observe_round_trip(&self, length: Duration) {
        let length = nanos(length);
        if length < self.shortest_round_trip.load(Ordering::Relaxed) {
            self.shortest_round_trip.fetch_min(length, Ordering::Relaxed);
        }
        if self.is_reduced.load(Ordering::Relaxed) {
            self.shortest_of_generation.fetch_min(length, Ordering::Relaxed);
        }
    }

    fn shortest_round_trip(&self) -> Duration {
        Duration::from_nanos(self.shortest_round_trip.load(Ordering::Relaxed))
    }

    /// How much of the time that it has left a call that waits here keeps for its reply.
    pub(super) fn min_reply_time(&self, left: Duration) -> Duration {
        let round_trip = self.shortest_round_trip();
        (left / 4 * 3).clamp(round_trip, round_trip * MIN_ROUND_TRIPS)
    }

    /// The reply to a call arrived, and was not late.
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

    /// The reply to a call arrived after its caller had given up. That may be due to the caller's
    /// time limit alone.
    pub(super) fn on_late_reply(&self, sent: LocalInstant, received: LocalInstant) {
        match self.was_queued(sent, received) {
            true => self.reduce(sent, received),
            false => self.on_reply(),
        }
    }

    /// The time of a call ended before its reply.
    pub(super) fn on_timeout(&self, sent: LocalInstant, now: LocalInstant) {
        if self.was_queued(sent, now) {
            self.reduce(sent, now);
        }
    }

    /// Returns true if a call that was sent at `sent`, and had no reply until `now`, has been in a
    /// queue of the server.
    fn was_queued(&self, sent: LocalInstant, now: LocalInstant) -> bool {
        let queued =
            (self.shortest_round_trip() * MIN_ROUND_TRIPS).max(MIN_QUEUED).min(self.max_round_trip);
        now.saturating_duration_since(sent) >= queued
    }

    /// Halves the limit, unless fewer calls than half of it are in flight, or the call was sent
    /// before the limit was last reduced.
    fn reduce(&self, sent: LocalInstant, now: LocalInstant) {
        let mut state = lock(&self.state);
        self.age_round_trip(&mut state, now);
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

    /// Forgets round trips of before the last generation: the path to the server may have become
    /// longer. The first generation begins when the limit falls below `max`.
    fn age_round_trip(&self, state: &mut LimitState, now: LocalInstant) {
        let is_first = state.limit == self.max;
        if !is_first && now.saturating_duration_since(state.generation_began) < GENERATION {
            return;
        }
        let shortest = self.shortest_of_generation.swap(u64::MAX, Ordering::Relaxed);
        if !is_first && shortest < u64::MAX {
            self.shortest_round_trip.store(shortest, Ordering::Relaxed);
        }
        state.generation_began = now;
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
