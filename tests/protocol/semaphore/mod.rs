//! The scripts of a semaphore.

mod bench;
mod limits;
mod permits;
mod queue;
mod random;
mod strange;
