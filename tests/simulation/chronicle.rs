//! What was requested, granted and refused in a run, for the judge of whole histories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rwlease::Mode;

use crate::book::Claim;
use crate::census::Census;
use crate::court::Court;
use crate::judge::{Attempt, Guilt, History, Hold, Nanos, Refusal, Rule};
use crate::search::disagreement;

/// How long a server may count somebody as there who is gone: a lease or the time to live of a
/// waiter, and what a call takes to arrive.
const GONE: Duration = Duration::from_secs(20);

/// How many pieces of each lock's history are searched as well.
const PIECES: usize = 8;

#[derive(Debug, Default)]
pub struct Chronicle {
    locks: BTreeMap<usize, History>,
    /// In words, by their numbers.
    told: Vec<String>,
}

impl Chronicle {
    /// Somebody held until then.
    pub fn held(&mut self, claim: &Claim, granted: Duration, end: Duration) {
        let id = self.tell(format!("{claim:?}, granted at {granted:?}, until {end:?}"));
        self.of(claim.lock).holds.push(Hold {
            id,
            mode: claim.mode,
            token: claim.token,
            // A downgrade keeps the token, and so do the readers that are cached with it.
            shares: claim.is_shared.then_some(claim.host),
            requested: nanos(claim.since),
            granted: nanos(granted),
            end: nanos(end),
            gone: nanos(end + GONE),
        });
    }

    /// A request came to nothing, as far as its caller knows, or to nothing that counts.
    pub fn attempted(&mut self, lock: usize, since: Duration, until: Duration) {
        let id = self.told.len();
        let gone = nanos(until + GONE);
        self.of(lock).attempts.push(Attempt { id, requested: nanos(since), gone });
    }

    pub fn refused(&mut self, lock: usize, mode: Mode, since: Duration, until: Duration) {
        let id = self.tell(format!("a try to {mode:?} lock {lock} from {since:?} to {until:?}"));
        let (requested, answered) = (nanos(since), nanos(until));
        self.of(lock).refusals.push(Refusal { id, mode, requested, answered });
    }

    /// Brings what is wrong before the court. The tokens of some locks mean nothing.
    pub fn judge(&mut self, spoilt: &BTreeSet<usize>, court: &Court, census: &Census) {
        for (lock, history) in &mut self.locks {
            census.count_many("a grant was judged", history.holds.len() as u64);
            census.count_many("a refusal was judged", history.refusals.len() as u64);
            if spoilt.contains(lock) {
                history.holds.clear(); // then a refusal may have had any of them in its way
                continue;
            }
            for guilt in history.judge() {
                let rule = match guilt.rule {
                    Rule::Overlap => "history: no two overlapped",
                    Rule::Order => "history: tokens name the order of the grants",
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
