//! Distributed read/write locks for Redis Cluster: fair, with fencing tokens, and usable while
//! slots move and masters fail over.
//!
//! A lock is a lease that the server grants and the client renews: a holder that dies keeps the
//! lock until its lease ends, and a guard reports the loss of its lease. It works on Redis 6.2 and
//! later and on Valkey, with a cluster, a single server, or servers behind Sentinel.
//!
//! # Example
//!
//! ```
//! # async fn save(_state: &str, _token: rwlease::FencingToken) {}
//! # #[cfg(feature = "embedded")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
//! use std::time::Duration;
//!
//! # let client = rwlease::Client::embedded().await?;
//! # #[cfg(any())] {
//! let client = rwlease::Client::connect(["redis://127.0.0.1:7000"]).await?; // any node
//! # }
//! let order = client.rwlock("order:{42}")?; // `{42}` chooses the slot
//! let guard = order.write().timeout(Duration::from_secs(5)).await?;
//! save("paid", guard.fencing_token()).await; // the store refuses a lower token
//! assert!(guard.release().await?.was_held()); // a drop releases it, too
//! # Ok(()) }
//! # #[cfg(not(feature = "embedded"))] fn main() {}
//! ```
//!
//! A [`Client`] is a client of one cluster. A process needs one, and its clones share everything.
//! Each request is a builder that is sent when it is awaited: [`Acquire`] has its options, such as
//! [`timeout`](Acquire::timeout) and [`lease`](Acquire::lease). A request can be dropped at any
//! point: it leaves no lock and no place in the queue. [`run_while_held`](Acquire::run_while_held)
//! runs a closure under the lock, and cancels it when the lease is lost.
//!
//! # Kinds of locks
//!
//! | you want | type |
//! | --- | --- |
//! | many readers or one writer | [`RwLock`], by [`Client::rwlock`] |
//! | one holder at a time | [`Mutex`], by [`Client::mutex`] |
//! | a lock that one process takes again and again | [`CachedRwLock`], by [`RwLock::cached`] |
//! | a limit of how much runs at a time | [`Semaphore`], by [`Client::semaphore`] |
//! | one leader of many candidates | [`Election`], by [`Client::election`] |
//! | several locks, all or none | [`MultiLock`], by [`Client::multi_lock`] |
//! | a lock that its owner may take again | [`ReentrantOwner`], by [`Client::reentrant_owner`] |
//! | a lock that another process goes on with | [`LeaseTransfer`], by [`into_transfer`] |
//! | a majority of independent servers | [`Redlock`], by [`Redlock::new`] |
//! | the lock of `SET NX PX` of other libraries | [`SetNxMutex`], by [`Client::set_nx_mutex`] |
//! | a value that refuses stale holders | [`FencedValue`], by [`RwLock::fenced_value`] |
//! | to see and to remove holders | [`RwLock::status`], [`RwLock::revoke`], [`Client::scan`] |
//! | locks without an async runtime | `blocking::Wait` (feature `blocking`), for all of these |
//!
//! [`into_transfer`]: WriteGuard::into_transfer
//!
//! # Losses and errors
//!
//! A guard derefs to a [`Lease`]. [`Lease::ended`] completes and [`Lease::cancellation_token`] is
//! cancelled when the lease is lost. While the server keeps the lease, that is before the server
//! grants the lock to another client. If the server no longer has the lease (a failover, a restart,
//! a forced release, a deleted or evicted key), the guard learns of the loss at its next renewal at
//! the latest, a third of the lease later. Another client may hold the lock by then.
//! [`ClientBuilder::on_lease_lost`] reports every loss of a client. [`ReleaseOutcome`] says whether
//! the lock was held until its release.
//!
//! A failover can lose a lock, and a process that was stopped does not know of a loss. Then only a
//! store that refuses lower [fencing tokens](FencingToken) protects the data, for example a
//! [`FencedValue`].
//!
//! Calls fail with one type, [`Error`]. An upgrade fails with [`UpgradeError`], which also has the
//! guard that still reads. The [`kind`](Error::kind) says what to do: after
//! [`TimedOut`](ErrorKind::TimedOut), [`AttemptsExhausted`](ErrorKind::AttemptsExhausted),
//! [`QueueFull`](ErrorKind::QueueFull) and [`Unavailable`](ErrorKind::Unavailable) try later;
//! [`LeaseLost`](ErrorKind::LeaseLost) and [`StaleToken`](ErrorKind::StaleToken) mean stop.
//! `docs/errors.md` has all kinds.
//!
//! # Tests without a server
//!
//! With the feature `embedded`, `Client::embedded()` runs the same scripts on servers in the
//! process. The module `embedded` has their clock, which a test can set, and their faults, which a
//! test can plan.
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! # mod example {
//! #[tokio::test]
//! async fn writers_exclude_each_other() -> rwlease::Result<()> {
//!     let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
//!     let _guard = order.write().await?;
//!     assert!(order.try_write().await?.is_none());
//!     Ok(())
//! }
//! # }
//! ```
//!
//! # Features
//!
//! Only `native` is on by default. Features only add: none changes what a call does.
//!
//! | feature | adds |
//! | --- | --- |
//! | `native` | the library's own connections, by `Client::connect` and `ClientBuilder::connect` |
//! | `redis` | connections by the `redis` crate, by `ClientBuilder::connect_redis` |
//! | `tls` | TLS for both, by rustls with the system's root certificates |
//! | `fred` | connections by the `fred` crate, by `ClientBuilder::connect_fred` |
//! | `fred-tls` | TLS for these, by rustls |
//! | `cluster-async` | not needed for a cluster: locks over a connection that promises less |
//! | `embedded` | servers in the process, for tests. It builds Lua with a C compiler |
//! | `blocking` | the module `blocking`: threads without an async runtime wait for each request |
//! | `metrics` | counters and histograms, by the `metrics` facade |
//! | `legacy` | `TwoKeyRwLock`, the two-key lock of older fleets |
//!
//! `Client::connect` serves a cluster without `cluster-async`. That feature adds `connect_shared`,
//! for locks over a cluster connection that the application has already: `docs/backends.md` says
//! what such locks do not promise.
//!
//! The library emits events by `tracing` without any feature.
//!
//! # Read on
//!
//! The repository has these pages:
//!
//! - `docs/quick-start.md` has first steps for services, operators and other languages.
//! - `docs/choosing.md` helps to choose a lock, its name and its lease.
//! - `docs/guarantees.md` lists what holds when, and what is not promised.
//! - `docs/options.md` lists the options of clients and requests, with their defaults and ranges.
//! - `docs/other-locks.md` has an example of each kind of lock without a page of its own.
//! - `docs/errors.md` has what to do about each kind of error.
//! - `docs/rwlock.md` and `docs/work.md` have upgrades, outcomes of a release, and work that fails.
//! - `docs/testing.md` has tests with servers in the process.
//! - `docs/migrating.md` has ways from other locks.
//! - `docs/fencing.md` has stores that refuse stale holders: here, in SQL, in a script of your own.
//! - `docs/caching.md`, `docs/semaphore.md`, `docs/leader-election.md` and `docs/transfer.md` are
//!   about one kind of lock each.
//! - `docs/jobs.md` has recipes for jobs that run once per period on one of several machines.
//! - `docs/operating.md`, `docs/deployments.md` and `docs/observing.md` are for operators: rights,
//!   settings of servers, events and metrics.
//! - `docs/protocol.md` and `docs/architecture.md` describe how it works.
//!
//! The package `rwlease-cli` has the command `rwlease`, which runs programs under a lock, shows
//! locks, and checks whether the servers are fit for locks.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without a backend for servers, parts of the library are unused: the system's clock, and without
// any backend nearly everything.
#![cfg_attr(
    not(any(feature = "native", feature = "redis", feature = "fred")),
    allow(dead_code, unused_imports)
)]
#![warn(missing_docs, missing_debug_implementations)]
// What the project's own tests need is `pub` in private modules, and exported by `testing` alone.
#![cfg_attr(feature = "__testing", warn(unreachable_pub))]
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

/// The methods `name` and `slot` of a handle, whose lock is in the field.
macro_rules! name_and_slot {
    ($handle:literal, $($field:ident).+) => {
        #[doc = concat!("Returns the ", $handle, "'s name, as given.")]
        pub fn name(&self) -> &str {
            &self.$($field).+.name
        }

        #[doc = concat!("Returns the slot of the ", $handle, "'s key.")]
        pub fn slot(&self) -> rwlease_core::slot::Slot {
            self.$($field).+.slot
        }
    };
}

/// Implements `Debug` as the struct literal says. With `..` at the end, some fields are not shown.
/// Parameters are written `Type::<'_, G>`, so that rustfmt reads an expression.
macro_rules! debug_fields {
    (
        |$value:tt| $type:ident $(::<$life:lifetime $(, $kind:ident)?>)?
        { $($field:ident: $shown:expr,)* .. }
    ) => {
        debug_fields! {
            |$value| $type $(<$life $(, $kind)?>)?, finish_non_exhaustive, $($field: $shown),*
        }
    };
    (
        |$value:tt| $type:ident $(::<$life:lifetime $(, $kind:ident)?>)?
        { $($field:ident: $shown:expr),* $(,)? }
    ) => {
        debug_fields!(|$value| $type $(<$life $(, $kind)?>)?, finish, $($field: $shown),*);
    };
    (
        |$value:tt| $type:ident $(<$life:lifetime $(, $kind:ident)?>)?, $end:ident,
        $($field:ident: $shown:expr),*
    ) => {
        impl $($(<$kind>)?)? std::fmt::Debug for $type $(<$life $(, $kind)?>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $value = self;
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &$shown))*.$end()
            }
        }
    };
}

#[cfg_attr(feature = "__testing", allow(missing_docs, missing_debug_implementations))]
mod backend;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod call_error;
#[cfg_attr(feature = "__testing", allow(missing_docs))]
mod client;
#[cfg_attr(feature = "__testing", allow(missing_docs))]
mod clock;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod fencing_token;
#[cfg_attr(feature = "__testing", allow(missing_debug_implementations))]
mod health;
mod lock;
mod locks;
mod on_drop;
#[cfg_attr(feature = "__testing", allow(missing_docs))]
mod router;
#[cfg_attr(feature = "__testing", allow(missing_docs))]
mod scripts;
mod telemetry;
#[cfg(feature = "__testing")]
#[doc(hidden)]
pub mod testing;

#[cfg(any(feature = "native", feature = "redis"))]
pub use backend::{Credentials, CredentialsFuture, CredentialsProvider};
pub use client::cache::cache_config::CacheConfig;
pub use client::loss::LeaseLoss;
pub use error::{Error, ErrorKind, Result};
pub use fencing_token::FencingToken;
pub use lock::accept_transfer::TransferredGuard;
pub use lock::builder::ClientBuilder;
#[cfg(any(feature = "native", feature = "redis"))]
pub use lock::builder::sentinel::SentinelConfig;
pub use lock::cached::CachedRwLock;
pub use lock::client::Client;
pub use lock::election::Election;
pub use lock::election::leader_guard::LeaderGuard;
pub use lock::fenced::FencedValue;
pub use lock::fenced::writer::FencedWriter;
pub use lock::guard::{
    MutexGuard, ReadGuard, ReleaseOutcome, SemaphorePermit, SetNxMutexGuard, WriteGuard,
};
pub use lock::lease::{Lease, LeaseState};
pub use lock::multi_lock::{MultiLock, MultiLockGuard};
pub use lock::mutex::Mutex;
pub use lock::redlock::Redlock;
pub use lock::redlock::guard::RedlockGuard;
pub use lock::reentrant::ReentrantOwner;
pub use lock::request::{Acquire, TryAcquire};
pub use lock::retry::RetryPolicy;
pub use lock::rwlock::RwLock;
pub use lock::semaphore::Semaphore;
pub use lock::semaphore::status::SemaphoreStatus;
pub use lock::set_nx_mutex::SetNxMutex;
pub use lock::status::LockStatus;
pub use lock::transfer::LeaseTransfer;
#[cfg(feature = "legacy")]
pub use lock::two_key::TwoKeyRwLock;
pub use lock::upgrade::{UpgradeAttempt, UpgradeError};
#[doc(inline)]
pub use rwlease_core::{
    acquisition::RenewalPolicy,
    protocol::{Fairness, Fsync, LockMode},
    slot::{CrossSlotError, Slot},
};
pub use scripts::{Script, scripts};

/// Guards that few programs name: those of cached and reentrant locks, and views of leases.
pub mod guard {
    pub use crate::lock::cached::guard::{CachedGuard, CachedReadGuard, CachedWriteGuard};
    pub use crate::lock::cached::lease_watcher::LeaseWatcher;
    pub use crate::lock::election::leader_watcher::LeaderWatcher;
    pub use crate::lock::guard::Guard;
    pub use crate::lock::reentrant::{
        ReentrantReadGuard, ReentrantSetNxMutexGuard, ReentrantWriteGuard,
    };
    #[cfg(feature = "legacy")]
    pub use crate::lock::two_key::TwoKeyGuard;
}

/// Requests that few programs name. Each is made by a method, and sent when it is awaited.
pub mod request {
    pub use crate::lock::accept_transfer::AcceptTransfer;
    pub use crate::lock::cached::request::{CachedAcquire, TryCachedAcquire};
    pub use crate::lock::lock_scan::LockScan;
    pub use crate::lock::redlock::request::RedlockAcquire;
    pub use crate::lock::semaphore::status::SemaphoreStatusQuery;
    pub use crate::lock::status::LockStatusQuery;
    pub use crate::lock::upgrade::Upgrade;
}

/// What queries return: holders, waiters, and what became of them.
pub mod status {
    pub use crate::client::cache::{CacheStatus, UncachedReason};
    pub use crate::lock::election::LeaderInfo;
    pub use crate::lock::fenced::FencedValueStatus;
    pub use crate::lock::revoke::{ForcedRelease, Revocation};
    pub use crate::lock::semaphore::status::{SemaphoreHolder, SemaphoreWaiter};
    pub use crate::lock::set_nx_mutex::SetNxMutexStatus;
    pub use crate::lock::status::{Holder, Waiter};
    pub use rwlease_core::protocol::ClientInfo;
}

/// Runs the examples of these pages.
#[cfg(all(doctest, feature = "embedded"))]
macro_rules! pages {
    ($($name:ident: $page:expr,)+) => {$(
        #[doc = $page]
        struct $name;
    )+};
}

#[cfg(all(doctest, feature = "embedded"))]
pages! {
    Readme: include_str!("../README.md"),
    QuickStart: include_str!("../docs/quick-start.md"),
    ReadWriteLock: include_str!("../docs/rwlock.md"),
    WorkUnderALock: include_str!("../docs/work.md"),
    Jobs: include_str!("../docs/jobs.md"),
    Caching: include_str!("../docs/caching.md"),
    Semaphores: include_str!("../docs/semaphore.md"),
    Options: include_str!("../docs/options.md"),
    Fencing: include_str!("../docs/fencing.md"),
    LeaderElection: include_str!("../docs/leader-election.md"),
    Transfer: include_str!("../docs/transfer.md"),
    Errors: include_str!("../docs/errors.md"),
    Testing: include_str!("../docs/testing.md"),
}

#[cfg(all(doctest, feature = "native", feature = "blocking"))]
#[doc = include_str!("../docs/other-locks.md")]
struct OtherLocks;

#[cfg(all(doctest, feature = "legacy"))]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;
