//! The keys of one server.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault};

use super::answer::{Blob, Failure};
use super::log::{Before, Log};
use crate::router::Slot;

/// The fields of a hash, in the order of their names: the same run gives the same `HGETALL`.
pub(super) type Fields = BTreeMap<Blob, Blob>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(Blob),
    Hash(Fields),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// When the key ends, in the server's ms.
    pub(super) expires: Option<u64>,
}

impl Entry {
    fn is_over(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now > expires)
    }
}

/// Keys and values. A key whose time is over is gone when it is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    /// Hashed the same way in every run.
    entries: HashMap<Blob, Entry, BuildHasherDefault<DefaultHasher>>,
    /// The server's time in ms: it stands still while a command or a script runs.
    now: u64,
    log: Log,
    /// The number of keys at which those that are over are looked for.
    sweep_at: usize,
}

impl Store {
    /// Begins a command or a script.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = now;
    }

    /// Ends a command or a script: what it changed is one write.
    pub(super) fn end(&mut self) {
        const FEW: usize = 1024;
        if self.entries.len() > self.sweep_at.max(FEW) {
            self.sweep();
            self.sweep_at = self.entries.len() * 2;
        }
        self.log.close();
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        self.end_if_over(key);
        self.entries.get(key)
    }

    pub(super) fn contains(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&Blob>, Failure> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Hash(_)) => Err(Failure::WRONG_TYPE),
        }
    }

    pub(super) fn hash(&mut self, key: &[u8]) -> Result<Option<&Fields>, Failure> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(Value::Text(_)) => Err(Failure::WRONG_TYPE),
        }
    }

    /// Sets a key to an entry, or removes it. True if there was one.
    pub(super) fn set(&mut self, key: &[u8], entry: Option<Entry>) -> bool {
        self.end_if_over(key);
        let removes = entry.is_none();
        let before = match entry {
            Some(entry) => self.entries.insert(key.into(), entry),
            None => self.entries.remove(key),
        };
        let existed = before.is_some();
        if existed || !removes {
            self.log.push(Before::Entry {
                key: key.into(),
                entry: before,
            });
        }
        existed
    }

    /// Sets a field. True if it is new.
    pub(super) fn set_field(&mut self, key: &[u8], field: &[u8], value: Blob) -> Result<bool, Failure> {
        if self.hash(key)?.is_none() {
            let value = Value::Hash(Fields::new());
            self.set(key, Some(Entry { value, expires: None }));
        }
        let Some(fields) = fields_of(self.entries.get_mut(key)) else {
            return Err(Failure::WRONG_TYPE);
        };
        let before = match fields.get_mut(field) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => fields.insert(field.into(), value),
        };
        let is_new = before.is_none();
        self.log.push(Before::Field {
            key: key.into(),
            field: field.into(),
            value: before,
        });
        Ok(is_new)
    }

    /// Removes a field, and with the last one the key. True if there was one.
    pub(super) fn remove_field(&mut self, key: &[u8], field: &[u8]) -> Result<bool, Failure> {
        if self.hash(key)?.is_none() {
            return Ok(false);
        }
        let Some(fields) = fields_of(self.entries.get_mut(key)) else {
            return Ok(false);
        };
        let Some(before) = fields.remove(field) else {
            return Ok(false);
        };
        let was_last = fields.is_empty();
        self.log.push(Before::Field {
            key: key.into(),
            field: field.into(),
            value: Some(before),
        });
        if was_last {
            self.set(key, None);
        }
        Ok(true)
    }

    /// Sets when a key ends. False if there is no such key.
    pub(super) fn set_expiry(&mut self, key: &[u8], expires: Option<u64>) -> bool {
        self.end_if_over(key);
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.expires, expires);
        self.log.push(Before::Expiry {
            key: key.into(),
            expires: before,
        });
        true
    }

    /// All keys with the place of each in the order of a scan, which changes of other keys do not shift.
    pub(super) fn keys(&mut self) -> Vec<(u64, Blob)> {
        self.sweep();
        let place = |key: &Blob| self.entries.hasher().hash_one(key);
        let mut keys: Vec<_> = self.entries.keys().map(|key| (place(key), key.clone())).collect();
        keys.sort_unstable();
        keys
    }

    pub(super) fn keys_in(&mut self, slot: Slot) -> Vec<Blob> {
        let keys = self.keys().into_iter().map(|(_, key)| key);
        keys.filter(|key| Slot::of(key) == slot).collect()
    }

    /// How many keys there are.
    pub(super) fn len(&mut self) -> usize {
        self.sweep();
        self.entries.len()
    }

    /// Undoes the last writes: what a replica is like that has not got them. They are forgotten here too.
    pub(super) fn undo(&mut self, writes: usize) {
        for _ in 0..writes {
            let Some(changes) = self.log.pop() else { break };
            for before in changes {
                restore(&mut self.entries, before);
            }
        }
    }

    /// The replicas have all that was written until now.
    pub(super) fn confirm(&mut self) {
        self.log.clear();
    }

    fn end_if_over(&mut self, key: &[u8]) {
        if self.entries.get(key).is_some_and(|entry| entry.is_over(self.now)) {
            let entry = self.entries.remove(key);
            self.log.push(Before::Entry { key: key.into(), entry });
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        for (key, entry) in self.entries.extract_if(|_, entry| entry.is_over(now)) {
            let entry = Some(entry);
            self.log.push(Before::Entry { key, entry });
        }
    }
}

fn fields_of(entry: Option<&mut Entry>) -> Option<&mut Fields> {
    match entry.map(|entry| &mut entry.value) {
        Some(Value::Hash(fields)) => Some(fields),
        _ => None,
    }
}

fn restore(entries: &mut HashMap<Blob, Entry, BuildHasherDefault<DefaultHasher>>, before: Before) {
    match before {
        Before::Entry { key, entry: None } => {
            entries.remove(&key);
        }
        Before::Entry {
            key,
            entry: Some(entry),
        } => {
            entries.insert(key, entry);
        }
        Before::Field { key, field, value } => {
            if let Some(fields) = fields_of(entries.get_mut(&key)) {
                match value {
                    Some(value) => fields.insert(field, value),
                    None => fields.remove(&field),
                };
            }
        }
        Before::Expiry { key, expires } => {
            if let Some(entry) = entries.get_mut(&key) {
                entry.expires = expires;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(text: &str) -> Blob {
        Blob::from_slice(text.as_bytes())
    }

    fn text(value: &str, expires: Option<u64>) -> Option<Entry> {
        let value = Value::Text(blob(value));
        Some(Entry { value, expires })
    }

    #[test]
    fn a_key_is_gone_after_its_last_millisecond() {
        let mut store = Store::default();
        store.set(b"k", text("v", Some(10)));
        store.begin(10);
        assert!(store.contains(b"k"));
        store.begin(11);
        assert!(!store.contains(b"k"));
        assert_eq!(store.len(), 0);
    }

    #[test]
    fn a_hash_ends_with_its_last_field() {
        let mut store = Store::default();
        assert_eq!(store.set_field(b"h", b"f", blob("1")), Ok(true));
        assert_eq!(store.set_field(b"h", b"f", blob("2")), Ok(false));
        assert_eq!(store.remove_field(b"h", b"g"), Ok(false));
        assert_eq!(store.remove_field(b"h", b"f"), Ok(true));
        assert!(!store.contains(b"h"));
    }

    #[test]
    fn writes_are_undone_whole_and_in_order() {
        let mut store = Store::default();
        store.set_field(b"h", b"a", blob("1")).unwrap();
        store.set(b"t", text("v", None));
        store.end();
        let first = store.entries.clone();

        store.set_field(b"h", b"a", blob("2")).unwrap();
        store.set_field(b"h", b"b", blob("3")).unwrap();
        store.set_expiry(b"h", Some(77));
        store.set(b"t", None);
        store.end();
        let second = store.entries.clone();

        store.remove_field(b"h", b"a").unwrap();
        store.remove_field(b"h", b"b").unwrap();
        store.end();
        store.end(); // a command that changed nothing is no write

        store.undo(1);
        assert_eq!(store.entries, second);
        store.undo(1);
        assert_eq!(store.entries, first);
        store.undo(5);
        assert!(store.entries.is_empty());
    }

    #[test]
    fn a_key_whose_time_was_over_comes_back_when_that_is_undone() {
        let mut store = Store::default();
        store.set(b"k", text("v", Some(10)));
        store.confirm();
        store.begin(11);
        assert!(!store.contains(b"k"));
        store.end();
        store.undo(1);
        store.begin(10);
        assert!(store.contains(b"k"));
    }

    #[test]
    fn what_is_confirmed_is_not_undone() {
        let mut store = Store::default();
        store.set(b"k", text("v", None));
        store.end();
        store.confirm();
        store.undo(1);
        assert!(store.contains(b"k"));
    }

    #[test]
    fn keys_that_nobody_looks_at_are_swept_away() {
        let mut store = Store::default();
        for number in 0..5000 {
            store.set(format!("{number}").as_bytes(), text("v", Some(number)));
            store.begin(number);
            store.end();
        }
        assert!(store.entries.len() < 3000);
    }
}
