//! Lock names and their keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::slot::Slot;

/// The maximum length of a lock's name, in bytes.
pub(crate) const MAX_NAME_LEN: usize = 512;

/// What a lock's key contains, which decides on the scripts to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKind {
    /// The hash of this protocol.
    ReadWrite,
    /// A string with an acquisition's id: the plain mutex.
    SetNxMutex,
    /// The hash of a semaphore.
    Semaphore,
}

/// A checked name with its key and slot.
#[derive(Clone, Debug)]
pub(crate) struct LockKey {
    pub(crate) kind: LockKind,
    pub(crate) name: Arc<str>,
    pub(crate) key: Bytes,
    /// The other key of a two-key lock.
    #[cfg(feature = "legacy")]
    pub(crate) second_key: Option<Bytes>,
    pub(crate) slot: Slot,
}

impl LockKey {
    pub(crate) fn new(kind: LockKind, prefix: &str, name: &str) -> Result<LockKey> {
        if name.is_empty() {
            return Err(Error::invalid("a lock's name must not be empty"));
        } else if name.len() > MAX_NAME_LEN {
            return Err(Error::invalid(format!(
                "a lock's name must have at most {MAX_NAME_LEN} bytes"
            )));
        }
        let key = Bytes::from([prefix, name].concat());
        let slot = Slot::of(&key);
        Ok(LockKey {
            kind,
            name: name.into(),
            key,
            #[cfg(feature = "legacy")]
            second_key: None,
            slot,
        })
    }

    /// Whether the lock has a queue.
    pub(crate) fn has_queue(&self) -> bool {
        #[cfg(feature = "legacy")]
        if self.second_key.is_some() {
            return false;
        }
        self.kind != LockKind::SetNxMutex
    }

    /// Whether a client may keep the lock cached.
    pub(crate) fn can_be_cached(&self) -> bool {
        self.has_queue() && self.kind == LockKind::ReadWrite
    }

    /// Adds the lock's name and slot to an error.
    pub(crate) fn add_context(&self, error: impl Into<Error>) -> Error {
        error.into().with_lock(&self.name, self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused() {
        for name in ["", &"x".repeat(MAX_NAME_LEN + 1)] {
            assert_eq!(
                LockKey::new(LockKind::ReadWrite, "rwlease:", name).unwrap_err().kind(),
                crate::ErrorKind::Invalid
            );
        }
        assert!(LockKey::new(LockKind::SetNxMutex, "", &"x".repeat(MAX_NAME_LEN)).is_ok());
    }
}
