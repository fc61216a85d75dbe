//! Whether an attempt was sent, or given up before that.

use std::sync::atomic::{AtomicU64, Ordering};

/// The `not_after` with which an attempt was sent, if it was; the caller may give up at any time.
#[derive(Debug)]
pub(crate) struct SentWith(AtomicU64);

/// Not sent so far.
const UNSENT: u64 = u64::MAX;

/// Given up before it was sent: it will not be sent.
const GIVEN_UP: u64 = UNSENT - 1;

impl Default for SentWith {
    fn default() -> Self {
        SentWith(AtomicU64::new(UNSENT))
    }
}

impl SentWith {
    /// Notes that the attempt is about to be sent with `not_after`. Returns false if the caller has
    /// given up: then it must not be sent.
    #[must_use]
    pub(crate) fn note(&self, not_after: u64) -> bool {
        let sent_with = not_after.min(GIVEN_UP - 1);
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(UNSENT, sent_with, done, otherwise).is_ok()
    }

    /// Gives the attempt up. Returns what it was sent with, or `None` if it was not sent; then it
    /// will not be.
    pub(crate) fn give_up(&self) -> Option<u64> {
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.compare_exchange(UNSENT, GIVEN_UP, done, otherwise);
        before.err().filter(|sent_with| *sent_with != GIVEN_UP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task that sends confirmed calls can meet the caller that gives one up.
    #[test]
    fn give_up_of_unsent_call_prevents_send_and_of_sent_call_returns_its_limit() {
        let sent = SentWith::default();
        assert!(sent.note(7));
        assert_eq!(sent.give_up(), Some(7));
        let given_up = SentWith::default();
        assert_eq!(given_up.give_up(), None);
        assert!(!given_up.note(7));
        assert_eq!(given_up.give_up(), None);
        let latest = SentWith::default();
        assert!(latest.note(u64::MAX));
        assert!(latest.give_up().is_some());
    }
}
