//! How long a connection has been quiet while something was under way on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::LocalInstant;

/// When a connection last brought anything. A server answers in order, so any answer shows that it
/// is working on the earlier calls.
///
/// One word: microseconds, and in the lowest bit whether something was sent since.
#[derive(Debug, Default)]
pub(crate) struct LastActivity(AtomicU64);

impl LastActivity {
    /// Something is sent. If everything was answered before, the quiet time begins now.
    pub(crate) fn on_send(&self, now: LocalInstant) {
        let last = self.0.load(Ordering::Relaxed);
        if last & 1 == 0 {
            let asked = now.as_micros() << 1 | 1;
            let _ = self.0.compare_exchange(last, asked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// An answer came, to any command.
    pub(crate) fn on_receive(&self, now: LocalInstant) {
        self.0.store(now.as_micros() << 1, Ordering::Relaxed);
    }

    /// Since when nothing has come, for a call that was sent at `sent` and has no answer.
    pub(crate) fn idle_since(&self, sent: LocalInstant) -> LocalInstant {
        sent.max(self.last())
    }

    /// When the last answer came, or when the first command after it was sent.
    pub(crate) fn last(&self) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_micros(self.0.load(Ordering::Relaxed) >> 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    #[test]
    fn heard_quiet_since_begins_at_first_command_and_at_each_reply() {
        let heard = LastActivity::default();
        heard.on_send(at(5));
        heard.on_send(at(7));
        assert_eq!(heard.last(), at(5));
        assert_eq!(heard.idle_since(at(7)), at(7));
        heard.on_receive(at(9));
        assert_eq!(heard.idle_since(at(7)), at(9), "the second question has no answer yet");
        heard.on_send(at(11));
        heard.on_send(at(12));
        assert_eq!(heard.last(), at(11));
    }
}
