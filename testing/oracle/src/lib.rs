//! The rules that each lock keeps, for every test that judges locks. It knows the pages of the
//! protocol and not the library: it reads fields, words and times.
//!
//! [`LockHash`] decodes a lock's hash. [`step`] judges one call of a script by the hash before and
//! after it. [`history`] judges what the clients believed, at the end of a run.

pub mod history;
mod lock_hash;
mod state_line;
pub mod step;

pub use lock_hash::{CLIENT_ID_LEN, Holder, LockHash, Waiter};
pub use state_line::expand_line;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
}

/// The client of an acquisition, by its id.
pub fn client_of(id: &str) -> &str {
    id.get(..CLIENT_ID_LEN).unwrap_or(id)
}
