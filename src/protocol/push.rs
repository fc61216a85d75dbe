//! The messages to a client: grants, recalls of cached leases, and notices of forced releases.

use super::Mode;
use super::acquire::Grant;

/// A message on a client's channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Grants(Push),
    /// Another client wants the lock that this acquisition has cached: `<now> r|w <acquisition>`
    Recall {
        id: String,
        mode: Mode,
    },
    /// A forced release has ended this acquisition's lease with this token:
    /// `<now> f <acquisition> <token>`
    Ended {
        id: String,
        token: u64,
    },
}

impl Message {
    /// Parses a message. `None` if it has another shape: anybody may publish on the channel.
    pub(crate) fn read(payload: &[u8]) -> Option<Message> {
        let text = std::str::from_utf8(payload).ok()?;
        let mut words = text.split(' ').skip(1);
        let about = words.next()?;
        let mut id = || words.next().map(str::to_owned);
        Some(match about {
            "r" => Message::Recall { id: id()?, mode: Mode::Read },
            "w" => Message::Recall { id: id()?, mode: Mode::Write },
            "f" => Message::Ended { id: id()?, token: words.next()?.parse().ok()? },
            _ => Message::Grants(Push::read(text)?),
        })
    }
}

/// `<now> <more> (<acquisition> <token> <deadline>)+`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Push {
    /// The server's time when it was sent, ms.
    pub(crate) now: u64,
    /// Whether work is left over, to be continued by `pump`.
    pub(crate) more: bool,
    pub(crate) grants: Vec<(String, Grant)>,
}

impl Push {
    fn read(text: &str) -> Option<Push> {
        let mut words = text.split(' ');
        let now = words.next()?.parse().ok()?;
        let more = words.next()? != "0";
        let mut grants = Vec::new();
        while let Some(id) = words.next() {
            let token = words.next()?.parse().ok()?;
            let deadline = words.next()?.parse().ok()?;
            grants.push((id.to_owned(), Grant::new(token, deadline)));
        }
        Some(Push { now, more, grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_names_owners_tokens_and_deadlines() {
        let Some(Message::Grants(push)) = Message::read(b"1700 1 abc 12 1800 def 13 1900") else {
            panic!("grants");
        };
        assert_eq!((push.now, push.more), (1700, true));
        assert_eq!(push.grants[1], ("def".into(), Grant::new(13, 1900)));
    }

    #[test]
    fn push_read_of_recall_returns_acquisition_id_and_mode() {
        let recall = |mode| Some(Message::Recall { id: "abc".into(), mode });
        assert_eq!(Message::read(b"1700 r abc"), recall(Mode::Read));
        assert_eq!(Message::read(b"1700 w abc"), recall(Mode::Write));
        assert_eq!(Message::read(b"1700 w"), None);
    }

    #[test]
    fn an_end_names_the_acquisition_and_its_token() {
        let ended = Message::Ended { id: "abc".into(), token: 12 };
        assert_eq!(Message::read(b"1700 f abc 12"), Some(ended));
        // A client that does not know this message must not take it for a grant.
        assert_eq!(Push::read("1700 f abc 12"), None);
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
            assert_eq!(Message::read(payload.as_bytes()), None, "{payload}");
        }
        assert_eq!(Message::read(&[0xff, b' ']), None);
    }
}
