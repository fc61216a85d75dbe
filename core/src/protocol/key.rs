use std::sync::Arc;

use bytes::Bytes;

use crate::slot::Slot;

/// The maximum length of a lock's name, in bytes.
pub const MAX_NAME_LEN: usize = 512;

/// The keys of fenced values and of records of clients begin with the prefix and one of these.
const RESERVED: [&str; 2] = ["fenced:", "client:"];

/// What a lock's key contains, which decides on the scripts to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// The hash of this protocol.
    ReadWrite,
    /// A string with an acquisition's id: the mutex of `SET NX PX`.
    SetNxMutex,
    /// The hash of a semaphore.
    Semaphore,
}

/// Why a text cannot be the name of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name of a lock must not be empty")]
    Empty,
    #[error("the name of a lock must have at most {MAX_NAME_LEN} bytes, not {0}")]
    TooLong(usize),
    #[error("the name of a lock must not begin with `{0}`; begin it with another word")]
    Reserved(&'static str),
}

/// A checked name with its key and slot.
#[derive(Clone, Debug)]
pub struct LockKey {
    pub kind: LockKind,
    pub name: Arc<str>,
    pub key: Bytes,
    /// The other key of a two-key lock.
    pub second_key: Option<Bytes>,
    pub slot: Slot,
}

impl LockKey {
    pub fn new(kind: LockKind, prefix: &str, name: &str) -> Result<LockKey, NameError> {
        let reserved = RESERVED.into_iter().find(|start| name.starts_with(start));
        match reserved.filter(|_| kind != LockKind::SetNxMutex) {
            Some(start) => Err(NameError::Reserved(start)),
            None => LockKey::with_any_start(kind, prefix, name),
        }
    }

    /// Checks only the length of the name.
    pub fn with_any_start(kind: LockKind, prefix: &str, name: &str) -> Result<LockKey, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > MAX_NAME_LEN {
            return Err(NameError::TooLong(name.len()));
        }
        let key = Bytes::from([prefix, name].concat());
        let slot = Slot::of(&key);
        Ok(LockKey { kind, name: name.into(), key, second_key: None, slot })
    }

    /// Whether a client may keep the lock cached.
    pub fn can_be_cached(&self) -> bool {
        self.kind == LockKind::ReadWrite
    }
}

#[cfg(test)]
mod tests;
