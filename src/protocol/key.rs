//! Lock names and their keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::slot::Slot;

/// The maximum length of a lock's name, in bytes.
pub(crate) const LONGEST_NAME: usize = 512;

/// What a lock's key contains, which decides on the scripts to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The hash of this protocol.
    ReadWrite,
    /// A string with an acquisition's id: the plain mutex.
    Mutex,
    /// The hash of a semaphore.
    Semaphore,
}

/// A checked name with its key and slot.
#[derive(Clone, Debug)]
pub(crate) struct LockKey {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) key: Bytes,
    /// The other key of a two-key lock.
    #[cfg(feature = "legacy")]
    pub(crate) other_key: Option<Bytes>,
    pub(crate) slot: Slot,
}

impl LockKey {
    pub(crate) fn new(kind: Kind, prefix: &str, name: &str) -> Result<LockKey> {
        if name.is_empty() {
            return Err(Error::invalid("a lock's name must not be empty"));
        } else if name.len() > LONGEST_NAME {
            return Err(Error::invalid(format!(
                "a lock's name must have at most {LONGEST_NAME} bytes"
            )));
        }
        let key = Bytes::from([prefix, name].concat());
        let slot = Slot::of(&key);
        Ok(LockKey {
            kind,
            name: name.into(),
            key,
            #[cfg(feature = "legacy")]
            other_key: None,
            slot,
        })
    }

    /// Whether the lock has a queue.
    pub(crate) fn has_queue(&self) -> bool {
        #[cfg(feature = "legacy")]
        if self.other_key.is_some() {
            return false;
        }
        self.kind != Kind::Mutex
    }

    /// Whether a client may keep the lock cached.
    pub(crate) fn can_be_cached(&self) -> bool {
        self.has_queue() && self.kind == Kind::ReadWrite
    }

    /// Adds the lock's name and slot to an error.
    pub(crate) fn with_lock(&self, error: impl Into<Error>) -> Error {
        error.into().about(&self.name, self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused() {
        for name in ["", &"x".repeat(LONGEST_NAME + 1)] {
            assert_eq!(
                LockKey::new(Kind::ReadWrite, "rwlease:", name).unwrap_err().kind(),
                crate::ErrorKind::Invalid
            );
        }
        assert!(LockKey::new(Kind::Mutex, "", &"x".repeat(LONGEST_NAME)).is_ok());
    }
}
