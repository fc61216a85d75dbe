//! The locks for programs without an async runtime. Each call blocks its thread.
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! # fn main() -> rwlease::Result<()> {
//! use std::time::Duration;
//!
//! # let locks = rwlease::blocking::Locks::embedded()?;
//! // let locks = rwlease::blocking::Locks::connect(["redis://127.0.0.1:7000"])?;
//! let order = locks.rwlock("order:{42}")?;
//! let writing = order.write().timeout(Duration::from_secs(5)).wait()?;
//! println!("token {}, {:?} left", writing.token(), writing.remaining());
//! writing.release()?; // or drop it
//! assert!(order.try_read().wait()?.is_some());
//! # Ok(()) }
//! # #[cfg(not(feature = "embedded"))] fn main() {}
//! ```
//!
//! Each type here wraps the type of the same name at the root of the crate. That type's
//! documentation has the promises, the costs and the errors. [`wait`](Request::wait) sends a
//! [`Request`]. Guards deref to a [`Lease`], and dropping them never blocks.
//!
//! # The background thread
//!
//! All clients of the process run on one runtime, on a thread that the first call starts. It renews
//! leases and releases dropped guards while other threads wait or work. A guard that is dropped
//! shortly before the process ends may not be released: call [`release`](WriteGuard::release) or
//! [`Locks::shutdown`], or let its lease end.
//!
//! A forked process does not have this thread, so a call there never returns. Fork before the first
//! call, or execute another program in the new process.
//!
//! # Inside a runtime
//!
//! On a thread of a tokio runtime a call would stall other tasks. It fails there with
//! [`Invalid`](crate::ErrorKind::Invalid), also on threads of tokio's `spawn_blocking`. Use the
//! async types instead. Guards can be dropped on any thread.

mod background_runtime;
mod client;
mod election;
mod guard;
mod lease;
mod request;
mod rwlock;
mod semaphore;
mod set_nx_mutex;
mod together;
mod transfer;
#[cfg(feature = "legacy")]
mod two_key;

pub use client::{Listing, Locks};
pub use election::{Leader, LeaderWatch};
pub use guard::{
    CachedReadGuard, CachedWriteGuard, Leadership, MultiGuard, MutexGuard, QuorumGuard, ReadGuard,
    ReentrantMutexGuard, ReentrantReadGuard, ReentrantWriteGuard, SemaphoreGuard, Upgrade,
    UpgradeError, WriteGuard,
};
pub use lease::Lease;
pub use request::Request;
pub use rwlock::{CachedRwLock, RwLock};
pub use semaphore::Semaphore;
pub use set_nx_mutex::Mutex;
pub use together::{Quorum, Reentrant};
pub use transfer::TakenUp;
#[cfg(feature = "legacy")]
pub use two_key::{TwoKeyGuard, TwoKeyRwLock};
