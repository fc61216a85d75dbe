//! Whether an attempt was sent, or given up before that.

use std::sync::atomic::{AtomicU64, Ordering};

/// The `not_after` with which an attempt was sent, if it was; the caller may give up at any time.
#[derive(Debug)]
pub(crate) struct SendMarker(AtomicU64);

/// Not sent so far.
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

    /// Gives the attempt up. Returns what it was sent with, or `None` if it was not sent; then it
    /// will not be.
    pub(crate) fn cancel(&self) -> Option<u64> {
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.compare_exchange(UNSENT, CANCELLED, done, otherwise);
        before.err().filter(|sent_with| *sent_with != CANCELLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task that sends confirmed calls can meet the caller that gives one up.
    #[test]
    fn give_up_of_unsent_call_prevents_send_and_of_sent_call_returns_its_limit() {
        let sent = SendMarker::default();
        assert!(sent.try_mark_sent(7));
        assert_eq!(sent.cancel(), Some(7));
        let given_up = SendMarker::default();
        assert_eq!(given_up.cancel(), None);
        assert!(!given_up.try_mark_sent(7));
        assert_eq!(given_up.cancel(), None);
        let latest = SendMarker::default();
        assert!(latest.try_mark_sent(u64::MAX));
        assert!(latest.cancel().is_some());
    }
}
