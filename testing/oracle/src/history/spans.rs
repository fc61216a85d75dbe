//! How much was there during a time.

use crate::history::Nanos;

/// Times, each with a weight.
#[derive(Debug, Default)]
pub(super) struct Spans {
    begun: Vec<(Nanos, u64)>,
    ended: Vec<(Nanos, u64)>,
}

impl Spans {
    pub(super) fn add(&mut self, from: Nanos, until: Nanos, weight: u64) {
        self.begun.push((from, weight));
        self.ended.push((until, weight));
    }

    /// From here on, each weight includes all before it.
    pub(super) fn sort(&mut self) {
        for ends in [&mut self.begun, &mut self.ended] {
            ends.sort_unstable();
            let mut sum = 0;
            for (_, weight) in ends {
                sum += *weight;
                *weight = sum;
            }
        }
    }

    /// The weight of the spans that overlap this time.
    pub(super) fn sum(&self, from: Nanos, until: Nanos) -> u64 {
        let begun = self.begun.partition_point(|(begin, _)| *begin <= until);
        let ended = self.ended.partition_point(|(end, _)| *end < from);
        let up_to = |ends: &[(Nanos, u64)], place: usize| match place {
            0 => 0,
            _ => ends[place - 1].1,
        };
        up_to(&self.begun, begun) - up_to(&self.ended, ended)
    }
}
