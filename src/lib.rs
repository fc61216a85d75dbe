//! Distributed read/write locks for Redis Cluster.

mod clock;
mod node;
mod router;

pub use router::{CrossSlot, Slot, assert_same_slot};

/// Servers in this process, for demos and for tests.
#[cfg(feature = "embedded")]
pub mod embedded {
    pub use crate::node::embedded::{Builder, Engine, Faults, Tally};
}
