//! Watching who leads.

use std::fmt;
use std::time::Duration;

use crate::backoff::jittered;
use crate::clock::Moment;
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
    next_look: Option<Moment>,
    seen: Option<Seen>,
}

/// What was reported last.
#[derive(Debug)]
struct Seen {
    /// The leader's id, or `None` if nobody led.
    id: Option<String>,
    /// The greatest term that a server has reported.
    term: u64,
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
    /// answers, later calls when the leader has changed. Terms only increase: an answer from an
    /// older master is ignored.
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
            self.next_look = Some(client.clock.now().after(jittered(self.every)));
            let status = looked?;
            let term = status.token;
            let current = CurrentLeader::of(status);
            let id = current.as_ref().map(|current| current.id.clone());
            if self.seen.as_ref().is_none_or(|seen| seen.is_changed(&id, term)) {
                let term = self.seen.as_ref().map_or(term, |seen| seen.term.max(term));
                self.seen = Some(Seen { id, term });
                return Ok(current);
            }
        }
    }
}

impl Seen {
    /// The term is zero if the lock was idle for a while and was forgotten. Any other lower term
    /// comes from a server that lacks the one seen.
    fn is_changed(&self, id: &Option<String>, term: u64) -> bool {
        let is_older = term > 0 && term < self.term;
        !is_older && self.id != *id
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

    #[test]
    fn what_an_older_master_tells_is_no_change() {
        let seen = Seen { id: Some("b".into()), term: 20 };
        assert!(!seen.is_changed(&Some("b".into()), 20));
        assert!(seen.is_changed(&Some("c".into()), 21));
        assert!(seen.is_changed(&None, 20), "it resigned");
        assert!(seen.is_changed(&None, 0), "it resigned, and the lock is forgotten");
        assert!(!seen.is_changed(&Some("a".into()), 10));
        assert!(!seen.is_changed(&None, 10));
    }
}
