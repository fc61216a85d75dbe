//! Distributed read/write locks for Redis Cluster.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquisition;
mod asking;
mod client;
mod clock;
mod core;
mod error;
mod guard;
mod lease;
mod locks;
mod losses;
mod node;
mod owner;
mod protocol;
mod router;
mod running;
mod rwlock;
mod seize;
mod settings;
mod upgrade;
mod worker;

pub use asking::Renewal;
pub use error::{Error, ErrorKind, Result};
pub use guard::{Guard, ReadGuard, Released, WriteGuard};
pub use lease::{Lease, LeaseState};
pub use locks::{Builder, Locks};
pub use losses::Loss;
pub use node::{Credentials, CredentialsFuture, CredentialsProvider};
pub use owner::{Owner, OwnerReadGuard, OwnerWriteGuard};
pub use protocol::{Fairness, Mode, scripts};
pub use router::{CrossSlot, Script, Slot, assert_same_slot};
pub use rwlock::{Acquire, RwLock, TryAcquire};
pub use seize::{Revocation, Seizure};
pub use upgrade::{Upgrade, UpgradeError};
