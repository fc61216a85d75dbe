//! Judges the history of one lock by its tokens, without a search. Tokens give the order of the
//! grants, so each pair of grants whose times contradict that order is a violation, and is named.
//!
//! A grant takes effect between its request and its answer, and its end not before its holder
//! ceased to rely on it. So of two grants that exclude each other, the one with the lower token has
//! ended when the other is granted; and of any two, the one with the lower token was requested when
//! the other is granted. If that holds for each pair, some order of the grants keeps all promises:
//! the order of the tokens, with each grant as early as it may be. Readers of one process that
//! share its cached lease may share a token: they are compared with writers only.
//!
//! Holders of permits are readers, of which no more are granted than the limit of their semaphore.

#[cfg(test)]
mod agreement;
mod beliefs;
mod permits;
mod search;
mod spans;

pub use beliefs::{BELIEF_RULES, Belief, conflicts};
pub use search::disagreement;

use spans::Spans;

/// Nanoseconds, by the clock of the history.
pub type Nanos = u64;

/// A granted request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The caller's name for it.
    pub id: usize,
    pub writes: bool,
    pub token: u64,
    /// The process whose readers may share this token: set for a reader with a cached lease, and
    /// for a holder that was a writer, or may become a reader, under the same token.
    pub shares: Option<usize>,
    pub requested: Nanos,
    pub granted: Nanos,
    /// Its holder relied on it until then.
    pub end: Nanos,
    /// A server may count it as held until then.
    pub gone: Nanos,
    /// The permits of a semaphore; 0 of a lock.
    pub permits: u32,
    /// From when on its holder relied on fewer permits, and on how many.
    pub kept: Vec<(Nanos, u32)>,
    /// Whether it may have queued late, or have lost its place.
    pub is_excused: bool,
}

/// A request that failed in the end. It may still have been in the way of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub requested: Nanos,
    /// The latest time at which it may have waited or held.
    pub gone: Nanos,
}

/// A try that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: usize,
    pub writes: bool,
    /// The permits that it requested of a semaphore.
    pub permits: u32,
    pub requested: Nanos,
    pub answered: Nanos,
    /// Until when it may have stood in the queue, and in the way of others: a try queues behind
    /// holders that only cache the lock.
    pub waited: Option<Nanos>,
}

/// The history of one lock.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    pub attempts: Vec<Attempt>,
    pub refusals: Vec<Refusal>,
    /// The limit of a semaphore, whose requests are for permits.
    pub limit: Option<u32>,
    /// A waiter may be passed for as long, because its client does not know that its subscription
    /// has ended.
    pub unaware: Nanos,
}

/// The rule that a pair broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Both relied on the lock at one moment, and one of them wrote.
    Overlap,
    /// With the first, the holders relied on this many permits, which is more than the limit.
    TooMany(u64),
    /// The first has the lower token, and came after the second.
    Order,
    /// Both have one token.
    SameToken,
    /// The first was refused, and nothing can have been in its way.
    Refused,
    /// The first was granted permits before the second, which waited when the first came.
    Passed,
}

/// A violation with its pair, or with one if there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guilt {
    pub rule: Rule,
    pub first: usize,
    pub second: Option<usize>,
}

impl Guilt {
    fn of(rule: Rule, first: &Hold, second: &Hold) -> Guilt {
        Guilt { rule, first: first.id, second: Some(second.id) }
    }

    fn alone(rule: Rule, first: usize) -> Guilt {
        Guilt { rule, first, second: None }
    }
}

impl History {
    /// The guilty pairs: of grants out of order, one pair for each earlier hold.
    pub fn judge(&mut self) -> Vec<Guilt> {
        self.holds.sort_unstable_by_key(|hold| (hold.token, hold.granted, !hold.writes));
        let mut guilty = same_tokens(&self.holds);
        guilty.extend(overlaps(&self.holds));
        guilty.extend(order(&self.holds));
        match self.limit {
            Some(limit) => guilty.extend(self.judge_permits(limit)),
            None => guilty.extend(self.refused_by_nobody()),
        }
        guilty
    }

    fn refused_by_nobody(&self) -> Vec<Guilt> {
        // A waiter or a holder can block any try: a waiting writer goes before a reader, and any
        // waiter before a writer. A reader that holds blocks no reader, but its process may have
        // cached a write.
        let mut writers = Spans::default();
        let mut all = Spans::default();
        for hold in &self.holds {
            all.add(hold.requested, hold.gone, 1);
            // A reader may have waited behind others.
            let blocks_readers = hold.writes || hold.shares.is_some();
            writers.add(hold.requested, if blocks_readers { hold.gone } else { hold.granted }, 1);
        }
        let attempts = self.attempts.iter().map(|one| (one.requested, one.gone));
        let waits = self.refusals.iter().filter_map(|one| Some((one.requested, one.waited?)));
        for (from, until) in attempts.chain(waits) {
            all.add(from, until, 1);
            writers.add(from, until, 1);
        }
        writers.sort();
        all.sort();
        let is_guilty = |refusal: &&Refusal| {
            let there = if refusal.writes { &all } else { &writers };
            let itself = u64::from(refusal.waited.is_some());
            there.sum(refusal.requested, refusal.answered) <= itself
        };
        let guilty = self.refusals.iter().filter(is_guilty);
        guilty.map(|one| Guilt::alone(Rule::Refused, one.id)).collect()
    }
}

fn same_tokens(holds: &[Hold]) -> Vec<Guilt> {
    let share = |first: &Hold, second: &Hold| {
        !second.writes && first.shares.is_some() && first.shares == second.shares
    };
    let groups = holds.chunk_by(|first, second| first.token == second.token);
    let in_pairs = groups.flat_map(|group| group.windows(2));
    let guilty = in_pairs.filter(|pair| !share(&pair[0], &pair[1]));
    guilty.map(|pair| Guilt::of(Rule::SameToken, &pair[0], &pair[1])).collect()
}

/// In the order of time: each hold against those that have not ended.
fn overlaps(holds: &[Hold]) -> Vec<Guilt> {
    let mut by_time: Vec<&Hold> = holds.iter().collect();
    by_time.sort_by_key(|hold| hold.granted);
    let mut guilty = Vec::new();
    let mut active: Vec<&Hold> = Vec::new();
    for hold in by_time {
        active.retain(|other| other.end >= hold.granted);
        let guilt = |other: &&Hold| Guilt::of(Rule::Overlap, other, hold);
        let overlap = |other: &&&Hold| (other.writes || hold.writes) && contradicts(other, hold);
        guilty.extend(active.iter().filter(overlap).map(guilt));
        active.push(hold);
    }
    guilty
}

/// Whether the one with the lower token had not ended when the other was granted.
fn contradicts(one: &Hold, other: &Hold) -> bool {
    let (first, second) = if one.token <= other.token { (one, other) } else { (other, one) };
    first.end > second.granted
}

/// In the order of the tokens: each hold against the latest of those before it.
fn order(holds: &[Hold]) -> Vec<Guilt> {
    let mut guilty = Vec::new();
    // Of writers, of readers with a token of their own, and of readers that share one.
    let mut latest = [Latest::default(); 3];
    let kind = |hold: &Hold| match (hold.writes, hold.shares) {
        (true, _) => 0,
        (false, None) => 1,
        (false, Some(_)) => 2,
    };
    for group in holds.chunk_by(|first, second| first.token == second.token) {
        for hold in group {
            let before = &latest[..3 - kind(hold)];
            let requested = before.iter().filter_map(|latest| latest.requested);
            let requested = requested.max_by_key(|other| other.requested);
            let too_late = requested.filter(|other| other.requested > hold.granted);
            let excluded = if hold.writes { before } else { &before[..1] };
            let granted = excluded.iter().filter_map(|latest| latest.granted);
            let granted = granted.max_by_key(|other| (other.granted, other.end));
            let after =
                granted.filter(|other| other.granted >= hold.end && contradicts(other, hold));
            guilty.extend(too_late.or(after).map(|other| Guilt::of(Rule::Order, other, hold)));
        }
        group.iter().for_each(|hold| latest[kind(hold)].add(hold));
    }
    guilty
}

/// Of the holds so far, the one that was requested last and the one that was granted last.
#[derive(Clone, Copy, Debug, Default)]
struct Latest<'a> {
    requested: Option<&'a Hold>,
    granted: Option<&'a Hold>,
}

impl<'a> Latest<'a> {
    fn add(&mut self, hold: &'a Hold) {
        if self.requested.is_none_or(|other| other.requested < hold.requested) {
            self.requested = Some(hold);
        }
        let last = |hold: &Hold| (hold.granted, hold.end);
        if self.granted.is_none_or(|other| last(other) < last(hold)) {
            self.granted = Some(hold);
        }
    }
}
