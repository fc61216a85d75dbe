//! Whether an attempt was sent, or given up before that.

use std::sync::atomic::{AtomicU64, Ordering};

/// The `not_after` of a sent attempt, or `None` if the attempt was not sent. The caller may drop
/// the call at any time.
#[derive(Debug)]
pub(crate) struct SendMarker(AtomicU64);

/// Not sent yet.
const UNSENT: u64 = u64::MAX;

/// Given up before it was sent: it will not be sent.
const CANCELLED: u64 = UNSENT - 1;

impl Default for SendMarker {
    fn default() -> Self {
        SendMarker(AtomicU64::new(UNSENT))
    }
}

impl SendMarker {
    /// Notes that the attempt is about to be sent with `not_after`. Returns false if the caller has
    /// given up: then it must not be sent.
    #[must_use]
    pub(crate) fn try_mark_sent(&self, not_after: u64) -> bool {
        let sent_with = not_after.min(CANCELLED - 1);
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(UNSENT, sent_with, done, otherwise).is_ok()
    }

    /// Gives the attempt up. Returns the `not_after` of a sent attempt. `None` means that the
    /// attempt was not sent and will not be sent.
    pub(crate) fn cancel(&self) -> Option<u64> {
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.compare_exchange(UNSENT, CANCELLED, done, otherwise);
        before.err().filter(|sent_with| *sent_with != CANCELLED)
    }
}

#[cfg(test)]
mod tests;
