//! The scripts of a semaphore.

mod bench;
mod fast_paths;
mod foreign_keys;
mod limits;
mod permits;
mod queue;
