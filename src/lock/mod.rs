//! The types that users handle: locks, requests, guards, leases.

pub(crate) mod builder;
pub(crate) mod cached;
pub(crate) mod guard;
pub(crate) mod leader;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod quorum;
pub(crate) mod reentrant;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod revoke;
pub(crate) mod running;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod status;
pub(crate) mod take_up;
pub(crate) mod ticket;
#[cfg(feature = "legacy")]
pub(crate) mod two_key;
pub(crate) mod upgrade;
pub(crate) mod wait;
