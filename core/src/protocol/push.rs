//! The messages to a client: grants, recalls of cached leases, and notices of forced releases.

use super::LockMode;
use super::acquire::Grant;
use crate::decimal::parse_u64;

/// A message on a client's channel.
#[derive(Debug, PartialEq, Eq)]
pub enum PushMessage {
    Grants(GrantMessage),
    /// Another client wants the lock that this acquisition has cached: `<now> r|w <acquisition>`
    Recall {
        id: String,
        mode: LockMode,
    },
    /// A forced release has ended this acquisition's lease with this token:
    /// `<now> f <acquisition> <token>`
    ForceReleased {
        id: String,
        token: u64,
    },
}

impl PushMessage {
    /// Parses a message. Returns `None` for other messages, because any client may publish on the
    /// channel.
    pub fn read(payload: &[u8]) -> Option<PushMessage> {
        let text = std::str::from_utf8(payload).ok()?;
        let mut words = text.split(' ').skip(1);
        let about = words.next()?;
        let mut id = || words.next().map(str::to_owned);
        Some(match about {
            "r" => PushMessage::Recall { id: id()?, mode: LockMode::Read },
            "w" => PushMessage::Recall { id: id()?, mode: LockMode::Write },
            "f" => PushMessage::ForceReleased {
                id: id()?,
                token: parse_u64(words.next()?.as_bytes())?,
            },
            _ => PushMessage::Grants(GrantMessage::read(text)?),
        })
    }
}

/// `<now> <more> (<acquisition> <token> <deadline>)+`
#[derive(Debug, PartialEq, Eq)]
pub struct GrantMessage {
    /// The server's time when it was sent, ms.
    pub server_now: u64,
    /// Whether work is left over, to be continued by `grant_waiters`.
    pub has_more_work: bool,
    pub grants: Vec<(String, Grant)>,
}

impl GrantMessage {
    fn read(text: &str) -> Option<GrantMessage> {
        let mut words = text.split(' ');
        let now = parse_u64(words.next()?.as_bytes())?;
        let more = words.next()? != "0";
        let mut grants = Vec::new();
        while let Some(id) = words.next() {
            let token = parse_u64(words.next()?.as_bytes())?;
            let deadline = parse_u64(words.next()?.as_bytes())?;
            grants.push((id.to_owned(), Grant::new(token, deadline)));
        }
        Some(GrantMessage { server_now: now, has_more_work: more, grants })
    }
}

#[cfg(test)]
mod tests;
