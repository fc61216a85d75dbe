//! Distributed read/write locks for Redis Cluster: fair, fenced, and made for the day when slots move and masters die.
//!
//! A [`Locks`] is a client of one cluster. It makes an [`RwLock`] of a name; [`read`](RwLock::read) and [`write`](RwLock::write) wait for
//! their turn and give a guard; the guard is a [`Lease`] that is renewed while it lives, has a [fencing token](Lease::token), and says when
//! it is [lost](Lease::lost).
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
//! # let locks = rwlease::Locks::embedded().await?;
//! // let locks = rwlease::Locks::connect(["redis://127.0.0.1:7000"]).await?;
//! let order = locks.rwlock("order:{42}")?;
//! let reading = order.read().await?;
//! println!("token {}, {:?} left", reading.token(), reading.remaining());
//! reading.release().await?;
//! # Ok(()) }
//! # #[cfg(not(feature = "embedded"))] fn main() {}
//! ```
//!
//! # What a lock is
//!
//! One hash in one slot, changed by scripts alone: who reads, who writes, until when, who waits, the last fencing token. All time in it is the
//! server's. A lock is a lease: a holder that is not heard of any more loses it when its lease ends, and not before.
//!
//! # Seeing it
//!
//! Each step of a lock is told by `tracing`; with the feature `metrics` it is counted and measured by the `metrics` facade as well. `docs/observing.md` has
//! the names. The package `rwlease-cli` has the command `rwlease`, which runs commands under a lock, shows locks, and looks for what would break them.
//!
//! # Layers
//!
//! Locks and guards know the client's core and the protocol; those know the router, which owns slots, the slot map and every redirect; and the router
//! knows nodes, each one connection to one server: by the `redis` crate, by the `fred` crate, or in this process (feature `embedded`).
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without a backend to servers a part of the library is of no use: the system's clock, and without any, nearly all.
#![cfg_attr(not(any(feature = "redis", feature = "fred")), allow(dead_code, unused_imports))]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
// The library does not panic and does not print, and asks nobody but its Clock for the time.
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

// The test support speaks of the crate by its name.
#[cfg(test)]
#[allow(unused_extern_crates)] // without the backends of real servers nobody needs it
extern crate self as rwlease;

mod acquisition;
mod asking;
mod client;
mod clock;
mod core;
mod error;
mod guard;
mod lease;
#[cfg(feature = "legacy")]
mod legacy;
mod listing;
mod locks;
mod losses;
mod multi;
mod mutex;
mod node;
mod observe;
mod options;
mod owner;
mod protocol;
mod quorum;
mod retry;
mod router;
mod running;
mod rwlock;
mod seize;
mod settings;
mod status;
mod upgrade;
mod worker;

pub use asking::Renewal;
pub use error::{Error, ErrorKind, Result};
pub use guard::{Guard, MutexGuard, ReadGuard, Released, WriteGuard};
pub use lease::{Lease, LeaseState};
#[cfg(feature = "legacy")]
pub use legacy::{LegacyGuard, LegacyRwLock};
pub use listing::Listing;
pub use locks::{Builder, Locks};
pub use losses::Loss;
pub use multi::{Multi, MultiGuard};
pub use mutex::{Mutex, MutexStatus};
#[cfg(feature = "redis")]
pub use node::{Credentials, CredentialsFuture, CredentialsProvider};
pub use owner::{Owner, OwnerMutexGuard, OwnerReadGuard, OwnerWriteGuard};
pub use protocol::{Fairness, Mode, scripts};
pub use quorum::{Quorum, QuorumAcquire, QuorumGuard};
pub use retry::Retry;
pub use router::{CrossSlot, Script, Slot, assert_same_slot};
pub use rwlock::{Acquire, RwLock, TryAcquire};
pub use seize::{Revocation, Seizure};
pub use status::{AskStatus, Holder, Status, Waiter};
pub use upgrade::{Upgrade, UpgradeError};

/// Servers in this process, for demos and for tests.
#[cfg(feature = "embedded")]
pub mod embedded {
    pub use crate::node::embedded::{
        Builder, Engine, Fate, Faults, Host, Kind, Message, Network, Served, Tally, WaitCovers, Watcher, Weather,
    };
}

#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "legacy"))]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;
