use std::time::Duration;

use super::call::Call;
use super::id::AcquisitionId;
use super::key::LockKey;
use super::reply::{ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::resp::{Command, RespValue};

/// A member refuses a token that is further ahead of its clock than this.
pub const MAX_TOKEN_LEAD: Duration = Duration::from_secs(60);

/// Raises the last fencing token of a lock on a member to that of a quorum.
#[derive(Clone, Copy, Debug)]
pub struct RaiseTokenRequest {
    pub id: AcquisitionId,
    pub token: u64,
}

/// A member's answer to a quorum's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseTokenReply {
    /// Its last token is now at least this one.
    Raised,
    /// The token is this far ahead of the member's clock, and was refused.
    TooFarAhead(Duration),
    /// The acquisition does not hold the lock there.
    NotHeld,
}

impl RaiseTokenRequest {
    pub fn call(&self, lock: &LockKey) -> Call {
        let args = Command::new().arg(self.id.as_str()).arg_u64(self.token);
        Call::new(ScriptName::RaiseToken, lock, args)
    }

    pub fn read(&self, reply: RespValue) -> Result<RaiseTokenReply, ReplyError> {
        let (envelope, status, _) = ReplyReader::parse_header(reply)?;
        match &*status {
            b"raised" => Ok(RaiseTokenReply::Raised),
            b"ahead" => {
                let ahead_ms = (self.token / 1000).saturating_sub(envelope.server_now);
                Ok(RaiseTokenReply::TooFarAhead(Duration::from_millis(ahead_ms)))
            }
            b"not_held" => Ok(RaiseTokenReply::NotHeld),
            _ => Err(ReplyError::unknown_status(&status)),
        }
    }
}

#[cfg(test)]
mod tests;
