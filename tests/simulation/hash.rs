//! A lock's hash as the checks see it.

use std::collections::BTreeMap;

use rwlease::embedded::ServedCommand;

use crate::line;

/// The length of the prefix of an acquisition's id that names its client.
pub const CLIENT: usize = 11;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hash {
    pub fence: u64,
    pub writer: Option<(String, Record)>,
    pub readers: BTreeMap<String, Record>,
    pub waiters: BTreeMap<String, Waiter>,
    pub upgrader: Option<String>,
    pub phase: u64,
    pub sweep: Option<String>,
    pub forced: u64,
    pub revoked: u64,
    pub read_min: Option<u64>,
    /// The progress of a pass that recalls readers.
    pub recall: String,
    pub lapsed: String,
    /// Of a semaphore: its limit, and the permits of its holders, including dead ones.
    pub limit: Option<u64>,
    pub used: u64,
    pub exists: bool,
    /// When the key expires, in the server's ms.
    pub expires: Option<u64>,
    /// An error in the fields.
    pub malformed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    pub is_claimed: bool,
    /// `h`, `g`, `k`, `c` or `b`.
    pub state: char,
    pub deadline: u64,
    pub token: u64,
    pub index: u64,
    /// Of a semaphore's holder.
    pub permits: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waiter {
    pub mode: char,
    pub next: String,
    pub ticket: u64,
    pub seen: u64,
    pub ttl: u64,
    pub window: u64,
    pub node: String,
    pub is_fair: bool,
    /// The permits that it wants of a semaphore.
    pub permits: u64,
}

impl Hash {
    /// Whether `one` is somewhere behind `other` in its list.
    pub fn stands_behind(&self, one: &str, other: &str) -> bool {
        let next = |id: &str| self.waiters.get(id).map(|waiter| waiter.next.clone());
        let behind = std::iter::successors(next(other), |id| next(id));
        behind.take(self.waiters.len()).any(|id| id == one)
    }

    /// Whether each waiter of a list has no later ticket than the one behind it. Two waiters may
    /// have the same ticket after a failover that lost writes.
    pub fn is_in_order(&self, mode: char) -> bool {
        let mut list = self.waiters.values().filter(|waiter| waiter.mode == mode);
        list.all(|waiter| {
            let behind = self.waiters.get(&waiter.next);
            behind.is_none_or(|behind| behind.ticket >= waiter.ticket)
        })
    }

    pub fn read(served: &ServedCommand<'_>) -> Hash {
        let mut hash = Hash { expires: served.expires(), ..Hash::default() };
        let mut readers = None;
        let mut cached = 0;
        let mut indices = BTreeMap::new();
        let mut stored = BTreeMap::new();
        for (field, value) in served.fields() {
            hash.exists = true;
            let [Ok(field), Ok(value)] =
                [field, value].map(|text| String::from_utf8(text.to_vec()))
            else {
                hash.malformed = Some("no text".into());
                continue;
            };
            stored.insert(field, value);
        }
        hash.malformed = hash.malformed.or_else(|| line::invalid_fields(&stored));
        for (field, value) in &line::expand_line(&stored).unwrap_or_default() {
            let (field, value) = (field.as_str(), value.as_str());
            let number = || value.parse().unwrap_or(u64::MAX);
            match field {
                "fence" => hash.fence = number(),
                "phase" => hash.phase = number(),
                "forced" => hash.forced = number(),
                "revoked" => hash.revoked = number(),
                "read_min" => hash.read_min = Some(number()),
                "readers" => readers = Some(number()),
                "cached" => cached = number(),
                "recall" => hash.recall = value.to_owned(),
                "sweep" => hash.sweep = Some(value.to_owned()),
                "limit" => hash.limit = Some(number()),
                "used" => hash.used = number(),
                "lapsed" => hash.lapsed = value.to_owned(),
                "upgrader" => hash.upgrader = Some(value.to_owned()),
                "writer" => match Record::read(value) {
                    Some((record, id)) => hash.writer = Some((id.to_owned(), record)),
                    None => hash.malformed = Some(format!("writer {value}")),
                },
                _ => {
                    if let Some(id) = field.strip_prefix("r:") {
                        match Record::read(value) {
                            Some((mut record, rest)) => {
                                let (index, permits) = rest.split_once(' ').unwrap_or((rest, "0"));
                                record.permits = permits.parse().unwrap_or(0);
                                record.index = index.parse().unwrap_or(u64::MAX);
                                hash.readers.insert(id.to_owned(), record);
                            }
                            None => hash.malformed = Some(format!("{field} {value}")),
                        }
                    } else if let Some(index) = field.strip_prefix("i:") {
                        indices.insert(index.parse().unwrap_or(u64::MAX), value.to_owned());
                    } else if let Some(id) = field.strip_prefix("q:") {
                        match Waiter::read(value) {
                            Some(waiter) => drop(hash.waiters.insert(id.to_owned(), waiter)),
                            None => hash.malformed = Some(format!("{field} {value}")),
                        }
                    }
                }
            }
        }
        let is_dense = readers.unwrap_or(0) == hash.readers.len() as u64
            && indices.len() == hash.readers.len()
            && hash.readers.iter().all(|(id, record)| {
                let mark = if record.is_cached() { "+" } else { "" };
                indices.get(&record.index) == Some(&format!("{mark}{id}"))
            })
            && hash.readers.values().filter(|record| record.is_cached()).count() as u64 == cached
            && indices.last_key_value().is_none_or(|(last, _)| *last + 1 == indices.len() as u64);
        if !is_dense && hash.malformed.is_none() {
            hash.malformed = Some("the array of the readers is not dense".into());
        }
        if hash.used != hash.readers.values().map(|record| record.permits).sum::<u64>() {
            hash.malformed = Some("the permits in use are not those of the holders".into());
        }
        hash
    }

    /// Whether the fields are the same. (The expiry of the key shifts when it moves to a server
    /// with another clock.)
    pub fn says_the_same(&self, other: &Hash) -> bool {
        let expires = other.expires;
        Hash { expires, ..self.clone() } == *other
    }

    /// The lease of an acquisition at this server time.
    pub fn lease(&self, id: &str, now: u64) -> Option<Record> {
        let record = match &self.writer {
            Some((writer, record)) if writer == id => Some(*record),
            _ => self.readers.get(id).copied().filter(|record| record.token > self.forced),
        };
        record.filter(|record| record.deadline > now)
    }

    /// Whether there is a record of an acquisition, even one whose lease has ended.
    pub fn knows(&self, id: &str) -> bool {
        self.readers.contains_key(id)
            || self.writer.as_ref().is_some_and(|(writer, _)| writer == id)
    }

    /// Whether an acquisition writes at this server time.
    pub fn writes(&self, id: &str, now: u64) -> bool {
        self.leases(now).any(|(other, writes, _)| writes && other == id)
    }

    /// Whether an acquisition reads at this server time.
    pub fn reads(&self, id: &str, now: u64) -> bool {
        self.leases(now).any(|(other, writes, _)| !writes && other == id)
    }

    /// All leases at this server time: acquisition, whether it writes, record.
    pub fn leases(&self, now: u64) -> impl Iterator<Item = (&str, bool, Record)> {
        let writer = self.writer.iter().map(|(id, record)| (id.as_str(), true, *record));
        let readers = self.readers.iter().map(|(id, record)| (id.as_str(), false, *record));
        let readers = readers.filter(|(_, _, record)| record.token > self.forced);
        writer.chain(readers).filter(move |(_, _, record)| record.deadline > now)
    }

    /// Whether a grant of this client has ended unclaimed, and no script has noticed yet.
    pub fn has_lapsed(&self, client: &str, now: u64) -> bool {
        let writer = self.writer.iter().map(|(id, record)| (id, record));
        let mut records = writer.chain(&self.readers);
        records.any(|(id, record)| {
            id.starts_with(client) && !record.is_claimed && record.deadline <= now
        })
    }

    /// Whether a waiter is not known to be dead.
    pub fn is_alive(&self, id: &str, waiter: &Waiter, now: u64) -> bool {
        let mut lapsed = self.lapsed.split(' ');
        let mut is_lapsed = false;
        while let (Some(client), Some(at)) = (lapsed.next(), lapsed.next()) {
            is_lapsed |=
                id.starts_with(client) && at.parse::<u64>().is_ok_and(|at| at > waiter.seen);
        }
        waiter.seen + waiter.ttl > now && !is_lapsed
    }
}

impl Record {
    /// Whether it may be recalled.
    pub fn is_cached(&self) -> bool {
        matches!(self.state, 'k' | 'c')
    }

    fn read(text: &str) -> Option<(Record, &str)> {
        let record = Record {
            is_claimed: text.get(..1)? != "g",
            state: text.chars().next().filter(|state| "hgkcb".contains(*state))?,
            deadline: text.get(1..14)?.parse().ok()?,
            token: text.get(14..30)?.parse().ok()?,
            index: 0,
            permits: 0,
        };
        Some((record, text.get(30..)?))
    }
}

impl Waiter {
    fn read(text: &str) -> Option<Waiter> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [mode, _, next, ticket, seen, ttl, _, window, fairness, node, ..] = parts.as_slice()
        else {
            return None;
        };
        Some(Waiter {
            mode: mode.chars().next()?,
            next: (*next).to_owned(),
            ticket: ticket.parse().ok()?,
            seen: seen.parse().ok()?,
            ttl: ttl.parse().ok()?,
            window: window.parse().ok()?,
            node: (*node).to_owned(),
            is_fair: *fairness == "f",
            permits: fairness.parse().unwrap_or(0),
        })
    }
}
