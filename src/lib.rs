//! Distributed read/write locks for Redis Cluster: fair, with fencing tokens, and usable while
//! slots move and masters fail over.
//!
//! A [`Locks`] is a client of one cluster. It makes an [`RwLock`] from a name.
//! [`read`](RwLock::read) and [`write`](RwLock::write) wait for their turn and return a guard. A
//! guard derefs to a [`Lease`], which is renewed while the guard lives, has a [fencing
//! token](Lease::token), and reports when it is [lost](Lease::lost).
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
//! # let locks = rwlease::Locks::embedded().await?;
//! // let locks = rwlease::Locks::connect(["redis://127.0.0.1:7000"]).await?;
//! let order = locks.rwlock("order:{42}")?;
//! let reading = order.read().await?;
//! println!("token {}, {:?} left", reading.token(), reading.remaining());
//! assert!(reading.release().await?.was_held());
//! # Ok(()) }
//! # #[cfg(not(feature = "embedded"))] fn main() {}
//! ```
//!
//! # What a lock is
//!
//! A lock is one hash in one slot, which only scripts change. It records the readers, the writer,
//! their deadlines, the waiters and the last fencing token. All times in it are by the server's
//! clock. A lock is a lease: a holder that stops renewing keeps the lock until its lease ends, and
//! then loses it.
//!
//! A failover can lose a lock, and a process that was stopped does not know of a loss. Then only a
//! store that refuses older fencing tokens protects the data. `docs/guarantees.md` lists what holds
//! when.
//!
//! # Observing
//!
//! The library emits events by `tracing`. With the feature `metrics` it also records counters and
//! histograms by the `metrics` facade. `docs/observing.md` lists the names. The package
//! `rwlease-cli` has the command `rwlease`, which runs commands under a lock, shows locks, and
//! looks for what would break a lock on these servers.
//!
//! # Without a runtime
//!
//! The module `blocking` (feature `blocking`) has the same locks for programs without an async
//! runtime.
//!
//! # Layers
//!
//! Locks and guards use the client's core and the protocol. Those use the router, which owns the
//! slot map and follows every redirect. The router uses nodes: each is one connection to one
//! server: the library's own, one of the `redis` or `fred` crate, or one to a server in this
//! process (feature `embedded`). `docs/architecture.md` has the details.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without a backend for servers, parts of the library are unused: the system's clock, and without
// any backend nearly everything.
#![cfg_attr(
    not(any(feature = "native", feature = "redis", feature = "fred")),
    allow(dead_code, unused_imports)
)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
// The library does not panic or print, and it reads the time by its Clock alone.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::dbg_macro,
    clippy::todo,
    clippy::disallowed_methods
)]

// The test support names the crate as its users do.
#[cfg(test)]
#[allow(unused_extern_crates)] // unused without the backends of real servers
extern crate self as rwlease;

mod backend;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(all(test, feature = "embedded"))]
mod checker;
mod client;
mod clock;
mod decimal;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod excerpt;
mod health;
mod lock;
mod protocol;
mod router;
mod slot;
mod telemetry;

#[cfg(any(feature = "native", feature = "redis"))]
pub use backend::{Credentials, CredentialsFuture, CredentialsProvider};
pub use client::cache::UncachedReason;
pub use client::lease_options::RenewalPolicy;
pub use client::loss::LeaseLoss;
pub use error::{Error, ErrorKind, Result};
pub use lock::accept_transfer::{TakeUp, TakenUp};
pub use lock::builder::Builder;
#[cfg(any(feature = "native", feature = "redis"))]
pub use lock::builder::sentinel::Sentinel;
pub use lock::cached::config::Cache;
pub use lock::cached::guard::{CachedGuard, CachedReadGuard, CachedWriteGuard};
pub use lock::cached::lease_watcher::LeaseWatch;
pub use lock::cached::request::{CachedAcquire, TryCached};
pub use lock::cached::{CachedRwLock, LocalStatus};
pub use lock::client::Locks;
pub use lock::guard::{Guard, MutexGuard, ReadGuard, Released, SemaphoreGuard, WriteGuard};
pub use lock::leader::leadership::Leadership;
pub use lock::leader::watch::LeaderWatch;
pub use lock::leader::{CurrentLeader, Leader};
pub use lock::lease::{Lease, LeaseState};
pub use lock::lock_scan::Listing;
pub use lock::multi_lock::{Multi, MultiGuard};
pub use lock::quorum::Quorum;
pub use lock::quorum::guard::QuorumGuard;
pub use lock::quorum::request::QuorumAcquire;
pub use lock::reentrant::{
    Reentrant, ReentrantMutexGuard, ReentrantReadGuard, ReentrantWriteGuard,
};
pub use lock::request::{Acquire, TryAcquire};
pub use lock::retry::Retry;
pub use lock::revoke::{ForcedRelease, Revocation};
pub use lock::rwlock::RwLock;
pub use lock::semaphore::Semaphore;
pub use lock::semaphore::status::{
    PermitHolder, PermitWaiter, SemaphoreStatus, SemaphoreStatusQuery,
};
pub use lock::set_nx_mutex::{Mutex, MutexStatus};
pub use lock::status::{Holder, Status, StatusQuery, Waiter};
pub use lock::transfer::Ticket;
#[cfg(feature = "legacy")]
pub use lock::two_key::{TwoKeyGuard, TwoKeyRwLock};
pub use lock::upgrade::{Upgrade, UpgradeError};
pub use protocol::{Fairness, LockMode, scripts};
pub use router::Script;
pub use slot::{CrossSlot, Slot, assert_same_slot};

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../docs/quick-start.md")]
struct QuickStart;

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../docs/caching.md")]
struct Caching;

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../docs/leading.md")]
struct Leading;

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../docs/handing-on.md")]
struct HandingOn;

#[cfg(all(doctest, feature = "legacy"))]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;
