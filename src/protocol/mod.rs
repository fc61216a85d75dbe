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
pub(crate) use acquire::{AcquireRequest, AcquireReply, TOKEN_BLOCK, AcquireKind, Grant, PermitRequest, QueueTerms};
pub(crate) use error::is_rejected_before_run;
pub(crate) use id::{AcquisitionId, CLIENT_ID_LEN, ClientId};
pub(crate) use inspect::{WaiterRecord, HoldsRequest, InspectRequest, PageCursor, HolderRecord, InspectReply};
pub(crate) use key::{LockKind, MAX_NAME_LEN, LockKey};
pub(crate) use mutex::InspectSetNxRequest;
pub(crate) use push::PushMessage;
#[cfg(all(test, feature = "embedded"))]
pub(crate) use push::GrantMessage;
pub(crate) use raise::{MAX_TOKEN_LEAD, RaiseTokenRequest, RaiseTokenReply};
pub(crate) use release::{ReleaseReply, ReleaseRequest, pump_request, parse_pump_reply};
pub(crate) use renew::{DowngradeRequest, RenewRequest, RenewReply};
pub(crate) use reply::{ReplyError, Envelope};
pub(crate) use revoke::{ForceReleaseReply, RevokeReply, force_release, revoke};
pub(crate) use script::Scripts;
pub use script::scripts;
pub(crate) use semaphore::{
    InspectSemaphoreRequest, SetLimitReply, SemaphoreCursor, InspectSemaphoreReply, SetLimitRequest, ReleasePermitsRequest,
};

/// The mode in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

impl LockMode {
    /// The word of the protocol.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            LockMode::Read => "r",
            LockMode::Write => "w",
        }
    }
}
