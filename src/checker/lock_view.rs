//! Reads a lock's hash as `docs/protocol.md` describes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::checker::time::SERVER_NOW;
use crate::embedded::LockHash;
use crate::protocol::line;

/// A record of a holder, alive or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HolderView {
    pub(super) writes: bool,
    pub(super) claimed: bool,
    /// `k` and `c` if it is cached, and `b` if it was.
    pub(super) state: char,
    pub(super) deadline: u64,
    pub(super) token: u64,
    /// A reader's index in the array.
    pub(super) index: u64,
    /// The permits of a semaphore; 0 for a lock.
    pub(super) permits: u64,
}

impl HolderView {
    pub(super) fn is_alive(&self) -> bool {
        SERVER_NOW < self.deadline
    }
}

/// A waiter's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaiterView {
    pub(super) mode: char,
    pub(super) previous: String,
    pub(super) next: String,
    pub(super) ticket: u64,
    seen: u64,
    ttl: u64,
    pub(super) window: u64,
    pub(super) is_fair: bool,
    /// The permits of a semaphore that it requests.
    pub(super) permits: u64,
    pub(super) node: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LockView {
    /// The holders by id: a writer and readers. An id may be in both if one of them is dead.
    pub(super) writer: Option<(String, HolderView)>,
    pub(super) readers: BTreeMap<String, HolderView>,
    /// The ids in the array of readers, by index.
    pub(super) array: BTreeMap<u64, String>,
    /// The ids among them with the mark of a cached lease.
    pub(super) marks: BTreeSet<String>,
    pub(super) waiters: BTreeMap<String, WaiterView>,
    lapsed: Vec<(String, u64)>,
    numbers: BTreeMap<String, u64>,
    words: BTreeMap<String, String>,
    pub(super) ends: Option<u64>,
    /// Fields that may not be in the hash beside the line.
    pub(super) misplaced: Option<String>,
}

impl LockView {
    pub(super) fn of(lock: &LockHash) -> Result<LockView, String> {
        let misplaced = line::invalid_fields(&lock.fields);
        let mut view = LockView { ends: lock.ends, misplaced, ..LockView::default() };
        for (field, value) in &line::expand_line(&lock.fields).unwrap_or_default() {
            view.read(field, value).ok_or_else(|| format!("malformed: {field} = {value}"))?;
        }
        Ok(view)
    }

    fn read(&mut self, field: &str, value: &str) -> Option<()> {
        match field.split_once(':') {
            Some(("r", id)) => {
                self.readers.insert(id.into(), HolderView::read(value, false)?);
            }
            Some(("i", index)) => {
                let id = value.strip_prefix('+').unwrap_or(value);
                if id != value {
                    self.marks.insert(id.into());
                }
                self.array.insert(index.parse().ok()?, id.into());
            }
            Some(("q", id)) => {
                self.waiters.insert(id.into(), WaiterView::read(value)?);
            }
            _ => self.read_one(field, value)?,
        }
        Some(())
    }

    fn read_one(&mut self, field: &str, value: &str) -> Option<()> {
        match field {
            "writer" => {
                self.writer = Some((value.get(30..)?.into(), HolderView::read(value, true)?));
            }
            "lapsed" => {
                let words: Vec<&str> = value.split(' ').collect();
                for pair in words.chunks(2) {
                    self.lapsed.push((pair[0].into(), pair.get(1)?.parse().ok()?));
                }
            }
            "writers_head" | "writers_tail" | "readers_head" | "readers_tail" | "upgrader"
            | "head" | "tail" | "sweep" | "wide" | "shape" | "flags" | "recall" => {
                self.words.insert(field.into(), value.into());
            }
            _ => {
                self.numbers.insert(field.into(), value.parse().ok()?);
            }
        }
        Some(())
    }

    /// The value of a numeric field, or 0.
    pub(super) fn number(&self, field: &str) -> u64 {
        self.numbers.get(field).copied().unwrap_or(0)
    }

    pub(super) fn word(&self, field: &str) -> Option<&str> {
        self.words.get(field).map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The living holders.
    pub(super) fn holders(&self) -> impl Iterator<Item = (&str, &HolderView)> {
        let forced = self.number("forced");
        let readers = self.readers.iter().filter(move |(_, record)| record.token > forced);
        let readers = readers.map(|(id, record)| (id.as_str(), record));
        let writer = self.writer.as_ref().map(|(id, record)| (id.as_str(), record));
        writer.into_iter().chain(readers).filter(|(_, record)| record.is_alive())
    }

    pub(super) fn holder(&self, id: &str) -> Option<&HolderView> {
        self.holders().find(|(holder, _)| *holder == id).map(|(_, record)| record)
    }

    /// Whether an acquisition has a record, living or dead, that no forced release has ended.
    pub(super) fn had_record(&self, id: &str) -> bool {
        let reads = self.readers.get(id).is_some_and(|it| it.token > self.number("forced"));
        reads || self.writer.as_ref().is_some_and(|(writer, _)| writer == id)
    }

    pub(super) fn writes(&self) -> bool {
        self.holders().any(|(_, record)| record.writes)
    }

    pub(super) fn is_waiter_alive(&self, id: &str, waiter: &WaiterView) -> bool {
        let client = &id[..11];
        let lapsed = self.lapsed.iter().any(|(who, when)| who == client && *when > waiter.seen);
        SERVER_NOW < waiter.seen + waiter.ttl && !lapsed
    }

    /// The first living waiter of a list.
    pub(super) fn first_in_line(&self, head: &str) -> Option<(&str, &WaiterView)> {
        let mut at = self.word(head)?;
        while let Some((id, waiter)) = self.waiters.get_key_value(at) {
            if self.is_waiter_alive(id, waiter) {
                return Some((id.as_str(), waiter));
            }
            at = &waiter.next;
        }
        None
    }

    pub(super) fn living_waiters(&self) -> impl Iterator<Item = (&str, &WaiterView)> {
        let waiters = self.waiters.iter().map(|(id, waiter)| (id.as_str(), waiter));
        waiters.filter(|(id, waiter)| self.is_waiter_alive(id, waiter))
    }
}

impl HolderView {
    fn read(value: &str, writes: bool) -> Option<HolderView> {
        let place = if writes { "0" } else { value.get(30..)? };
        let (index, permits) = place.split_once(' ').unwrap_or((place, "0"));
        Some(HolderView {
            writes,
            state: value.chars().next()?,
            claimed: match value.get(..1)? {
                "h" | "k" | "c" | "b" => true,
                "g" => false,
                _ => return None,
            },
            deadline: value.get(1..14)?.parse().ok()?,
            token: value.get(14..30)?.parse().ok()?,
            index: index.parse().ok()?,
            permits: permits.parse().ok()?,
        })
    }
}

impl WaiterView {
    /// When it dies without a poll.
    pub(super) fn ends(&self) -> u64 {
        self.seen + self.ttl
    }

    fn read(value: &str) -> Option<WaiterView> {
        let words: Vec<&str> = value.split(' ').collect();
        let [mode, previous, next, ticket, seen, ttl, _lease, window, fairness, node, _tag, _since] =
            words[..]
        else {
            return None;
        };
        Some(WaiterView {
            mode: mode.chars().next()?,
            previous: previous.into(),
            next: next.into(),
            ticket: ticket.parse().ok()?,
            seen: seen.parse().ok()?,
            ttl: ttl.parse().ok()?,
            window: window.parse().ok()?,
            is_fair: fairness == "f",
            permits: if mode == "p" { fairness.parse().ok()? } else { 0 },
            node: node.into(),
        })
    }
}
