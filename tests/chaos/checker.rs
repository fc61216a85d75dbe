//! Judges a history by itself: it knows nothing of the library but the events that the workers noted.

use std::collections::{BTreeMap, HashMap};

use rwlease::Mode;

use super::history::{Grant, History, Hold, Nanos, Outcome};

/// How many examples of each kind are kept in words.
const EXAMPLES: usize = 5;

/// One that waits for a lock whose holder is gone gets it so long after the lease has ended, at the latest: polls, a second for each waiter before it that has stopped as well (its
/// claim window), and a machine with better things to do.
const STUCK: Nanos = 10_000_000_000;

/// Something that was seen, how often, and a few of the cases in words.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub count: usize,
    pub examples: Vec<String>,
}

impl Seen {
    pub fn note(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub requests: usize,
    pub grants: usize,
    pub writes: usize,
    /// Two believed to hold at once, one of them for writing.
    pub overlaps: Seen,
    /// A token that is not above one that was granted before it was asked for, or that two have.
    pub tokens: Seen,
    /// Writes that the store accepted after one with a newer token.
    pub stale: Seen,
    /// Writes that the store refused.
    pub refused: usize,
    /// Leases that ended before their holders gave them back, and the holders knew.
    pub lost: Seen,
    /// Of those, the holders that a rival was granted before the loss was noticed; by its clock the guard had said so before.
    pub noticed_late: usize,
    /// Leases of which the release said, before they could have ended, that they are lost: grants or renewals that were acknowledged and are gone.
    pub vanished: Seen,
    /// Releases without a certain outcome.
    pub unknown: usize,
    /// Releases that failed.
    pub unreleased: Seen,
    /// Locks that were not had by those who waited, long after the lease of a holder that was gone had ended.
    pub stuck: Seen,
    /// Requests that failed, by the kind of the error.
    pub failed: BTreeMap<String, usize>,
    /// From request to grant, sorted.
    pub waits: Vec<Nanos>,
}

impl Findings {
    pub fn of(history: &History) -> Findings {
        let mut findings = Findings::default();
        let mut names: HashMap<usize, Vec<Held<'_>>> = HashMap::new();
        for hold in history.holds() {
            findings.count(hold);
            if let Some(held) = Held::of(hold, history) {
                names.entry(hold.name).or_default().push(held);
            }
        }
        findings.waits.sort_unstable();
        for holds in names.values_mut() {
            holds.sort_by_key(|held| held.grant.at);
            findings.overlaps(holds);
            findings.tokens(holds);
            findings.stale_writes(holds);
            findings.losses(holds);
            findings.stuck(holds);
        }
        findings
    }

    fn count(&mut self, hold: &Hold) {
        self.requests += 1;
        if let Some(grant) = hold.granted {
            self.grants += 1;
            self.waits.push(grant.at.saturating_sub(hold.requested));
        }
        if let Some((_, kind)) = &hold.failed {
            *self.failed.entry(kind.clone()).or_default() += 1;
        }
        self.writes += hold.writes.iter().filter(|write| write.sequence.is_some()).count();
        self.refused += hold.writes.iter().filter(|write| write.sequence.is_none()).count();
        match hold.released {
            Some((_, Outcome::Unknown)) => self.unknown += 1,
            Some((at, Outcome::Failed)) => self
                .unreleased
                .note(|| format!("the release of {} at {at} failed", shown(hold))),
            _ => {}
        }
    }

    fn overlaps(&mut self, holds: &[Held<'_>]) {
        let mut active: Vec<&Held<'_>> = Vec::new();
        for held in holds {
            active.retain(|other| other.end > held.grant.at);
            for other in &active {
                if held.hold.mode == Mode::Write || other.hold.mode == Mode::Write {
                    self.overlaps.note(|| {
                        format!(
                            "{} held until {}, and {} from {}",
                            shown(other.hold),
                            other.end,
                            shown(held.hold),
                            held.grant.at
                        )
                    });
                }
            }
            active.push(held);
        }
    }

    /// Who asks after another was granted gets a higher token.
    fn tokens(&mut self, holds: &[Held<'_>]) {
        let mut asked: Vec<&Held<'_>> = holds.iter().collect();
        asked.sort_by_key(|held| held.hold.requested);
        let mut granted = holds.iter().peekable();
        let mut highest = 0;
        for held in asked {
            while let Some(before) = granted.next_if(|before| before.grant.at < held.hold.requested) {
                highest = highest.max(before.grant.token);
            }
            if held.grant.token <= highest {
                self.tokens
                    .note(|| format!("{} has token {} after {highest}", shown(held.hold), held.grant.token));
            }
        }
        let mut by_token: Vec<&Held<'_>> = holds.iter().collect();
        by_token.sort_by_key(|held| held.grant.token);
        for pair in by_token.windows(2) {
            if pair[0].grant.token == pair[1].grant.token {
                self.tokens.note(|| {
                    format!(
                        "{} and {} have the same token {}",
                        shown(pair[0].hold),
                        shown(pair[1].hold),
                        pair[0].grant.token
                    )
                });
            }
        }
    }

    /// The store's own order, against that of the tokens.
    fn stale_writes(&mut self, holds: &[Held<'_>]) {
        let mut accepted: Vec<(u64, &Held<'_>)> = holds
            .iter()
            .flat_map(|held| {
                let sequences = held.hold.writes.iter().filter_map(|write| write.sequence);
                sequences.map(move |sequence| (sequence, held))
            })
            .collect();
        accepted.sort_by_key(|(sequence, _)| *sequence);
        let mut last = 0;
        for (sequence, held) in accepted {
            if held.grant.token < last {
                self.stale.note(|| {
                    format!(
                        "write {sequence} of {} with token {} after {last}",
                        shown(held.hold),
                        held.grant.token
                    )
                });
            }
            last = last.max(held.grant.token);
        }
    }

    fn losses(&mut self, holds: &[Held<'_>]) {
        for (number, held) in holds.iter().enumerate() {
            let known = held.hold.lost.is_some() || held.hold.ended.is_some_and(|(_, believed)| !believed);
            // One whose release came too late may have run out on the way.
            let gone = matches!(held.hold.released, Some((at, Outcome::AlreadyLost)) if at < held.grant.deadline);
            if known {
                let rival = holds[number + 1..].iter().find(|other| held.excludes(other));
                let noticed = held.hold.lost.or(held.hold.ended.map(|(at, _)| at)).unwrap_or(held.end);
                self.noticed_late += usize::from(rival.is_some_and(|rival| rival.grant.at < noticed));
                self.lost
                    .note(|| format!("{} noticed its loss at {noticed}", shown(held.hold)));
            } else if gone {
                self.vanished
                    .note(|| format!("{} was gone when it was released", shown(held.hold)));
            }
        }
    }

    /// Nobody waits long for one who is gone.
    fn stuck(&mut self, holds: &[Held<'_>]) {
        for (number, held) in holds.iter().enumerate() {
            if held.hold.ended.is_some() {
                continue;
            }
            let over = held.grant.deadline + STUCK;
            let next = holds[number + 1..].iter().find(|other| held.excludes(other));
            if let Some(next) = next
                && next.hold.requested < held.grant.deadline
                && next.grant.at > over
            {
                self.stuck.note(|| {
                    format!(
                        "{} had to wait until {} for {} whose lease ended at {}",
                        shown(next.hold),
                        next.grant.at,
                        shown(held.hold),
                        held.grant.deadline
                    )
                });
            }
        }
    }
}

/// A hold, and the end of its holder's belief in it.
struct Held<'a> {
    hold: &'a Hold,
    grant: Grant,
    end: Nanos,
}

impl<'a> Held<'a> {
    fn of(hold: &'a Hold, history: &History) -> Option<Held<'a>> {
        let grant = hold.granted?;
        let end = match hold.ended {
            Some((at, true)) => at,
            // What is noted of the deadline is a lower bound, and so is this.
            Some((at, false)) => [Some(at), hold.lost]
                .into_iter()
                .flatten()
                .fold(grant.deadline, Nanos::min),
            None => grant.deadline.min(history.lived_until(hold.worker)),
        };
        Some(Held { hold, grant, end })
    }

    fn excludes(&self, other: &Held<'_>) -> bool {
        self.hold.mode == Mode::Write || other.hold.mode == Mode::Write
    }
}

fn shown(hold: &Hold) -> String {
    let token = hold.granted.map_or(0, |grant| grant.token);
    format!(
        "worker {}'s {:?} of lock {} (token {token}, asked for at {})",
        hold.worker, hold.mode, hold.name, hold.requested
    )
}
