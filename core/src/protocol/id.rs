use std::fmt;

use bytes::Bytes;

use crate::slot::Slot;

/// The length of the client's id in an acquisition's id.
pub const CLIENT_ID_LEN: usize = 11;
const COUNTER_LEN: usize = 7;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// The id of a client: 66 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u8; CLIENT_ID_LEN]);

/// The id of one acquisition: its client's id and a number that the client uses only once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AcquisitionId([u8; CLIENT_ID_LEN + COUNTER_LEN]);

impl ClientId {
    /// Makes an id from 11 random bytes.
    pub fn from_random(bytes: [u8; CLIENT_ID_LEN]) -> Self {
        ClientId(bytes.map(|byte| DIGITS[usize::from(byte % 64)]))
    }

    pub fn acquisition(&self, count: u64) -> AcquisitionId {
        let mut id = [b'0'; CLIENT_ID_LEN + COUNTER_LEN];
        id[..CLIENT_ID_LEN].copy_from_slice(&self.0);
        for (place, digit) in id[CLIENT_ID_LEN..].iter_mut().rev().enumerate() {
            *digit = DIGITS[(count >> (6 * place)) as usize % 64];
        }
        AcquisitionId(id)
    }

    /// The channel on which this client receives the grants of a slot.
    pub fn channel(&self, slot: Slot) -> Bytes {
        Bytes::from(format!("{{{}}}rwlease:{self}", slot.hash_tag()))
    }
}

impl AcquisitionId {
    pub fn as_str(&self) -> &str {
        // Always valid: DIGITS are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Parses an id of this library.
    pub fn parse(id: &str) -> Option<AcquisitionId> {
        let bytes: [u8; CLIENT_ID_LEN + COUNTER_LEN] = id.as_bytes().try_into().ok()?;
        bytes.iter().all(|byte| DIGITS.contains(byte)).then_some(AcquisitionId(bytes))
    }

    /// The client of this acquisition.
    pub fn client(&self) -> ClientId {
        let [client @ .., _, _, _, _, _, _, _] = self.0;
        ClientId(client)
    }

    /// The client's number in an acquisition's id, if the acquisition is of this client.
    pub fn counter_of(id: &str, client: &ClientId) -> Option<u64> {
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
mod tests;
