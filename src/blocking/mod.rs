//! The same locks for programs without a runtime: each call waits on its thread.
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
//! Everything here is the type of the same name at the root of the crate, which has the
//! documentation: what a call promises, what it costs, how it fails. A [`Request`] is sent by
//! [`wait`](Request::wait). Guards deref to a [`Lease`], and their drop never blocks.
//!
//! # The thread in the background
//!
//! All clients of the process live on one runtime, on a thread of its own that the first call
//! starts. It renews leases and releases what was dropped, while other threads wait or work. What
//! was dropped shortly before the process ends may not have been released: call
//! [`release`](WriteGuard::release), or [`Locks::shutdown`], or let the lease end it.
//!
//! A process that was forked from this one has no such thread: a call there never returns. Fork
//! before the first call, or run another program in the new process.
//!
//! # Inside of a runtime
//!
//! On a thread that belongs to a tokio runtime, where a call would stall other tasks, it is refused
//! as [`Invalid`](crate::ErrorKind::Invalid): await the async types there. Threads of tokio's
//! `spawn_blocking` are such threads as well. A guard that is dropped there is released as
//! everywhere.

mod guard;
mod leader;
mod lease;
mod locks;
mod mutex;
mod request;
mod runner;
mod rwlock;
mod semaphore;
mod ticket;
mod together;
#[cfg(feature = "legacy")]
mod two_key;

pub use guard::{
    CachedReadGuard, CachedWriteGuard, Leadership, MultiGuard, MutexGuard, QuorumGuard, ReadGuard,
    ReentrantMutexGuard, ReentrantReadGuard, ReentrantWriteGuard, SemaphoreGuard, Upgrade,
    UpgradeError, WriteGuard,
};
pub use leader::{Leader, LeaderWatch};
pub use lease::Lease;
pub use locks::{Listing, Locks};
pub use mutex::Mutex;
pub use request::Request;
pub use rwlock::{CachedRwLock, RwLock};
pub use semaphore::Semaphore;
pub use ticket::TakenUp;
pub use together::{Quorum, Reentrant};
#[cfg(feature = "legacy")]
pub use two_key::{TwoKeyGuard, TwoKeyRwLock};
