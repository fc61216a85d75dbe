//! The one decoder of a lock's hash, as section 2 and 15 of `docs/protocol.md` describe it.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use crate::client_of;
use crate::state_line::expand_line;

/// The length of the prefix of an acquisition's id that names its client.
pub const CLIENT_ID_LEN: usize = 11;

/// Fields that are no numbers.
const WORDS: [&str; 14] = [
    "shape",
    "flags",
    "pad",
    "writer",
    "upgrader",
    "writers_head",
    "writers_tail",
    "readers_head",
    "readers_tail",
    "head",
    "tail",
    "sweep",
    "recall_cursor",
    "lapsed_clients",
];

/// A lock or a semaphore at a moment.
#[derive(Clone, Debug, Default)]
pub struct LockHash {
    /// The fields as they are stored.
    pub stored: BTreeMap<String, String>,
    /// The fields as if each part of the state line had its own field.
    pub fields: BTreeMap<String, String>,
    /// The records of holders, including dead ones.
    pub writer: Option<Holder>,
    pub readers: BTreeMap<String, Holder>,
    pub waiters: BTreeMap<String, Waiter>,
    /// The clients that let a grant lapse, and when.
    pub lapsed: Vec<(String, u64)>,
    /// When the key expires, in ms by the server's clock.
    pub expires: Option<u64>,
    /// The server's time of this look, in ms: a later look sets it anew.
    pub now: u64,
    /// What is wrong with the fields. Then some of them may not have been decoded.
    pub malformed: Option<String>,
}

/// The record of a holder. An acquisition may have two, if one of them is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub id: String,
    pub writes: bool,
    /// `h`, `g`, `k`, `c` or `b`.
    pub state: char,
    pub deadline: u64,
    pub token: u64,
    /// A reader's place in the array.
    pub index: u64,
    /// The permits of a semaphore; 0 for a lock.
    pub permits: u64,
}

/// The record of a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub id: String,
    /// `r`, `w`, `u` or `p`.
    pub mode: char,
    pub previous: String,
    pub next: String,
    pub ticket: u64,
    pub last_seen: u64,
    pub ttl: u64,
    pub window: u64,
    pub is_fair: bool,
    /// The permits that it requests; 0 for a lock.
    pub permits: u64,
    /// The server of its subscription, `-` if it only polls.
    pub node: String,
}

impl LockHash {
    pub fn decode(stored: BTreeMap<String, String>, expires: Option<u64>, now: u64) -> LockHash {
        let (fields, malformed) = match expand_line(&stored) {
            Ok(fields) => (fields, None),
            Err(malformed) => (BTreeMap::new(), Some(malformed)),
        };
        let mut hash = LockHash { stored, expires, now, malformed, ..LockHash::default() };
        for (field, value) in &fields {
            if hash.decode_field(field, value).is_none() && hash.malformed.is_none() {
                hash.malformed = Some(format!("{field} = {value}"));
            }
        }
        hash.fields = fields;
        hash
    }

    fn decode_field(&mut self, field: &str, value: &str) -> Option<()> {
        match field.split_once(':') {
            Some(("r", id)) => {
                self.readers.insert(id.into(), Holder::of_reader(id, value)?);
            }
            Some(("q", id)) => {
                self.waiters.insert(id.into(), Waiter::decode(id, value)?);
            }
            Some(("i", index)) => drop(index.parse::<u64>().ok()?),
            _ if field == "writer" => self.writer = Some(Holder::of_writer(value)?),
            _ if field == "lapsed_clients" => {
                let words: Vec<&str> = value.split(' ').collect();
                for pair in words.chunks(2) {
                    self.lapsed.push((pair[0].into(), pair.get(1)?.parse().ok()?));
                }
            }
            _ if WORDS.contains(&field) => {}
            _ => drop(value.parse::<u64>().ok()?),
        }
        Some(())
    }

    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// The value of a numeric field, 0 without it.
    pub fn number(&self, field: &str) -> u64 {
        self.text(field).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// One of `FWRSQP`, or empty without a key.
    pub fn shape(&self) -> &str {
        self.text("shape").unwrap_or("")
    }

    /// Whether the key is gone by now.
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= self.now)
    }

    /// All records of holders, including dead ones.
    pub fn records(&self) -> impl Iterator<Item = &Holder> {
        self.writer.iter().chain(self.readers.values())
    }

    /// The record of an acquisition, even a dead one.
    pub fn record(&self, id: &str) -> Option<&Holder> {
        self.records().find(|record| record.id == id)
    }

    fn is_held(&self, record: &Holder) -> bool {
        let forced = !record.writes && record.token <= self.number("forced_up_to");
        self.now < record.deadline && !forced
    }

    /// The living holders.
    pub fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.records().filter(|record| self.is_held(record))
    }

    pub fn holder(&self, id: &str) -> Option<&Holder> {
        self.holders().find(|holder| holder.id == id)
    }

    /// Whether there is a living writer.
    pub fn is_written(&self) -> bool {
        self.holders().any(|holder| holder.writes)
    }

    /// The acquisition that writes.
    pub fn writes(&self) -> Option<String> {
        self.holders().find(|holder| holder.writes).map(|holder| holder.id.clone())
    }

    /// The acquisitions that read.
    pub fn reads(&self) -> BTreeSet<String> {
        self.holders().filter(|holder| !holder.writes).map(|holder| holder.id.clone()).collect()
    }

    /// The permits of living holders.
    pub fn held_permits(&self) -> u64 {
        self.holders().map(|holder| holder.permits).sum()
    }

    /// Whether an acquisition has a record that no forced release has ended.
    pub fn has_record(&self, id: &str) -> bool {
        let forced = self.number("forced_up_to");
        self.records().any(|record| record.id == id && (record.writes || record.token > forced))
    }

    /// Whether a waiter is not known to be dead.
    pub fn is_alive(&self, waiter: &Waiter) -> bool {
        let client = waiter.client();
        let lapsed = self.lapsed.iter().any(|(who, at)| who == client && *at > waiter.last_seen);
        self.now < waiter.ends() && !lapsed
    }

    /// Whether a grant of this client has ended unclaimed since a moment, and no script has noticed
    /// yet.
    pub fn has_lapsed(&self, client: &str, since: u64) -> bool {
        self.records().any(|record| {
            record.id.starts_with(client)
                && !record.is_claimed()
                && record.deadline <= self.now
                && record.deadline > since
        })
    }

    pub fn living_waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values().filter(|waiter| self.is_alive(waiter))
    }

    /// The waiters of a mode, from the head on. Ends at a broken link.
    pub fn queue(&self, mode: char) -> Vec<&Waiter> {
        let head = self.text(ends_of(mode).0).and_then(|id| self.waiters.get(id));
        let all = successors(head, |waiter| self.waiters.get(&waiter.next));
        all.take(self.waiters.len() + 1).collect()
    }

    /// The acquisitions of a queue, from the head on.
    pub fn queue_ids(&self, mode: char) -> Vec<String> {
        self.queue(mode).into_iter().map(|waiter| waiter.id.clone()).collect()
    }

    /// The first living waiter of a mode.
    pub fn first_in_line(&self, mode: char) -> Option<&Waiter> {
        self.queue(mode).into_iter().find(|waiter| self.is_alive(waiter))
    }

    /// Whether `one` is somewhere behind `other` in its list.
    pub fn stands_behind(&self, one: &str, other: &str) -> bool {
        let next = |id: &str| self.waiters.get(id).and_then(|it| self.waiters.get(&it.next));
        let behind = successors(next(other), |waiter| next(&waiter.id));
        behind.take(self.waiters.len()).any(|waiter| waiter.id == one)
    }

    /// The next index of a recall of readers; -1 after the last one.
    pub fn recall_cursor(&self) -> Option<i64> {
        self.text("recall_cursor")?.parse().ok()
    }
}

/// The fields of a list's ends.
pub(crate) fn ends_of(mode: char) -> (&'static str, &'static str) {
    match mode {
        'r' => ("readers_head", "readers_tail"),
        'w' => ("writers_head", "writers_tail"),
        _ => ("head", "tail"),
    }
}

impl Holder {
    pub fn is_claimed(&self) -> bool {
        self.state != 'g'
    }

    /// Whether it may be recalled.
    pub fn is_cached(&self) -> bool {
        matches!(self.state, 'k' | 'c')
    }

    fn of_writer(record: &str) -> Option<Holder> {
        Holder::decode(record.get(30..)?, record, true)
    }

    fn of_reader(id: &str, record: &str) -> Option<Holder> {
        let rest = record.get(30..)?;
        let (index, permits) = rest.split_once(' ').unwrap_or((rest, "0"));
        let holder = Holder::decode(id, record, false)?;
        Some(Holder { index: index.parse().ok()?, permits: permits.parse().ok()?, ..holder })
    }

    fn decode(id: &str, record: &str, writes: bool) -> Option<Holder> {
        Some(Holder {
            id: id.into(),
            writes,
            state: record.chars().next().filter(|state| "hgkcb".contains(*state))?,
            deadline: record.get(1..14)?.parse().ok()?,
            token: record.get(14..30)?.parse().ok()?,
            index: 0,
            permits: 0,
        })
    }
}

impl Waiter {
    /// When it dies without a call.
    pub fn ends(&self) -> u64 {
        self.last_seen + self.ttl
    }

    pub fn client(&self) -> &str {
        client_of(&self.id)
    }

    fn decode(id: &str, record: &str) -> Option<Waiter> {
        let words: Vec<&str> = record.split(' ').collect();
        let [mode, previous, next, ticket, seen, ttl, _lease, window, fairness, node, _tag, _since] =
            words[..]
        else {
            return None;
        };
        Some(Waiter {
            id: id.into(),
            mode: mode.chars().next().filter(|mode| "rwup".contains(*mode))?,
            previous: previous.into(),
            next: next.into(),
            ticket: ticket.parse().ok()?,
            last_seen: seen.parse().ok()?,
            ttl: ttl.parse().ok()?,
            window: window.parse().ok()?,
            is_fair: fairness == "f",
            permits: if mode == "p" { fairness.parse().ok()? } else { 0 },
            node: node.into(),
        })
    }
}
