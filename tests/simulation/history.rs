//! Records the requests, grants and refusals of a run, to judge its whole history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oracle::history::{Attempt, Guilt, History, Hold, Nanos, Refusal, Rule, disagreement};
use rwlease::LockMode;

use crate::census::Census;
use crate::ledger::Claim;
use crate::verdict::Court;

/// How long a server may count a client that has ended: a lease or a waiter's time to live, and the
/// delay of a call.
const GONE: Duration = Duration::from_secs(20);

/// The same if no call is lost or late: a dropped guard or request is released at once.
const GONE_IN_PEACE: Duration = Duration::from_secs(1);

/// The number of pieces of each lock's history that the search judges as well.
const PIECES: usize = 8;

#[derive(Debug, Default)]
pub struct Chronicle {
    locks: BTreeMap<usize, History>,
    /// The holds of each acquisition: the lock, and their indexes.
    places: BTreeMap<String, Vec<(usize, usize)>>,
    /// Whether no call is lost or late.
    is_peaceful: bool,
    /// The holds and the refusals in words, by their numbers.
    told: Vec<String>,
}

impl Chronicle {
    pub fn new(is_peaceful: bool) -> Chronicle {
        Chronicle { is_peaceful, ..Chronicle::default() }
    }

    /// Records a hold that was granted and has ended at these times. `acquisition` is that of its
    /// lease, if it has one lease. Without a release, the hold `stays` for that much longer.
    pub fn held(
        &mut self,
        acquisition: Option<String>,
        claim: &Claim,
        (granted, end): (Duration, Duration),
        stays: Duration,
    ) {
        let id = self.tell(format!("{claim:?}, granted at {granted:?}, until {end:?}"));
        let gone = self.gone(end + stays);
        let holds = &mut self.locks.entry(claim.lock).or_default().holds;
        if let Some(acquisition) = acquisition {
            self.places.entry(acquisition).or_default().push((claim.lock, holds.len()));
        }
        holds.push(Hold {
            id,
            writes: claim.mode == LockMode::Write,
            token: claim.token,
            // A downgrade keeps the token, and the readers of a cached lease share its token.
            shares: claim.is_shared.then_some(claim.host),
            requested: nanos(claim.since),
            granted: nanos(granted),
            end: nanos(end),
            gone,
            ..Hold::default()
        });
    }

    /// The server has reported that an acquisition is released. If calls can be late, another call
    /// of it may still run.
    pub fn given_back(&mut self, acquisition: &str, now: Duration) {
        let places = self.places.get(acquisition).filter(|_| self.is_peaceful);
        for (lock, place) in places.into_iter().flatten() {
            if let Some(history) = self.locks.get_mut(lock) {
                history.holds[*place].gone = nanos(now);
            }
        }
    }

    /// A request that failed as far as its caller knows, or whose result does not count.
    pub fn attempted(&mut self, lock: usize, since: Duration, until: Duration) {
        let gone = self.gone(until);
        self.of(lock).attempts.push(Attempt { requested: nanos(since), gone });
    }

    /// A try was refused. It `may_wait` for holders that only cache the lock.
    pub fn refused(
        &mut self,
        (lock, mode): (usize, LockMode),
        since: Duration,
        until: Duration,
        may_wait: bool,
    ) {
        let id = self.tell(format!("a try to {mode:?} lock {lock} from {since:?} to {until:?}"));
        let (requested, answered) = (nanos(since), nanos(until));
        let waited = may_wait.then(|| self.gone(until));
        let writes = mode == LockMode::Write;
        let refusal = Refusal { id, writes, permits: 0, requested, answered, waited };
        self.of(lock).refusals.push(refusal);
    }

    /// Judges all locks, except those with spoilt tokens.
    pub fn judge(&mut self, spoilt: &BTreeSet<usize>, court: &Court, census: &Census) {
        for (lock, history) in &mut self.locks {
            if spoilt.contains(lock) {
                continue;
            }
            census.count_many("a grant was judged", history.holds.len() as u64);
            census.count_many("a refusal was judged", history.refusals.len() as u64);
            for guilt in history.judge() {
                let rule = match guilt.rule {
                    Rule::Overlap | Rule::TooMany(_) => "history: no two overlapped",
                    Rule::Order | Rule::Passed => "history: tokens name the order of the grants",
                    Rule::SameToken => "history: no two have one token",
                    Rule::Refused => "history: a try is refused because of somebody",
                };
                court.accuse(rule, || pair(&self.told, &guilt));
            }
            if let Some(piece) = disagreement(history, PIECES) {
                court.accuse("history: judge and search agree", || format!("{piece:?}"));
            }
        }
    }

    /// The time after which no server counts it any more.
    fn gone(&self, end: Duration) -> Nanos {
        nanos(end + if self.is_peaceful { GONE_IN_PEACE } else { GONE })
    }

    fn of(&mut self, lock: usize) -> &mut History {
        self.locks.entry(lock).or_default()
    }

    fn tell(&mut self, what: String) -> usize {
        self.told.push(what);
        self.told.len() - 1
    }
}

fn pair(told: &[String], guilt: &Guilt) -> String {
    let second = guilt.second.map(|second| format!("; {}", told[second]));
    format!("{}{}", told[guilt.first], second.unwrap_or_default())
}

fn nanos(time: Duration) -> Nanos {
    time.as_nanos() as Nanos
}
