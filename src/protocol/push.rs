//! The message that tells a client of its grants.

use super::acquire::Grant;

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
    /// Nothing if it is not of this shape: anybody can publish anything.
    pub(crate) fn read(payload: &[u8]) -> Option<Push> {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ');
        let now = words.next()?.parse().ok()?;
        let more = words.next()? != "0";
        let mut grants = Vec::new();
        while let Some(id) = words.next() {
            let token = words.next()?.parse().ok()?;
            let deadline = words.next()?.parse().ok()?;
            grants.push((id.to_owned(), Grant { token, deadline }));
        }
        Some(Push { now, more, grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_names_owners_tokens_and_deadlines() {
        let push = Push::read(b"1700 1 abc 12 1800 def 13 1900").unwrap();
        assert_eq!((push.now, push.more), (1700, true));
        assert_eq!(push.grants[1], ("def".into(), Grant { token: 13, deadline: 1900 }));
    }

    #[test]
    fn anything_else_is_nothing() {
        for payload in
            ["", "x 0", "1700", "1700 0 abc", "1700 0 abc 1", "1700 0 abc x 1", "1700 0 abc 1 -1"]
        {
            assert_eq!(Push::read(payload.as_bytes()), None, "{payload}");
        }
        assert_eq!(Push::read(&[0xff, b' ']), None);
    }
}
