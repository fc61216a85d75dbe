//! Distributed read/write locks for Redis Cluster.

mod clock;
mod node;
mod router;

pub use router::{CrossSlot, Slot, assert_same_slot};
