use std::time::Duration;

use rwlease_core::time::LocalInstant;

use crate::backoff::with_jitter;
use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::election::{Election, LeaderInfo};

/// The default longest pause between two queries.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The range of that pause.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3600);

/// A watch that reports each change of the leader.
///
/// Made by [`Election::observe`], read by
/// [`changed`](Self::changed).
///
/// # Cost
///
/// It polls: one round trip, which only reads, after each pause. A pause is from half of
/// [`poll_interval`](Self::poll_interval) to all of it, so that watchers do not poll in step. With
/// the default of one second that is 80 queries a minute for each watch. A change is seen at the
/// next query. Of several changes between two queries only the last is seen.
#[must_use = "a watch queries nothing until it is read"]
pub struct LeaderWatcher {
    leader: Election,
    poll_interval: Duration,
    next_look: Option<LocalInstant>,
    seen: Option<ReportedLeader>,
}

/// What was reported last.
#[derive(Debug)]
struct ReportedLeader {
    /// The leader's id, or `None` if there was no leader.
    id: Option<String>,
    /// The greatest term that a server has reported.
    term: u64,
    /// The end of the leader's lease, as it was last reported.
    ends: LocalInstant,
}

impl LeaderWatcher {
    pub(super) fn new(leader: Election) -> Self {
        LeaderWatcher { leader, poll_interval: DEFAULT_POLL_INTERVAL, next_look: None, seen: None }
    }

    /// Sets the longest pause between two queries, 10 ms to an hour. Default: one second.
    pub fn poll_interval(mut self, poll_interval: Duration) -> Self {
        self.poll_interval = poll_interval.clamp(SHORTEST, LONGEST);
        self
    }

    /// Returns the leader, or `None` if there is no leader. It waits until the leader has changed
    /// since the last call.
    ///
    /// The first call returns as soon as a server answers. Terms only increase: an answer from a
    /// server that lacks the last term, for example after a failover that lost it, names no leader.
    /// The last leader is reported as gone once its lease, as it was last seen, has ended.
    ///
    /// # Errors
    ///
    /// As [`Election::leader`]: the leader is not known. The next call continues after a pause.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no change is lost, since the next call makes the same query.
    pub async fn changed(&mut self) -> Result<Option<LeaderInfo>> {
        loop {
            let client = &self.leader.lock().client;
            if let Some(next) = self.next_look {
                client.clock.sleep_until(next).await;
            }
            let looked = self.leader.status().await;
            self.next_look =
                Some(client.clock.now().saturating_add(with_jitter(self.poll_interval)));
            let status = looked?;
            let now = client.clock.now();
            let term = status.last_token.map_or(0, FencingToken::get);
            let current = LeaderInfo::of(status);
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
    fn of(current: Option<&LeaderInfo>, term: u64, now: LocalInstant) -> ReportedLeader {
        let ends = current.map_or(now, |current| now.saturating_add(current.lease_remaining));
        ReportedLeader { id: current.map(|current| current.id.clone()), term, ends }
    }

    /// Whether `other` comes from a server that lacks the term of `self`. Its term is zero if the
    /// lock was idle for a while and was forgotten.
    fn is_newer_than(&self, other: &ReportedLeader) -> bool {
        other.term > 0 && other.term < self.term
    }
}

debug_fields!(|watcher| LeaderWatcher {
    leader: watcher.leader,
    poll_interval: watcher.poll_interval,
    seen: watcher.seen,
    ..
});

#[cfg(test)]
mod tests;
