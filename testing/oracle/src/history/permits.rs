//! Judges permits: no grant exceeds the limit, no waiter is passed, and no try is refused without a
//! reason.

use crate::history::{Guilt, History, Hold, Nanos, Refusal, Rule, Spans};

/// The time after which a request stands in its queue, unless a fault prevents it.
const ARRIVES: Nanos = 2_000_000_000;

impl Hold {
    /// The number of permits on which its holder relied at a moment. It never grows.
    fn relied(&self, at: Nanos) -> u64 {
        let kept = self.kept.iter().take_while(|(since, _)| *since <= at).last();
        u64::from(kept.map_or(self.permits, |(_, permits)| *permits))
    }
}

impl History {
    pub(super) fn judge_permits(&self, limit: u32) -> Vec<Guilt> {
        let mut guilty = self.too_many(limit);
        guilty.extend(self.passed());
        guilty.extend(self.refused_permits(limit));
        guilty
    }

    /// The grant with the lower token was made first. So a holder with a lower token that relied on
    /// permits at the answer to this grant also relied on them at the grant.
    fn too_many(&self, limit: u32) -> Vec<Guilt> {
        let mut guilty = Vec::new();
        let mut active: Vec<&Hold> = Vec::new();
        for hold in &self.holds {
            // All grants with greater tokens were made after this request.
            active.retain(|other| other.end > hold.requested);
            active.push(hold);
            let beside = active.iter().filter(|other| other.end > hold.granted);
            let relied: u64 = beside.map(|other| other.relied(hold.granted)).sum();
            if relied > limit.into() {
                guilty.push(Guilt::alone(Rule::TooMany(relied), hold.id));
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
                guilty.push(Guilt::of(Rule::Passed, hold, other));
            }
            if !hold.is_excused {
                note(&mut later, hold);
            }
        }
        guilty
    }

    fn refused_permits(&self, limit: u32) -> Vec<Guilt> {
        let (mut held, mut waiting) = (Spans::default(), Spans::default());
        for hold in &self.holds {
            held.add(hold.requested, hold.gone, hold.permits.into());
            waiting.add(hold.requested, hold.granted, 1);
        }
        for attempt in &self.attempts {
            waiting.add(attempt.requested, attempt.gone, 1);
        }
        held.sort();
        waiting.sort();
        let is_guilty = |refusal: &&Refusal| {
            let (from, until) = (refusal.requested, refusal.answered);
            let is_enough = held.sum(from, until) + u64::from(refusal.permits) <= limit.into();
            is_enough && waiting.sum(from, until) == 0
        };
        let guilty = self.refusals.iter().filter(is_guilty);
        guilty.map(|one| Guilt::alone(Rule::Refused, one.id)).collect()
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
