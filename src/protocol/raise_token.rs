//! `raise_token`.

use std::time::Duration;

use super::Scripts;
use super::id::AcquisitionId;
use super::key::LockKey;
use super::reply::{ReplyError, ReplyReader};
use crate::backend::{Command, RespValue};
use crate::router::Call;

/// A member refuses a token that is further ahead of its clock than this.
pub(crate) const MAX_TOKEN_LEAD: Duration = Duration::from_secs(60);

/// Raises the last fencing token of a lock on a member to that of a quorum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaiseTokenRequest {
    pub(crate) id: AcquisitionId,
    pub(crate) token: u64,
}

/// A member's answer to a quorum's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaiseTokenReply {
    /// Its last token is now at least this one.
    Raised,
    /// The token is this far ahead of the member's clock, and was refused.
    TooFarAhead(Duration),
    /// The acquisition does not hold the lock there.
    NotHeld,
}

impl RaiseTokenRequest {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let args = Command::new().arg(self.id.as_str()).arg_u64(self.token);
        Call {
            script: &scripts.raise_token,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }

    pub(crate) fn read(&self, reply: RespValue) -> Result<RaiseTokenReply, ReplyError> {
        let (envelope, status, _) = ReplyReader::parse_header(reply)?;
        match status.as_bytes() {
            b"raised" => Ok(RaiseTokenReply::Raised),
            b"ahead" => {
                let ahead_ms = (self.token / 1000).saturating_sub(envelope.server_now);
                Ok(RaiseTokenReply::TooFarAhead(Duration::from_millis(ahead_ms)))
            }
            b"lost" => Ok(RaiseTokenReply::NotHeld),
            _ => Err(status.unknown_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ClientId;

    fn raise(token: u64) -> RaiseTokenRequest {
        let id = ClientId::from_random([1; 11]).acquisition(1);
        RaiseTokenRequest { id, token }
    }

    fn reply(now: u64, status: &'static str) -> RespValue {
        RespValue::String(format!("{status} {now} 0").into())
    }

    #[test]
    fn the_scripts_have_the_same_bound() {
        let prelude = include_str!("../../lua/lib/prelude.lua");
        assert!(
            prelude.contains(&format!("local MAX_TOKEN_LEAD = {} --", MAX_TOKEN_LEAD.as_millis()))
        );
    }

    #[test]
    fn raise_token_read_returns_done_lost_or_ahead() {
        let asked = raise(1_700_000_090_000_999);
        assert_eq!(
            asked.read(reply(1_700_000_000_000, "raised")).unwrap(),
            RaiseTokenReply::Raised
        );
        assert_eq!(asked.read(reply(1_700_000_000_000, "lost")).unwrap(), RaiseTokenReply::NotHeld);
        let ahead = asked.read(reply(1_700_000_000_000, "ahead")).unwrap();
        assert_eq!(ahead, RaiseTokenReply::TooFarAhead(Duration::from_secs(90)));
        assert!(asked.read(reply(1_700_000_000_000, "granted")).is_err());
    }
}
