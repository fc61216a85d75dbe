//! Hash slots and hash tags, as in the cluster specification.

use std::fmt;
use std::sync::LazyLock;

use crc16::{State, XMODEM};

/// The number of hash slots of a cluster.
const SLOT_COUNT: u16 = 16_384;

/// The length of the longest tag that [`Slot::hash_tag`] returns.
const MAX_TAG_LEN: usize = 4;

/// A hash slot of a Redis Cluster, 0 to 16383.
///
/// ```
/// use rwlease::Slot;
///
/// assert_eq!(Slot::of("order:{42}"), Slot::of("{42}:items"));
/// assert_eq!(Slot::of("123456789").get(), 12739);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a key: CRC16 (XMODEM) of its hash tag, or of the whole key if it has none,
    /// modulo 16384.
    ///
    /// The hash tag is the text between the first `{` and the first `}` after it, unless that is
    /// empty.
    ///
    /// ```
    /// use rwlease::Slot;
    ///
    /// assert_eq!(Slot::of("a{b}{c}"), Slot::of("b"));
    /// assert_eq!(Slot::of("{{a}}b"), Slot::of("{a"));
    /// assert_ne!(Slot::of("a{}{b}"), Slot::of("b")); // an empty tag is none: the whole key counts
    /// ```
    pub fn of(key: impl AsRef<[u8]>) -> Slot {
        Slot(State::<XMODEM>::calculate(hashed_part(key.as_ref())) % SLOT_COUNT)
    }

    /// The slot with this number, or `None` if the number is above 16383.
    ///
    /// ```
    /// use rwlease::Slot;
    ///
    /// assert!(Slot::new(16_383).is_some());
    /// assert!(Slot::new(16_384).is_none());
    /// ```
    pub const fn new(number: u16) -> Option<Slot> {
        if number < SLOT_COUNT { Some(Slot(number)) } else { None }
    }

    /// The slot's number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// A short string that hashes to this slot: one to four ASCII digits and letters.
    ///
    /// The tag of a slot never changes, and is easy to compute in other languages: list the strings
    /// over `0-9A-Za-z` by length, then by byte order. The tag is the first string of the slot.
    ///
    /// ```
    /// use rwlease::Slot;
    ///
    /// let slot = Slot::of("order:{42}");
    /// let channel = format!("{{{}}}news", slot.hash_tag());
    /// assert_eq!(Slot::of(channel), slot);
    /// ```
    pub fn hash_tag(self) -> &'static str {
        let start = self.index() * MAX_TAG_LEN;
        TAGS[start..start + MAX_TAG_LEN].trim_end()
    }

    /// The slot's number as an index.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// All slots, in order.
    pub(crate) fn all() -> impl ExactSizeIterator<Item = Slot> {
        (0..SLOT_COUNT).map(Slot)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks that all keys are in one slot, and returns that slot. Without keys it returns slot 0, the
/// slot of the empty key.
///
/// # Errors
///
/// [`CrossSlot`] has the first key, and the first key that is in another slot.
///
/// ```
/// use rwlease::{Slot, assert_same_slot};
///
/// assert_eq!(assert_same_slot(["{42}:read", "{42}:write"]), Ok(Slot::of("42")));
/// assert!(assert_same_slot(["read:42", "write:42"]).is_err());
/// ```
pub fn assert_same_slot<K: AsRef<[u8]>>(
    keys: impl IntoIterator<Item = K>,
) -> Result<Slot, CrossSlot> {
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else {
        return Ok(Slot::of(""));
    };
    let slot = Slot::of(&first);
    match keys.find(|key| Slot::of(key) != slot) {
        None => Ok(slot),
        Some(other) => {
            Err(CrossSlot { first: first.as_ref().into(), other: other.as_ref().into() })
        }
    }
}

/// The error for two keys that must share a slot and do not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{}\" is of slot {}, but \"{}\" is of slot {}",
    .first.escape_ascii(), Slot::of(.first), .other.escape_ascii(), Slot::of(.other)
)]
pub struct CrossSlot {
    first: Box<[u8]>,
    other: Box<[u8]>,
}

impl CrossSlot {
    /// The two keys.
    pub fn keys(&self) -> [&[u8]; 2] {
        [&self.first, &self.other]
    }

    /// The slots of the two keys.
    pub fn slots(&self) -> [Slot; 2] {
        self.keys().map(Slot::of)
    }
}

/// The part of a key that is hashed.
fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// The tags of all slots one after another, each padded with spaces to [`MAX_TAG_LEN`].
static TAGS: LazyLock<String> = LazyLock::new(|| {
    let mut tags = vec![[b' '; MAX_TAG_LEN]; usize::from(SLOT_COUNT)];
    let mut missing = tags.len();
    for length in 1..=MAX_TAG_LEN {
        let mut tag = [b' '; MAX_TAG_LEN];
        tag[..length].fill(b'0');
        while missing > 0 {
            let place = &mut tags[Slot::of(&tag[..length]).index()];
            if place[0] == b' ' {
                *place = tag;
                missing -= 1;
            }
            if !next_tag(&mut tag[..length]) {
                break;
            }
        }
    }
    tags.into_iter().flatten().map(char::from).collect()
});

/// Advances to the next string over `0-9A-Za-z` of the same length. Returns false after the last
/// one.
fn next_tag(tag: &mut [u8]) -> bool {
    for byte in tag.iter_mut().rev() {
        *byte = match *byte {
            b'9' => b'A',
            b'Z' => b'a',
            b'z' => b'0',
            other => other + 1,
        };
        if *byte != b'0' {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_slots() {
        // From the cluster specification and from `CLUSTER KEYSLOT`.
        for (key, slot) in
            [("123456789", 12739), ("foo", 12182), ("bar", 5061), ("", 0), ("somekey", 11058)]
        {
            assert_eq!(Slot::of(key).get(), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        for (key, hashed) in [
            ("{}a", "{}a"),
            ("{{a}}b", "{a"),
            ("a{}{b}", "a{}{b}"),
            ("foo{bar", "foo{bar"),
            ("a{b}{c}", "b"),
            ("}a{b}", "b"),
            ("a}b{", "a}b{"),
            ("", ""),
            ("{}", "{}"),
            ("{user1000}.following", "user1000"),
        ] {
            assert_eq!(hashed_part(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn every_number_is_a_slot_or_none() {
        for number in 0..=u16::MAX {
            assert_eq!(Slot::new(number).map(Slot::get), (number < 16_384).then_some(number));
        }
        assert_eq!(Slot::all().count(), 16_384);
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own() {
        for slot in Slot::all() {
            let tag = slot.hash_tag();
            assert!((1..=4).contains(&tag.len()), "{slot}: {tag:?}");
            assert!(tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{slot}: {tag:?}");
            assert_eq!(Slot::of(tag), slot);
            assert_eq!(Slot::of(format!("{{{tag}}}anything")), slot);
        }
    }

    #[test]
    fn tag_for_slot_is_the_first_in_the_documented_order() {
        let alphabet: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
        let mut all: Vec<String> = vec![String::new()];
        let mut seen = vec![false; 16_384];
        for _length in 1..=3 {
            all = all
                .iter()
                .flat_map(|head| alphabet.iter().map(move |tail| format!("{head}{tail}")))
                .collect();
            for tag in &all {
                let slot = Slot::of(tag);
                if !std::mem::replace(&mut seen[slot.index()], true) {
                    assert_eq!(slot.hash_tag(), tag);
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen), "three characters are enough for every slot");
    }

    #[test]
    fn keys_of_two_slots_are_named() {
        assert_eq!(assert_same_slot(["{a}1", "{a}2", "a"]), Ok(Slot::of("a")));
        assert_eq!(assert_same_slot::<&str>([]), Ok(Slot::of("")));
        let error = assert_same_slot(["{a}1", "{a}2", "b\n", "c"]).unwrap_err();
        assert_eq!(error.keys(), [&b"{a}1"[..], b"b\n"]);
        assert_eq!(error.slots(), [Slot::of("a"), Slot::of("b\n")]);
        assert_eq!(error.to_string(), r#""{a}1" is of slot 15495, but "b\n" is of slot 3074"#);
    }
}
