//! The size of a fleet, and the behaviour of its clients.

use std::time::Duration;

/// What the fleet is made of. Each client does the same.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub masters: u16,
    pub clients: usize,
    /// Locks that a client holds all the time.
    pub held: usize,
    /// Pairs of taking and giving back that it makes in a second.
    pub pairs: f64,
    /// Locks that it has names of for these, one after another.
    pub names: usize,
    /// Locks that many wait for.
    pub crowds: usize,
    /// Tasks that want such a lock: one has it, and the others wait.
    pub crowd: usize,
    /// How long each has it.
    pub hold: Duration,
    pub lease: Duration,
}

impl Plan {
    /// Between two renewals of a lease, at most.
    pub fn renewal(&self) -> Duration {
        self.lease / 3
    }
}
