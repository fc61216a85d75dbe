//! Distributed read/write locks for Redis Cluster.

mod clock;
mod node;
mod protocol;
mod router;

pub use protocol::scripts;
pub use router::{CrossSlot, Script, Slot, assert_same_slot};
