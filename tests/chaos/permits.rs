//! Judges the history of one semaphore by its tokens: no grant exceeds the limit, no waiter is
//! passed, and no try is refused that could have been granted. The order and the uniqueness of the
//! tokens are judged as those of readers.

use super::history::Nanos;

/// The time after which a request stands in its queue, unless a fault prevents it.
const ARRIVES: Nanos = 2_000_000_000;

/// Granted permits.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The caller's name for it.
    pub id: usize,
    pub token: u64,
    pub requested: Nanos,
    pub granted: Nanos,
    /// Its holder relied on them until then.
    pub end: Nanos,
    /// A server may count them as held until then.
    pub gone: Nanos,
    pub permits: u32,
    /// From when on its holder relied on fewer permits, and on how many.
    pub kept: Vec<(Nanos, u32)>,
    /// Whether it may have queued late, or have lost its place.
    pub is_excused: bool,
}

/// A try that was refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub id: usize,
    pub permits: u32,
    pub requested: Nanos,
    pub answered: Nanos,
}

/// The history of one semaphore.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub limit: u32,
    /// A waiter may be passed for as long, because its client does not know that its subscription
    /// has ended.
    pub unaware: Nanos,
    pub holds: Vec<Hold>,
    /// When each request that was not granted may have waited or held: from, until.
    pub attempts: Vec<(Nanos, Nanos)>,
    pub refusals: Vec<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guilt {
    /// With this grant, the holders relied on more permits than the limit.
    TooMany(usize, u64),
    /// The first was granted before the second, although the second waited when the first came.
    Passed(usize, usize),
    /// It was refused although enough permits were left and no request waited.
    Refused(usize),
}

impl Hold {
    /// The number of permits on which its holder relied at a moment. It never grows.
    fn relied(&self, at: Nanos) -> u64 {
        let kept = self.kept.iter().take_while(|(since, _)| *since <= at).last();
        u64::from(kept.map_or(self.permits, |(_, permits)| *permits))
    }
}

impl History {
    pub fn judge(&mut self) -> Vec<Guilt> {
        self.holds.sort_unstable_by_key(|hold| (hold.token, hold.granted));
        let mut guilty = self.too_many();
        guilty.extend(self.passed());
        guilty.extend(self.refused());
        guilty
    }

    /// The grant with the lower token was made first. So a holder with a lower token that relied on
    /// permits at the answer to this grant also relied on them at the grant.
    fn too_many(&self) -> Vec<Guilt> {
        let mut guilty = Vec::new();
        let mut active: Vec<&Hold> = Vec::new();
        for hold in &self.holds {
            // All grants with greater tokens were made after this request.
            active.retain(|other| other.end > hold.requested);
            active.push(hold);
            let beside = active.iter().filter(|other| other.end > hold.granted);
            let relied: u64 = beside.map(|other| other.relied(hold.granted)).sum();
            if relied > self.limit.into() {
                guilty.push(Guilt::TooMany(hold.id, relied));
            }
        }
        guilty
    }

    /// First in, first out, as far as the order of the requests is known.
    fn passed(&self) -> Vec<Guilt> {
        let mut guilty = Vec::new();
        // Of those that were granted later. Each was requested and granted after those behind it.
        let mut later: Vec<&Hold> = Vec::new();
        for hold in self.holds.iter().rev() {
            let least = if self.unaware > 0 { hold.granted + self.unaware } else { 0 };
            let long_after = later.partition_point(|other| other.granted >= least);
            if let Some(other) = later[..long_after].last()
                && other.requested + ARRIVES < hold.requested
            {
                guilty.push(Guilt::Passed(hold.id, other.id));
            }
            if !hold.is_excused {
                note(&mut later, hold);
            }
        }
        guilty
    }

    fn refused(&self) -> Vec<Guilt> {
        let (mut held, mut waiting) = (Spans::default(), Spans::default());
        for hold in &self.holds {
            held.add(hold.requested, hold.gone, hold.permits.into());
            waiting.add(hold.requested, hold.granted, 1);
        }
        for (from, until) in &self.attempts {
            waiting.add(*from, *until, 1);
        }
        held.sort();
        waiting.sort();
        let is_guilty = |refusal: &&Refusal| {
            let (from, until) = (refusal.requested, refusal.answered);
            let is_enough = held.sum(from, until) + u64::from(refusal.permits) <= self.limit.into();
            is_enough && waiting.sum(from, until) == 0
        };
        self.refusals.iter().filter(is_guilty).map(|one| Guilt::Refused(one.id)).collect()
    }
}

/// Adds a hold, unless another one was requested before it and granted after it. The last one was
/// requested first.
fn note<'a>(later: &mut Vec<&'a Hold>, hold: &'a Hold) {
    let place = later.partition_point(|other| other.requested > hold.requested);
    if later.get(place).is_some_and(|first| first.granted >= hold.granted) {
        return;
    }
    let first_dropped = later[..place].partition_point(|other| other.granted > hold.granted);
    later.splice(first_dropped..place, [hold]);
}

/// Times, each with a weight.
#[derive(Debug, Default)]
struct Spans {
    begun: Vec<(Nanos, u64)>,
    ended: Vec<(Nanos, u64)>,
}

impl Spans {
    fn add(&mut self, from: Nanos, until: Nanos, weight: u64) {
        self.begun.push((from, weight));
        self.ended.push((until, weight));
    }

    /// From here on, each weight includes all before it.
    fn sort(&mut self) {
        for ends in [&mut self.begun, &mut self.ended] {
            ends.sort_unstable();
            let mut sum = 0;
            for (_, weight) in ends {
                sum += *weight;
                *weight = sum;
            }
        }
    }

    /// The weight of the intervals that overlap this time.
    fn sum(&self, from: Nanos, until: Nanos) -> u64 {
        let begun = self.begun.partition_point(|(begin, _)| *begin <= until);
        let ended = self.ended.partition_point(|(end, _)| *end < from);
        let until = |ends: &[(Nanos, u64)], place: usize| match place {
            0 => 0,
            _ => ends[place - 1].1,
        };
        until(&self.begun, begun) - until(&self.ended, ended)
    }
}
