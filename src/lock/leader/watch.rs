//! Watching who leads.

use std::fmt;
use std::time::Duration;

use crate::backoff::with_jitter;
use crate::clock::LocalInstant;
use crate::error::Result;
use crate::lock::leader::{CurrentLeader, Leader};

/// The default longest pause between two queries.
const EVERY: Duration = Duration::from_secs(1);

/// The range of that pause.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3600);

/// Reports each change of the leader. Made by [`Leader::watch`], read by
/// [`changed`](Self::changed).
///
/// # Cost
///
/// It polls: one round trip, which only reads, after each pause. A pause is from half of
/// [`every`](Self::every) to all of it, so that watchers do not poll in step. With the default of
/// one second that is 80 queries a minute for each watch. A change is seen at the next query. Of
/// several changes between two queries only the last is seen.
pub struct LeaderWatch {
    leader: Leader,
    every: Duration,
    next_look: Option<LocalInstant>,
    seen: Option<ReportedLeader>,
}

/// What was reported last.
#[derive(Debug)]
struct ReportedLeader {
    /// The leader's id, or `None` if nobody led.
    id: Option<String>,
    /// The greatest term that a server has reported.
    term: u64,
    /// When the leader's lease ends, as far as it was seen.
    ends: LocalInstant,
}

impl LeaderWatch {
    pub(super) fn new(leader: Leader) -> Self {
        LeaderWatch { leader, every: EVERY, next_look: None, seen: None }
    }

    /// The longest pause between two queries, 10 ms to an hour. Default: one second.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(SHORTEST, LONGEST);
        self
    }

    /// Returns the leader, or `None` if nobody leads. The first call returns as soon as a server
    /// answers, later calls when the leader has changed. Terms only increase: an answer from a
    /// server that lacks the last term, for example after a failover that lost it, names no leader.
    /// The last leader is reported as gone once its lease, as it was last seen, has ended.
    ///
    /// # Errors
    ///
    /// As [`Leader::current`]: the leader is not known. The next call goes on after a pause.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no change is lost, since the next call makes the same query.
    pub async fn changed(&mut self) -> Result<Option<CurrentLeader>> {
        loop {
            let client = &self.leader.lock().client;
            if let Some(next) = self.next_look {
                client.clock.sleep_until(next).await;
            }
            let looked = self.leader.status().await;
            self.next_look = Some(client.clock.now().saturating_add(with_jitter(self.every)));
            let status = looked?;
            let now = client.clock.now();
            let term = status.token;
            let current = CurrentLeader::of(status);
            let seen = ReportedLeader::of(current.as_ref(), term, now);
            match &mut self.seen {
                Some(known) if known.is_newer_than(&seen) => {
                    if known.id.is_some() && now >= known.ends {
                        known.id = None;
                        return Ok(None);
                    }
                }
                known => {
                    let is_changed = known.as_ref().is_none_or(|known| known.id != seen.id);
                    let term = known.as_ref().map_or(term, |known| known.term.max(term));
                    *known = Some(ReportedLeader { term, ..seen });
                    if is_changed {
                        return Ok(current);
                    }
                }
            }
        }
    }
}

impl ReportedLeader {
    fn of(current: Option<&CurrentLeader>, term: u64, now: LocalInstant) -> ReportedLeader {
        let ends = current.map_or(now, |current| now.saturating_add(current.remaining));
        ReportedLeader { id: current.map(|current| current.id.clone()), term, ends }
    }

    /// Whether `other` comes from a server that lacks the term of `self`. Its term is zero if the
    /// lock was idle for a while and was forgotten.
    fn is_newer_than(&self, other: &ReportedLeader) -> bool {
        other.term > 0 && other.term < self.term
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("leader", &self.leader)
            .field("every", &self.every)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: Option<&str>, term: u64) -> ReportedLeader {
        ReportedLeader { id: id.map(Into::into), term, ends: LocalInstant::default() }
    }

    #[test]
    fn answer_without_the_last_term_is_older() {
        let known = seen(Some("b"), 20);
        assert!(known.is_newer_than(&seen(Some("a"), 10)));
        assert!(known.is_newer_than(&seen(None, 10)));
        assert!(!known.is_newer_than(&seen(Some("b"), 20)));
        assert!(!known.is_newer_than(&seen(Some("c"), 21)));
        assert!(!known.is_newer_than(&seen(None, 20)), "it resigned");
        assert!(!known.is_newer_than(&seen(None, 0)), "it resigned, and the lock is forgotten");
    }
}
