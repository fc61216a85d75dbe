//! The protocol: typed requests and replies of each script. `docs/protocol.md` specifies it.

mod acquire;
mod error;
mod id;
mod inspect;
mod key;
#[cfg(all(test, feature = "embedded"))]
#[path = "../../tests/support/line.rs"]
#[allow(clippy::duplicate_mod)] // `node::tests` has all of the support
pub(crate) mod line;
mod mutex;
mod push;
mod raise;
mod release;
mod renew;
mod reply;
mod revoke;
mod script;
mod semaphore;
#[cfg(feature = "legacy")]
pub(crate) mod two_key;

pub use acquire::Fairness;
pub(crate) use acquire::{Acquire, Acquired, BLOCK, Goal, Grant, Permits, Wait};
pub(crate) use error::is_before_script;
pub(crate) use id::{AcquisitionId, CLIENT, ClientId};
pub(crate) use inspect::{Entry, Holds, Inspect, Page, Record, View};
pub(crate) use key::{Kind, LONGEST_NAME, LockKey};
pub(crate) use mutex::InspectMutex;
pub(crate) use push::Message;
#[cfg(all(test, feature = "embedded"))]
pub(crate) use push::Push;
pub(crate) use raise::{AHEAD, RaiseToken, Raised};
pub(crate) use release::{Ended, Release, pump, pumped};
pub(crate) use renew::{Downgrade, Renew, Renewed};
pub(crate) use reply::{BadReply, Envelope};
pub(crate) use revoke::{Forced, Revoked, force_release, revoke};
pub(crate) use script::Scripts;
pub use script::scripts;
pub(crate) use semaphore::{
    InspectSemaphore, LimitSet, SemaphorePage, SemaphoreView, SetLimit, Shrink,
};

/// The mode in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

impl Mode {
    /// The word of the protocol.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Mode::Read => "r",
            Mode::Write => "w",
        }
    }
}
