//! The size of a fleet, and the behaviour of its clients.

use std::time::Duration;

/// The parts of a fleet. All clients are alike.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub masters: u16,
    pub clients: usize,
    /// Locks that each client holds all the time.
    pub held: usize,
    /// Uncontended pairs that each client makes per second.
    pub pairs: f64,
    /// The number of locks that it uses for these pairs, one after another.
    pub names: usize,
    /// Contended locks.
    pub crowds: usize,
    /// Tasks that contend for each of these locks: one holds it, and the others wait.
    pub crowd: usize,
    /// How long each task holds it.
    pub hold: Duration,
    pub lease: Duration,
}

impl Plan {
    /// The longest time between two renewals of a lease.
    pub fn renewal(&self) -> Duration {
        self.lease / 3
    }
}
