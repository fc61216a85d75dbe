//! Reentrant locks: an owner that may acquire the same lock again, and its guards.

mod guards;
mod owned_lock;
mod owner;

pub use guards::{ReentrantReadGuard, ReentrantSetNxMutexGuard, ReentrantWriteGuard};
pub use owner::ReentrantOwner;
