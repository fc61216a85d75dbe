//! The types that users handle: locks, requests, guards, leases.

pub(crate) mod accept_transfer;
pub(crate) mod builder;
pub(crate) mod cached;
pub(crate) mod client;
pub(crate) mod election;
pub(crate) mod fenced;
pub(crate) mod guard;
pub(crate) mod lease;
pub(crate) mod lock_scan;
pub(crate) mod multi_lock;
pub(crate) mod mutex;
pub(crate) mod redlock;
pub(crate) mod reentrant;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod revoke;
pub(crate) mod run_while_held;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod set_nx_mutex;
pub(crate) mod status;
pub(crate) mod transfer;
#[cfg(feature = "legacy")]
pub(crate) mod two_key;
pub(crate) mod upgrade;
pub(crate) mod wait_options;
