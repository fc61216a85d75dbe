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
/// # use rwlease_core::slot::Slot;
///
/// assert_eq!(Slot::of("order:{42}"), Slot::of("{42}:items"));
/// assert_eq!(Slot::of("123456789").get(), 12739);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// Returns the slot of a key: the CRC16 (XMODEM) of its hash tag, or of the whole key without a
    /// hash tag, modulo 16384.
    ///
    /// The hash tag is the text between the first `{` and the next `}`. An empty tag does not
    /// count.
    ///
    /// ```
    /// # use rwlease_core::slot::Slot;
    ///
    /// assert_eq!(Slot::of("a{b}{c}"), Slot::of("b"));
    /// assert_eq!(Slot::of("{{a}}b"), Slot::of("{a"));
    /// assert_ne!(Slot::of("a{}{b}"), Slot::of("b")); // an empty tag is none: the whole key counts
    /// ```
    pub fn of(key: impl AsRef<[u8]>) -> Slot {
        Slot(State::<XMODEM>::calculate(hashed_part(key.as_ref())) % SLOT_COUNT)
    }

    /// Returns the slot with this number, or `None` if the number is above 16383.
    ///
    /// ```
    /// # use rwlease_core::slot::Slot;
    ///
    /// assert!(Slot::new(16_383).is_some());
    /// assert!(Slot::new(16_384).is_none());
    /// ```
    pub const fn new(number: u16) -> Option<Slot> {
        if number < SLOT_COUNT { Some(Slot(number)) } else { None }
    }

    /// Returns the slot's number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the slot that all keys share. Without keys it returns slot 0, the slot of the empty
    /// key.
    ///
    /// # Errors
    ///
    /// [`CrossSlotError`] has the first key, and the first key that is in another slot.
    ///
    /// ```
    /// # use rwlease_core::slot::Slot;
    ///
    /// assert_eq!(Slot::of_all(["{42}:read", "{42}:write"]), Ok(Slot::of("42")));
    /// assert!(Slot::of_all(["read:42", "write:42"]).is_err());
    /// ```
    pub fn of_all<K: AsRef<[u8]>>(
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Slot, CrossSlotError> {
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else {
            return Ok(Slot::of(""));
        };
        let slot = Slot::of(&first);
        match keys.find(|key| Slot::of(key) != slot) {
            None => Ok(slot),
            Some(other) => {
                Err(CrossSlotError { first: first.as_ref().into(), other: other.as_ref().into() })
            }
        }
    }

    /// Returns a short string that hashes to this slot: one to four ASCII digits and letters.
    ///
    /// The tag of a slot never changes, and is easy to compute in other languages: list the strings
    /// over `0-9A-Za-z` by length, then by byte order. The tag is the first string of the slot.
    ///
    /// ```
    /// # use rwlease_core::slot::Slot;
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
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All slots, in order.
    pub fn all() -> impl ExactSizeIterator<Item = Slot> {
        (0..SLOT_COUNT).map(Slot)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for two keys that must share a slot and do not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the keys \"{}\" (slot {}) and \"{}\" (slot {}) are in different slots; give them one hash tag",
    .first.escape_ascii(), Slot::of(.first), .other.escape_ascii(), Slot::of(.other)
)]
pub struct CrossSlotError {
    first: Box<[u8]>,
    other: Box<[u8]>,
}

impl CrossSlotError {
    /// Returns the two keys.
    pub fn keys(&self) -> [&[u8]; 2] {
        [&self.first, &self.other]
    }

    /// Returns the slots of the two keys.
    pub fn slots(&self) -> [Slot; 2] {
        self.keys().map(Slot::of)
    }
}

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

/// The concatenated tags of all slots, each padded with spaces to [`MAX_TAG_LEN`].
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
mod tests;
