//! The protocol: typed requests and replies of each script. `docs/protocol.md` specifies it.

mod acquire;
mod error;
mod id;
mod inspect;
mod key;
#[cfg(all(test, feature = "embedded"))]
#[path = "../../tests/support/state_line.rs"]
#[allow(clippy::duplicate_mod)] // `node::tests` has all of the support
pub(crate) mod line;
mod push;
mod raise_token;
mod release;
mod renew;
mod reply;
mod revoke;
mod script;
mod semaphore;
mod set_nx_mutex;
#[cfg(feature = "legacy")]
pub(crate) mod two_key;

pub use acquire::Fairness;
pub(crate) use acquire::{
    AcquireKind, AcquireReply, AcquireRequest, Grant, PermitRequest, QueueTerms, TOKEN_BLOCK,
};
pub(crate) use error::is_rejected_before_run;
pub(crate) use id::{AcquisitionId, CLIENT_ID_LEN, ClientId};
pub(crate) use inspect::{
    HolderRecord, HoldsRequest, InspectReply, InspectRequest, PageCursor, WaiterRecord,
};
pub(crate) use key::{LockKey, LockKind, MAX_NAME_LEN};
#[cfg(all(test, feature = "embedded"))]
pub(crate) use push::GrantMessage;
pub(crate) use push::PushMessage;
pub(crate) use raise_token::{MAX_TOKEN_LEAD, RaiseTokenReply, RaiseTokenRequest};
pub(crate) use release::{ReleaseReply, ReleaseRequest, parse_pump_reply, pump_request};
pub(crate) use renew::{DowngradeRequest, RenewReply, RenewRequest};
pub(crate) use reply::{Envelope, ReplyError};
pub(crate) use revoke::{ForceReleaseReply, RevokeReply, force_release, revoke};
pub(crate) use script::Scripts;
pub use script::scripts;
pub(crate) use semaphore::{
    InspectSemaphoreReply, InspectSemaphoreRequest, ReleasePermitsRequest, SemaphoreCursor,
    SetLimitReply, SetLimitRequest,
};
pub(crate) use set_nx_mutex::InspectSetNxRequest;

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
