//! The scripts of a semaphore.

mod bench;
mod foreign_keys;
mod limits;
mod permits;
mod queue;
