//! The messages to a client: grants, recalls of cached leases, and notices of forced releases.

use super::LockMode;
use super::acquire::Grant;

/// A message on a client's channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushMessage {
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
    /// Parses a message. `None` if it has another shape: anybody may publish on the channel.
    pub(crate) fn read(payload: &[u8]) -> Option<PushMessage> {
        let text = std::str::from_utf8(payload).ok()?;
        let mut words = text.split(' ').skip(1);
        let about = words.next()?;
        let mut id = || words.next().map(str::to_owned);
        Some(match about {
            "r" => PushMessage::Recall { id: id()?, mode: LockMode::Read },
            "w" => PushMessage::Recall { id: id()?, mode: LockMode::Write },
            "f" => PushMessage::ForceReleased { id: id()?, token: words.next()?.parse().ok()? },
            _ => PushMessage::Grants(GrantMessage::read(text)?),
        })
    }
}

/// `<now> <more> (<acquisition> <token> <deadline>)+`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GrantMessage {
    /// The server's time when it was sent, ms.
    pub(crate) server_now: u64,
    /// Whether work is left over, to be continued by `pump`.
    pub(crate) has_pump_work: bool,
    pub(crate) grants: Vec<(String, Grant)>,
}

impl GrantMessage {
    fn read(text: &str) -> Option<GrantMessage> {
        let mut words = text.split(' ');
        let now = words.next()?.parse().ok()?;
        let more = words.next()? != "0";
        let mut grants = Vec::new();
        while let Some(id) = words.next() {
            let token = words.next()?.parse().ok()?;
            let deadline = words.next()?.parse().ok()?;
            grants.push((id.to_owned(), Grant::new(token, deadline)));
        }
        Some(GrantMessage { server_now: now, has_pump_work: more, grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_names_owners_tokens_and_deadlines() {
        let Some(PushMessage::Grants(push)) = PushMessage::read(b"1700 1 abc 12 1800 def 13 1900")
        else {
            panic!("grants");
        };
        assert_eq!((push.server_now, push.has_pump_work), (1700, true));
        assert_eq!(push.grants[1], ("def".into(), Grant::new(13, 1900)));
    }

    #[test]
    fn push_read_of_recall_returns_acquisition_id_and_mode() {
        let recall = |mode| Some(PushMessage::Recall { id: "abc".into(), mode });
        assert_eq!(PushMessage::read(b"1700 r abc"), recall(LockMode::Read));
        assert_eq!(PushMessage::read(b"1700 w abc"), recall(LockMode::Write));
        assert_eq!(PushMessage::read(b"1700 w"), None);
    }

    #[test]
    fn an_end_names_the_acquisition_and_its_token() {
        let ended = PushMessage::ForceReleased { id: "abc".into(), token: 12 };
        assert_eq!(PushMessage::read(b"1700 f abc 12"), Some(ended));
        // A client that does not know this message must not take it for a grant.
        assert_eq!(GrantMessage::read("1700 f abc 12"), None);
    }

    #[test]
    fn push_read_of_malformed_payload_returns_none() {
        for payload in [
            "",
            "x 0",
            "1700",
            "1700 0 abc",
            "1700 0 abc 1",
            "1700 0 abc x 1",
            "1700 0 abc 1 -1",
            "1700 f abc",
            "1700 f abc x",
        ] {
            assert_eq!(PushMessage::read(payload.as_bytes()), None, "{payload}");
        }
        assert_eq!(PushMessage::read(&[0xff, b' ']), None);
    }
}
