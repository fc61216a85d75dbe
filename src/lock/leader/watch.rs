//! Watching who leads.

use std::fmt;
use std::time::Duration;

use crate::backoff::jittered;
use crate::clock::Moment;
use crate::error::Result;
use crate::lock::leader::{CurrentLeader, Leader};

/// How long it is from one look to the next at the most, unless set otherwise.
const EVERY: Duration = Duration::from_secs(1);

/// The bounds of that.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3600);

/// Tells each change of who leads. Made by [`Leader::watch`], read by [`changed`](Self::changed).
///
/// # Cost
///
/// It looks: one round trip, which only reads, after each pause. A pause is from a half to all of
/// [`every`](Self::every), so that watchers do not march in step: with the default of a second, 80
/// looks a minute for each watch. A change is seen with the next look, and of several changes
/// between two looks the last one.
pub struct LeaderWatch {
    leader: Leader,
    every: Duration,
    next_look: Option<Moment>,
    seen: Option<Seen>,
}

/// What was told last.
#[derive(Debug)]
struct Seen {
    /// Of the leader, nothing if nobody led.
    id: Option<String>,
    /// The greatest term that the server has told of.
    term: u64,
}

impl LeaderWatch {
    pub(super) fn new(leader: Leader) -> Self {
        LeaderWatch { leader, every: EVERY, next_look: None, seen: None }
    }

    /// The longest pause from one look to the next, 10 ms to an hour. Default: one second.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(SHORTEST, LONGEST);
        self
    }

    /// Who leads, the first time as soon as the server says so, and from then on when that is
    /// another one; nothing if nobody leads. Terms only rise: what an older master still tells is
    /// left out.
    ///
    /// # Errors
    ///
    /// As [`Leader::current`]: who leads is not known. The next call goes on after a pause.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no change is lost: the next call makes the same look.
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
    /// A lock that was idle for a while is forgotten, and has term zero. Any other lower term is of
    /// a server that has not heard of the one that was seen.
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
