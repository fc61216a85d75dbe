//! How long a connection has been quiet while something was under way on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// When a connection last brought anything. A server answers in order, so any answer shows that it
/// is working on the earlier calls.
///
/// One word: microseconds, and in the lowest bit whether something was sent since.
#[derive(Debug, Default)]
pub(crate) struct Heard(AtomicU64);

impl Heard {
    /// Something is sent. If everything was answered before, the quiet time begins now.
    pub(crate) fn asked(&self, now: Moment) {
        let last = self.0.load(Ordering::Relaxed);
        if last & 1 == 0 {
            let asked = now.micros_since_origin() << 1 | 1;
            let _ = self.0.compare_exchange(last, asked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// An answer came, to any command.
    pub(crate) fn answered(&self, now: Moment) {
        self.0.store(now.micros_since_origin() << 1, Ordering::Relaxed);
    }

    /// Since when nothing has come, for a call that was sent at `sent` and has no answer.
    pub(crate) fn quiet_since(&self, sent: Moment) -> Moment {
        sent.max(self.last())
    }

    /// When the last answer came, or when the first command after it was sent.
    pub(crate) fn last(&self) -> Moment {
        Moment::from_origin(Duration::from_micros(self.0.load(Ordering::Relaxed) >> 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn heard_quiet_since_begins_at_first_command_and_at_each_reply() {
        let heard = Heard::default();
        heard.asked(at(5));
        heard.asked(at(7));
        assert_eq!(heard.last(), at(5));
        assert_eq!(heard.quiet_since(at(7)), at(7));
        heard.answered(at(9));
        assert_eq!(heard.quiet_since(at(7)), at(9), "the second question has no answer yet");
        heard.asked(at(11));
        heard.asked(at(12));
        assert_eq!(heard.last(), at(11));
    }
}
