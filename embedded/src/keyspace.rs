//! The keys of one server.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;
use rwlease_core::slot::Slot;

use crate::reply::{Blob, ErrorReply};
use crate::undo_log::{UndoLog, UndoRecord};

/// The fields of a hash, in the order of their names, so that the same run gives the same
/// `HGETALL`.
pub(crate) type Fields = BTreeMap<Blob, Blob>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredValue {
    Text(Blob),
    Hash(Fields),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredKey {
    pub(crate) value: StoredValue,
    /// When the key expires, in the server's ms.
    pub(crate) expires_at: Option<u64>,
}

impl StoredKey {
    fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|expires| now > expires)
    }
}

/// Keys and values. A key that has expired is removed when the next command begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    entries: KeyMap,
    /// When keys expire, the earliest first. An entry is skipped if its key has another expiry by
    /// now.
    expiry_heap: BinaryHeap<Reverse<(u64, Blob)>>,
    /// The server's time in ms. It stands still while a command or a script runs.
    now: u64,
    log: UndoLog,
}

type KeyMap = HashMap<Blob, StoredKey, FxBuildHasher>;

impl Keyspace {
    /// Begins a command or a script.
    pub(crate) fn begin(&mut self, now: u64) {
        self.now = now;
        while let Some(Reverse((end, _))) = self.expiry_heap.peek()
            && *end < now
            && let Some(Reverse((_, key))) = self.expiry_heap.pop()
        {
            if self.entries.get(&key).is_some_and(|entry| entry.is_expired(now)) {
                self.set(&key, None);
            }
        }
    }

    /// Ends a command or a script: its changes are one write.
    pub(crate) fn end(&mut self) {
        const FEW: usize = 1024;
        if self.expiry_heap.len() > self.entries.len() * 2 + FEW {
            self.rebuild_expiry_heap();
        }
        self.log.close();
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn entry(&self, key: &[u8]) -> Option<&StoredKey> {
        self.entries.get(key)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn text(&self, key: &[u8]) -> Result<Option<&Blob>, ErrorReply> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(StoredValue::Text(text)) => Ok(Some(text)),
            Some(StoredValue::Hash(_)) => Err(ErrorReply::WRONG_TYPE),
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> Result<Option<&Fields>, ErrorReply> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(StoredValue::Hash(fields)) => Ok(Some(fields)),
            Some(StoredValue::Text(_)) => Err(ErrorReply::WRONG_TYPE),
        }
    }

    /// Sets a key to an entry, or removes it. An expired entry counts as none. Returns true if
    /// there was one.
    pub(crate) fn set(&mut self, key: &[u8], entry: Option<StoredKey>) -> bool {
        let entry = entry.filter(|entry| !entry.is_expired(self.now));
        let removes = entry.is_none();
        if let Some(end) = entry.as_ref().and_then(|entry| entry.expires_at) {
            self.expiry_heap.push(Reverse((end, Blob::from_slice(key))));
        }
        let before = match entry {
            Some(entry) => self.entries.insert(Blob::from_slice(key), entry),
            None => self.entries.remove(key),
        };
        let existed = before.is_some();
        if existed || !removes {
            let (key, entry) = (Blob::from_slice(key), before);
            self.log.push(UndoRecord::Entry { key, entry });
        }
        existed
    }

    /// Sets a field. Returns true if it is new.
    pub(crate) fn set_field(
        &mut self,
        key: &[u8],
        field: &[u8],
        value: &[u8],
    ) -> Result<bool, ErrorReply> {
        let value = Blob::from_slice(value);
        let before = match self.entries.get_mut(key).map(|entry| &mut entry.value) {
            Some(StoredValue::Hash(fields)) => match fields.get_mut(field) {
                Some(known) => Some(std::mem::replace(known, value)),
                None => fields.insert(Blob::from_slice(field), value),
            },
            Some(StoredValue::Text(_)) => return Err(ErrorReply::WRONG_TYPE),
            None => {
                let value = StoredValue::Hash(Fields::from([(Blob::from_slice(field), value)]));
                self.set(key, Some(StoredKey { value, expires_at: None }));
                return Ok(true);
            }
        };
        let is_new = before.is_none();
        self.note_field(key, field, before);
        Ok(is_new)
    }

    /// Removes a field, and with the last field the key. Returns true if there was one.
    pub(crate) fn remove_field(&mut self, key: &[u8], field: &[u8]) -> Result<bool, ErrorReply> {
        let fields = match self.entries.get_mut(key).map(|entry| &mut entry.value) {
            Some(StoredValue::Hash(fields)) => fields,
            Some(StoredValue::Text(_)) => return Err(ErrorReply::WRONG_TYPE),
            None => return Ok(false),
        };
        let Some(before) = fields.remove(field) else {
            return Ok(false);
        };
        let was_last = fields.is_empty();
        self.note_field(key, field, Some(before));
        if was_last {
            self.set(key, None);
        }
        Ok(true)
    }

    /// Sets when a key expires. Returns false if there is no such key.
    pub(crate) fn set_expiry(&mut self, key: &[u8], expires: u64) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let before = entry.expires_at.replace(expires);
        self.expiry_heap.push(Reverse((expires, Blob::from_slice(key))));
        let (key, expires) = (Blob::from_slice(key), before);
        self.log.push(UndoRecord::Expiry { key, expires });
        true
    }

    /// All keys, each with its position in the order of a scan. Changes of other keys do not shift
    /// it.
    pub(crate) fn keys(&self) -> Vec<(u64, Blob)> {
        let place = |key: &Blob| self.entries.hasher().hash_one(key);
        let mut keys: Vec<_> = self.entries.keys().map(|key| (place(key), key.clone())).collect();
        keys.sort_unstable();
        keys
    }

    /// The keys of a slot, in order.
    pub(crate) fn keys_in(&self, slot: Slot) -> Vec<Blob> {
        let keys = self.entries.keys().filter(|key| Slot::of(key) == slot);
        let mut keys: Vec<_> = keys.cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Undoes the last writes, which gives the state of a replica that lacks them, and forgets
    /// them.
    pub(crate) fn undo(&mut self, writes: usize) {
        for _ in 0..writes {
            let Some(changes) = self.log.pop() else { break };
            for before in changes {
                restore(&mut self.entries, before);
            }
        }
        self.rebuild_expiry_heap();
    }

    /// Makes all earlier writes permanent.
    pub(crate) fn commit(&mut self) {
        self.log.clear();
    }

    /// The replication offset: the number of writes. A write that leaves a value as it was counts
    /// too.
    pub(crate) fn offset(&self) -> u64 {
        self.log.offset()
    }

    /// Deletes all keys.
    pub(crate) fn empty(&mut self) {
        self.entries.clear();
        self.expiry_heap.clear();
        self.commit();
    }

    fn note_field(&mut self, key: &[u8], field: &[u8], value: Option<Blob>) {
        let (key, field) = (Blob::from_slice(key), Blob::from_slice(field));
        self.log.push(UndoRecord::Field { key, field, value });
    }

    fn rebuild_expiry_heap(&mut self) {
        let ends = self.entries.iter();
        let ends = ends.filter_map(|(key, entry)| Some(Reverse((entry.expires_at?, key.clone()))));
        self.expiry_heap = ends.collect();
    }
}

fn restore(entries: &mut KeyMap, before: UndoRecord) {
    match before {
        UndoRecord::Entry { key, entry: None } => {
            entries.remove(&key);
        }
        UndoRecord::Entry { key, entry: Some(entry) } => {
            entries.insert(key, entry);
        }
        UndoRecord::Field { key, field, value } => {
            if let Some(StoredValue::Hash(fields)) =
                entries.get_mut(&key).map(|entry| &mut entry.value)
            {
                match value {
                    Some(value) => fields.insert(field, value),
                    None => fields.remove(&field),
                };
            }
        }
        UndoRecord::Expiry { key, expires } => {
            if let Some(entry) = entries.get_mut(&key) {
                entry.expires_at = expires;
            }
        }
    }
}

#[cfg(test)]
mod tests;
