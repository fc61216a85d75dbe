//! The protocol: typed requests and replies of each script. `docs/protocol.md` specifies it.

mod acquire;
mod call;
mod client_record;
mod confirmation;
mod fenced;
mod id;
mod inspect;
mod key;
mod push;
mod raise_token;
mod release;
mod renew;
mod reply;
mod revoke;
mod script;
mod semaphore;
mod set_nx_mutex;
mod two_key;

pub use acquire::{
    AcquireKind, AcquireReply, AcquireRequest, Fairness, Grant, PermitRequest, QueueTerms,
    TOKEN_BLOCK, to_millis,
};
pub use call::{
    Call, CallError, CallErrorKind, CallReply, Doubt, ScriptReply, ScriptResult,
    is_rejected_before_write, parse_reply,
};
pub use client_record::{
    ClientInfo, MAX_HOST_LEN, MAX_LABEL_LEN, WriteRecordRequest, parse_record_reply, read_record,
};
pub use confirmation::{
    Confirmation, ConfirmationError, ConfirmationResult, Fsync, confirmation_advice,
};
pub use fenced::{FencedKey, FencedOperation, FencedReply, FencedRequest};
pub use id::{AcquisitionId, CLIENT_ID_LEN, ClientId};
pub use inspect::{
    HolderRecord, HoldsRequest, InspectReply, InspectRequest, PageCursor, WaiterRecord,
};
pub use key::{LockKey, LockKind, MAX_NAME_LEN, NameError};
pub use push::{GrantMessage, PushMessage};
pub use raise_token::{MAX_TOKEN_LEAD, RaiseTokenReply, RaiseTokenRequest};
pub use release::{ReleaseReply, ReleaseRequest, grant_waiters_request, parse_grant_waiters_reply};
pub use renew::{DowngradeRequest, RenewReply, RenewRequest};
pub use reply::{Envelope, ReplyError};
pub use revoke::{ForceReleaseReply, RevokeReply, force_release, revoke};
pub use script::ScriptName;
pub use semaphore::{
    InspectSemaphoreReply, InspectSemaphoreRequest, ReleasePermitsRequest, SemaphoreCursor,
    SetLimitReply, SetLimitRequest,
};
pub use set_nx_mutex::{InspectSetNxRequest, SetNxValue};

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
    pub fn letter(self) -> &'static str {
        match self {
            LockMode::Read => "r",
            LockMode::Write => "w",
        }
    }
}
