//! How often a fault was seen.

/// Out of how many tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub times: u64,
    pub tries: u64,
}

impl Seen {
    pub fn note(&mut self, was_seen: bool) {
        self.times += u64::from(was_seen);
        self.tries += 1;
    }
}

impl std::iter::Sum for Seen {
    fn sum<I: Iterator<Item = Seen>>(parts: I) -> Seen {
        parts.fold(Seen::default(), |sum, part| Seen {
            times: sum.times + part.times,
            tries: sum.tries + part.tries,
        })
    }
}
