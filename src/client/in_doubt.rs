//! Attempts without an answer, and until when a server may still carry them out.

use crate::clock::LocalInstant;

/// Added when the limit is not known by the server's clock, since bounds of that clock are not
/// exact.
const SLACK_MS: u64 = 1_000;

/// Until when attempts without an answer may still be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InDoubtUntil {
    /// The limit by the local clock, for all of them.
    pub(crate) local_deadline: LocalInstant,
    /// The greatest `not_after` they were sent with, by the server's clock in ms. `None` if one of
    /// them is unknown.
    pub(crate) max_not_after: Option<u64>,
}

impl InDoubtUntil {
    /// A call whose attempts are unknown: it is under way, or was dropped.
    pub(crate) fn local_only(until: LocalInstant) -> Self {
        InDoubtUntil { local_deadline: until, max_not_after: None }
    }

    /// A call that has ended, with the greatest `not_after` of its attempts, or 0 if that is not
    /// known.
    pub(crate) fn with_not_after(until: LocalInstant, not_after: u64) -> Self {
        let server_ms = (not_after > 0).then_some(not_after);
        InDoubtUntil { local_deadline: until, max_not_after: server_ms }
    }

    /// The last moment of the server's clock at which the server may carry one of them out. An
    /// answer to a call that was sent at `sent` has read `server_now`.
    pub(crate) fn latest_server_time(&self, server_now: u64, sent: LocalInstant) -> u64 {
        let left = || {
            u64::try_from(self.local_deadline.saturating_duration_since(sent).as_millis())
                .unwrap_or(u64::MAX)
        };
        self.max_not_after
            .unwrap_or_else(|| server_now.saturating_add(left()).saturating_add(SLACK_MS))
    }
}

/// The attempts of both.
pub(crate) fn later_of(
    one: Option<InDoubtUntil>,
    other: Option<InDoubtUntil>,
) -> Option<InDoubtUntil> {
    let (Some(a), Some(b)) = (one, other) else {
        return one.or(other);
    };
    let server_ms = a.max_not_after.zip(b.max_not_after).map(|(a, b)| a.max(b));
    let until = a.local_deadline.max(b.local_deadline);
    Some(InDoubtUntil { local_deadline: until, max_not_after: server_ms })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    #[test]
    fn in_doubt_until_is_exact_for_a_sent_not_after_and_guessed_otherwise() {
        let exact = InDoubtUntil::with_not_after(at(2_000), 9_500);
        assert_eq!(exact.latest_server_time(9_000, at(1_700)), 9_500);
        for guessed in
            [InDoubtUntil::local_only(at(2_000)), InDoubtUntil::with_not_after(at(2_000), 0)]
        {
            assert_eq!(guessed.latest_server_time(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
        }
    }

    #[test]
    fn combined_in_doubt_keeps_latest_server_time_or_guesses_if_uncounted() {
        let (early, late) = (
            InDoubtUntil::with_not_after(at(3_000), 8_000),
            InDoubtUntil::with_not_after(at(2_000), 9_500),
        );
        let together = later_of(Some(early), Some(late)).unwrap();
        assert_eq!(
            (together.local_deadline, together.latest_server_time(1, at(0))),
            (at(3_000), 9_500)
        );
        let guessed = later_of(Some(late), Some(InDoubtUntil::local_only(at(1_000)))).unwrap();
        assert_eq!(guessed.latest_server_time(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
        assert_eq!(
            (later_of(None, Some(late)), later_of(Some(late), None)),
            (Some(late), Some(late))
        );
        assert_eq!(later_of(None, None), None);
    }
}
