//! The load on a lock of any library, for the benches and for the package of the other libraries.

mod generator;
mod lock;
mod scenario;

pub use generator::{LoadRun, are_shared, closed, open};
pub use lock::Lock;
pub use scenario::{Crowd, crowd, hand_offs};
