//! Attempts without an answer, and until when a server may still carry them out.

use crate::clock::Moment;

/// Added when the limit is not known by the server's clock, since bounds of that clock are not
/// exact.
const SLACK_MS: u64 = 1_000;

/// Until when attempts without an answer may still be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InDoubt {
    /// The limit by the local clock, for all of them.
    pub(crate) until: Moment,
    /// The greatest `not_after` they were sent with, by the server's clock in ms. `None` if one of
    /// them is unknown.
    pub(crate) server_ms: Option<u64>,
}

impl InDoubt {
    /// A call whose attempts are unknown: it is under way, or was dropped.
    pub(crate) fn uncounted(until: Moment) -> Self {
        InDoubt { until, server_ms: None }
    }

    /// A call that has ended, with the greatest `not_after` of its attempts, or 0 if that is not
    /// known.
    pub(crate) fn counted(until: Moment, not_after: u64) -> Self {
        let server_ms = (not_after > 0).then_some(not_after);
        InDoubt { until, server_ms }
    }

    /// The last moment of the server's clock at which the server may carry one of them out. An
    /// answer to a call that was sent at `sent` has read `server_now`.
    pub(crate) fn server_ms(&self, server_now: u64, sent: Moment) -> u64 {
        let left = || u64::try_from(self.until.since(sent).as_millis()).unwrap_or(u64::MAX);
        self.server_ms.unwrap_or_else(|| server_now.saturating_add(left()).saturating_add(SLACK_MS))
    }
}

/// The attempts of both.
pub(crate) fn both(one: Option<InDoubt>, other: Option<InDoubt>) -> Option<InDoubt> {
    let (Some(a), Some(b)) = (one, other) else {
        return one.or(other);
    };
    let server_ms = a.server_ms.zip(b.server_ms).map(|(a, b)| a.max(b));
    let until = a.until.max(b.until);
    Some(InDoubt { until, server_ms })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_moment_that_was_sent_is_exact_and_any_other_is_guessed() {
        let exact = InDoubt::counted(at(2_000), 9_500);
        assert_eq!(exact.server_ms(9_000, at(1_700)), 9_500);
        for guessed in [InDoubt::uncounted(at(2_000)), InDoubt::counted(at(2_000), 0)] {
            assert_eq!(guessed.server_ms(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
        }
    }

    #[test]
    fn combined_in_doubt_keeps_latest_server_time_or_guesses_if_uncounted() {
        let (early, late) =
            (InDoubt::counted(at(3_000), 8_000), InDoubt::counted(at(2_000), 9_500));
        let together = both(Some(early), Some(late)).unwrap();
        assert_eq!((together.until, together.server_ms(1, at(0))), (at(3_000), 9_500));
        let guessed = both(Some(late), Some(InDoubt::uncounted(at(1_000)))).unwrap();
        assert_eq!(guessed.server_ms(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
        assert_eq!((both(None, Some(late)), both(Some(late), None)), (Some(late), Some(late)));
        assert_eq!(both(None, None), None);
    }
}
