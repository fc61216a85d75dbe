//! Whether anything of a request, and of each attempt, was sent. A request of which nothing was
//! sent can be given up without a release.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::locks::lock;

/// Open until the request is given up or its first attempt is sent, whichever comes first.
#[derive(Debug)]
pub(crate) struct SendGate {
    state: AtomicU8,
    /// The first attempt, if another task sends it.
    first_attempt: Mutex<Option<Arc<SendMarker>>>,
}

const UNSENT: u8 = 0;
const SENT: u8 = 1;
const CLOSED: u8 = 2;

impl Default for SendGate {
    fn default() -> Self {
        SendGate { state: AtomicU8::new(UNSENT), first_attempt: Mutex::default() }
    }
}

impl SendGate {
    /// Notes that an attempt is about to be sent. Returns false if the request was given up: then
    /// nothing of it must be sent.
    #[must_use]
    pub(crate) fn pass(&self) -> bool {
        self.was_passed() || self.move_on(UNSENT, SENT) || self.was_passed()
    }

    /// As `pass`, for an attempt that another task sends when it marks it.
    #[must_use]
    pub(crate) fn pass_later(&self, attempt: &Arc<SendMarker>) -> bool {
        let mut first_attempt = lock(&self.first_attempt);
        let is_first = self.move_on(UNSENT, SENT);
        if is_first {
            *first_attempt = Some(attempt.clone());
        }
        is_first || self.was_passed()
    }

    /// That attempt has ended, and was not sent.
    pub(crate) fn take_back(&self, attempt: &Arc<SendMarker>) {
        let mut first_attempt = lock(&self.first_attempt);
        if first_attempt.take_if(|first| Arc::ptr_eq(first, attempt)).is_some() {
            self.move_on(SENT, UNSENT);
        }
    }

    /// Gives the request up. Returns true if nothing of it was sent and nothing will be sent.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let mut first_attempt = lock(&self.first_attempt);
        let is_cancelled = |attempt: Arc<SendMarker>| attempt.cancel().is_none();
        self.move_on(UNSENT, CLOSED)
            || (first_attempt.take().is_some_and(is_cancelled) && self.move_on(SENT, CLOSED))
    }

    /// Returns true if the request was given up before anything of it was sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    fn was_passed(&self) -> bool {
        self.state.load(Ordering::Acquire) == SENT
    }

    fn move_on(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The `not_after` of a sent attempt, or `None` if the attempt was not sent. The caller may drop
/// the call at any time.
#[derive(Debug)]
pub(crate) struct SendMarker(AtomicU64);

impl Default for SendMarker {
    fn default() -> Self {
        SendMarker(AtomicU64::new(SendMarker::UNSENT))
    }
}

impl SendMarker {
    /// Not sent yet.
    const UNSENT: u64 = u64::MAX;

    /// Given up before it was sent: it will not be sent.
    const CANCELLED: u64 = SendMarker::UNSENT - 1;

    /// Notes that the attempt is about to be sent with `not_after`. Returns false if the caller has
    /// given up: then it must not be sent.
    #[must_use]
    pub(crate) fn try_mark_sent(&self, not_after: u64) -> bool {
        let sent_with = not_after.min(SendMarker::CANCELLED - 1);
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(SendMarker::UNSENT, sent_with, done, otherwise).is_ok()
    }

    /// Gives the attempt up. Returns the `not_after` of a sent attempt. `None` means that the
    /// attempt was not sent and will not be sent.
    pub(crate) fn cancel(&self) -> Option<u64> {
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        let before =
            self.0.compare_exchange(SendMarker::UNSENT, SendMarker::CANCELLED, done, otherwise);
        before.err().filter(|sent_with| *sent_with != SendMarker::CANCELLED)
    }
}

#[cfg(test)]
mod tests;
