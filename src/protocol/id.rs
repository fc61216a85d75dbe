//! The ids of clients and of acquisitions.

use std::fmt;

use bytes::Bytes;

use crate::slot::Slot;

/// The length of the client's id in an acquisition's id.
pub(crate) const CLIENT_ID_LEN: usize = 11;
const COUNTER_LEN: usize = 7;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// The id of a client: 66 random bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientId([u8; CLIENT_ID_LEN]);

/// The id of one acquisition: its client's id and a number that the client uses only once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AcquisitionId([u8; CLIENT_ID_LEN + COUNTER_LEN]);

impl ClientId {
    /// Makes an id from 11 random bytes.
    pub(crate) fn from_random(bytes: [u8; CLIENT_ID_LEN]) -> Self {
        ClientId(bytes.map(|byte| DIGITS[usize::from(byte % 64)]))
    }

    pub(crate) fn acquisition(&self, count: u64) -> AcquisitionId {
        let mut id = [b'0'; CLIENT_ID_LEN + COUNTER_LEN];
        id[..CLIENT_ID_LEN].copy_from_slice(&self.0);
        for (place, digit) in id[CLIENT_ID_LEN..].iter_mut().rev().enumerate() {
            *digit = DIGITS[(count >> (6 * place)) as usize % 64];
        }
        AcquisitionId(id)
    }

    /// The channel on which this client receives the grants of a slot.
    pub(crate) fn channel(&self, slot: Slot) -> Bytes {
        Bytes::from(format!("{{{}}}rwlease:{self}", slot.hash_tag()))
    }
}

impl AcquisitionId {
    pub(crate) fn as_str(&self) -> &str {
        // Always valid: DIGITS are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Parses an id of this library.
    pub(crate) fn parse(id: &str) -> Option<AcquisitionId> {
        let bytes: [u8; CLIENT_ID_LEN + COUNTER_LEN] = id.as_bytes().try_into().ok()?;
        bytes.iter().all(|byte| DIGITS.contains(byte)).then_some(AcquisitionId(bytes))
    }

    /// The client's number in an acquisition's id, if the acquisition is of this client.
    pub(crate) fn counter_of(id: &str, client: &ClientId) -> Option<u64> {
        let digits = id.as_bytes().strip_prefix(&client.0)?;
        if digits.len() != COUNTER_LEN {
            return None;
        }
        digits.iter().try_fold(0, |count, digit| {
            let value = DIGITS.iter().position(|known| known == digit)? as u64;
            Some(count << 6 | value)
        })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for AcquisitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_id_says_its_client_and_count() {
        let client = ClientId::from_random([0, 1, 2, 3, 61, 62, 63, 64, 255, 9, 10]);
        let other = ClientId::from_random([1; 11]);
        for count in [0, 1, 63, 64, 4_000_000, (1 << 42) - 1] {
            let id = client.acquisition(count);
            assert_eq!(id.as_str().len(), 18);
            assert_eq!(AcquisitionId::counter_of(id.as_str(), &client), Some(count));
            assert_eq!(AcquisitionId::counter_of(id.as_str(), &other), None);
            assert_eq!(AcquisitionId::parse(id.as_str()), Some(id));
        }
        assert_ne!(client.acquisition(1), client.acquisition(2));
        assert_eq!(AcquisitionId::counter_of("", &client), None);
        for other in ["", "01234567890123456", "0123456789012345678", "0123456789012345 7"] {
            assert_eq!(AcquisitionId::parse(other), None);
        }
    }

    #[test]
    fn a_channel_is_of_the_slot() {
        let client = ClientId::from_random([7; 11]);
        for slot in [Slot::of(b"a"), Slot::of(b"rwlease:order:{42}")] {
            assert_eq!(Slot::of(client.channel(slot)), slot);
        }
    }
}
