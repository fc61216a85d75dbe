//! The messages to a client: its grants, and the recalls of what it has cached.

use super::Mode;
use super::acquire::Grant;

/// A message on a client's channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Grants(Push),
    /// Somebody wants what this acquisition has cached: `<now> r|w <acquisition>`
    Recall {
        id: String,
        mode: Mode,
    },
}

impl Message {
    /// Nothing if it is not of this shape: anybody can publish anything.
    pub(crate) fn read(payload: &[u8]) -> Option<Message> {
        let text = std::str::from_utf8(payload).ok()?;
        let mut words = text.split(' ').skip(1);
        let mode = match words.next()? {
            "r" => Mode::Read,
            "w" => Mode::Write,
            _ => return Push::read(text).map(Message::Grants),
        };
        Some(Message::Recall { id: words.next()?.to_owned(), mode })
    }
}

/// `<now> <more> (<acquisition> <token> <deadline>)+`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Push {
    /// The server's time when it was sent, ms.
    pub(crate) now: u64,
    /// Work is left over: go on with `pump`.
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
    fn a_recall_names_the_acquisition() {
        let recall = |mode| Some(Message::Recall { id: "abc".into(), mode });
        assert_eq!(Message::read(b"1700 r abc"), recall(Mode::Read));
        assert_eq!(Message::read(b"1700 w abc"), recall(Mode::Write));
        assert_eq!(Message::read(b"1700 w"), None);
    }

    #[test]
    fn anything_else_is_nothing() {
        for payload in
            ["", "x 0", "1700", "1700 0 abc", "1700 0 abc 1", "1700 0 abc x 1", "1700 0 abc 1 -1"]
        {
            assert_eq!(Message::read(payload.as_bytes()), None, "{payload}");
        }
        assert_eq!(Message::read(&[0xff, b' ']), None);
    }
}
