//! Reads a lock's hash as the documentation of the protocol describes it, and checks what must hold
//! after every call.

use std::collections::{BTreeMap, BTreeSet};

use super::lab::{GRACE, KEEP};
use super::support::state_line::{expand_line, invalid_fields};

#[derive(Debug)]
pub struct State {
    /// The fields as if each part of the line had its own field.
    pub fields: BTreeMap<String, String>,
    /// The fields as they are stored.
    pub raw: BTreeMap<String, String>,
    ends: Option<u64>,
    now: u64,
}

/// A holder's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `g`, `h`, `k`, `c` or `b`.
    pub state: char,
    pub claimed: bool,
    pub deadline: u64,
    pub token: u64,
    pub rest: String,
}

/// A waiter's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub mode: String,
    pub previous: String,
    pub next: String,
    pub ticket: u64,
    pub alive_until: u64,
}

impl Record {
    /// A cached holder is recalled when it blocks another acquisition.
    pub fn is_cached(&self) -> bool {
        matches!(self.state, 'k' | 'c')
    }
}

type Check = Result<(), String>;

impl State {
    pub fn read(raw: BTreeMap<String, String>, ends: Option<u64>, now: u64) -> State {
        let fields = expand_line(&raw).unwrap_or_else(|_| raw.clone());
        State { fields, raw, ends, now }
    }

    pub fn number(&self, field: &str) -> u64 {
        let text = self.fields.get(field).map_or("0", String::as_str);
        text.parse().unwrap_or_else(|_| panic!("{field} is {text}"))
    }

    /// The next index of a recall pass.
    pub fn recall(&self) -> Option<i64> {
        self.fields.get("recall").map(|text| text.parse().unwrap())
    }

    /// Each holder's mark, by what never changes in its record.
    pub fn marks(&self) -> BTreeMap<(String, bool, u64), char> {
        let writes = self.writer().map(|writer| ((writer.rest, true, writer.token), writer.state));
        let readers = self.readers().into_iter();
        readers
            .map(|(id, reader)| ((id, false, reader.token), reader.state))
            .chain(writes)
            .collect()
    }

    pub fn writer(&self) -> Option<Record> {
        self.fields.get("writer").map(|text| record(text))
    }

    pub fn reader(&self, id: &str) -> Option<Record> {
        self.fields.get(&format!("r:{id}")).map(|text| record(text))
    }

    pub fn readers(&self) -> BTreeMap<String, Record> {
        let readers = self.prefixed("r:");
        readers.map(|(id, text)| (id.into(), record(text))).collect()
    }

    pub fn waiters(&self) -> BTreeMap<String, Waiter> {
        let waiters = self.prefixed("q:");
        waiters.map(|(id, text)| (id.into(), waiter(text))).collect()
    }

    /// The acquisitions in a queue, in order.
    pub fn queue(&self, mode: &str) -> Vec<String> {
        let waiters = self.waiters();
        let mut id = self.fields.get(head(mode)).cloned();
        let mut queue = Vec::new();
        while let Some(here) = id.filter(|id| id != "-") {
            assert!(queue.len() <= waiters.len(), "the queue goes in a circle");
            id = waiters.get(&here).map(|waiter| waiter.next.clone());
            queue.push(here);
        }
        queue
    }

    /// The acquisition that holds the lock for writing now.
    pub fn writes(&self) -> Option<String> {
        let writer = self.writer()?;
        (writer.deadline > self.now).then_some(writer.rest)
    }

    /// The acquisitions that hold it for reading now.
    pub fn reads(&self) -> BTreeSet<String> {
        let forced = self.number("forced");
        let holds = |record: &Record| record.deadline > self.now && record.token > forced;
        let readers = self.readers().into_iter().filter(|(_, record)| holds(record));
        readers.map(|(id, _)| id).collect()
    }

    /// The waiters that have polled recently enough.
    pub fn living_waiters(&self, mode: &str) -> Vec<String> {
        let waiters = self.waiters();
        let lives = |id: &String| waiters[id].alive_until > self.now;
        self.queue(mode).into_iter().filter(lives).collect()
    }

    /// Checks all invariants, with a clock that was never later than `latest`.
    pub fn check(&self, latest: u64) -> Check {
        if self.raw.is_empty() {
            return Ok(());
        }
        that(self.raw.contains_key("s"), || "no line".into())?;
        invalid_fields(&self.raw).map_or(Ok(()), Err)?;
        self.check_shape()?;
        self.check_holders()?;
        self.check_array()?;
        self.check_queue("r", "readers_head", "readers_tail")?;
        self.check_queue("w", "writers_head", "writers_tail")?;
        self.check_counts()?;
        self.check_fields()?;
        self.check_life(latest)
    }

    fn is_shape(&self, shapes: &str) -> bool {
        self.fields.get("shape").is_some_and(|shape| shapes.contains(shape.as_str()))
    }

    /// A lock has the shape of a queue only for a reason, and its numbers are exact.
    fn check_shape(&self) -> Check {
        let reasons = ["writer", "waiters", "revoked", "forced", "sweep", "cached"];
        let has_reason = reasons.iter().any(|field| self.fields.contains_key(*field));
        that(!self.is_shape("Q") || has_reason, || "readers alone in a queue".into())?;
        that(self.number("fence") < 1 << 53, || "a token of 2^53 or more".into())
    }

    fn check_holders(&self) -> Check {
        let reads = self.reads();
        that(self.writes().is_none() || reads.is_empty(), || {
            format!("{:?} writes and {reads:?} read", self.writes())
        })?;
        let fence = self.number("fence");
        let readers = self.readers();
        let mut tokens: Vec<u64> = readers.values().map(|reader| reader.token).collect();
        tokens.extend(self.writer().map(|writer| writer.token));
        that(tokens.iter().all(|&token| token <= fence), || {
            "a token is newer than the fence".into()
        })?;
        tokens.sort_unstable();
        that(tokens.windows(2).all(|pair| pair[0] < pair[1]), || "one token, two holders".into())
    }

    /// The readers are numbered from 0, each once.
    fn check_array(&self) -> Check {
        let readers = self.readers();
        let count = self.number("readers");
        let array: BTreeMap<&str, &String> = self.prefixed("i:").collect();
        let marked = |id: &String, record: &Record| match record.is_cached() {
            true => format!("+{id}"),
            false => id.clone(),
        };
        that(count == readers.len() as u64 && count == array.len() as u64, || {
            format!("{count} readers, {} records, {} places", readers.len(), array.len())
        })?;
        for (id, record) in &readers {
            that(array.get(record.rest.as_str()) == Some(&&marked(id, record)), || {
                format!("{record:?} of {id}, and {:?}", array.get(record.rest.as_str()))
            })?;
        }
        let cached = readers.values().filter(|record| record.is_cached()).count() as u64;
        let said = self.fields.get("cached").map(String::as_str);
        that(said == (cached > 0).then_some(cached.to_string()).as_deref(), || {
            format!("{cached} cached readers, {said:?} are said to be")
        })?;
        that(cached > 0 || !self.fields.contains_key("recall"), || "a recall of nobody".into())?;
        that(self.recall().is_none_or(|next| next >= -1), || "recall is odd".into())?;
        if count == 0 {
            return Ok(());
        }
        let least = self.number("read_min");
        let cursor = self.fields.get("sweep").map(|sweep| sweep.split_once(' ').unwrap());
        let seen = |record: &Record| match cursor {
            // Readers that the sweep has checked are not below what it keeps. The others are not
            // below the old bound.
            Some((cursor, kept))
                if record.rest.parse::<u64>().unwrap() > cursor.parse().unwrap() =>
            {
                record.deadline >= kept.parse().unwrap()
            }
            _ => true,
        };
        that(readers.values().all(|record| record.deadline >= least && seen(record)), || {
            format!("a reader's deadline is before {least}, or {cursor:?}")
        })
    }

    fn check_queue(&self, mode: &str, head: &str, tail: &str) -> Check {
        let waiters = self.waiters();
        let queue = self.queue(mode);
        let of_mode = waiters.values().filter(|waiter| waiter.mode == mode).count();
        that(queue.len() == of_mode, || {
            format!("{of_mode} wait to {mode}, {} in the queue", queue.len())
        })?;
        let mut before = "-";
        for id in &queue {
            let waiter = &waiters[id];
            that(waiter.mode == mode, || format!("{id} is in the queue of {mode}"))?;
            that(waiter.previous == before, || {
                format!("before {id} is {}, not {before}", waiter.previous)
            })?;
            before = id;
        }
        that(self.fields.get(head) == queue.first(), || format!("wrong {head}"))?;
        that(self.fields.get(tail) == queue.last(), || format!("wrong {tail}"))
    }

    fn check_counts(&self) -> Check {
        let waiters = self.waiters();
        that(self.number("waiters") == waiters.len() as u64, || {
            format!("{} waiters, {} entries", self.number("waiters"), waiters.len())
        })?;
        let fair = self
            .prefixed("q:")
            .filter(|(_, entry)| entry.starts_with('w') && entry.split(' ').nth(8) == Some("f"))
            .count() as u64;
        that(self.number("fair") == fair, || format!("{fair} fair writers wait"))?;
        let upgraders: Vec<&String> =
            waiters.iter().filter(|(_, w)| w.mode == "u").map(|(o, _)| o).collect();
        let upgrader: Vec<&String> = self.fields.get("upgrader").into_iter().collect();
        that(upgraders == upgrader, || {
            format!("{upgraders:?} wait to be upgraded, {upgrader:?} is said to")
        })?;
        let last = waiters.values().map(|waiter| waiter.ticket).max().unwrap_or(0);
        that(last <= self.number("ticket"), || "a ticket that was never given".into())
    }

    /// Each field exists only while the documentation says so. (`i:`, the heads and tails, `fair`
    /// and `upgrader` are checked with what they belong to.)
    fn check_fields(&self) -> Check {
        let (reads, waits) = (self.number("readers") > 0, self.number("waiters") > 0);
        let is_used = reads || waits || self.fields.contains_key("writer");
        for field in self.fields.keys() {
            let belongs = match field.as_str() {
                "shape" | "life" | "fence" => true,
                "flags" => self.is_shape("WRS"),
                "ticket" | "phase" | "lapsed" | "revoked" => is_used,
                "wide" => self.fields[field] == "-".repeat(65),
                "readers" | "read_min" | "sweep" | "forced" | "cached" | "recall" => reads,
                "waiters" | "fair" => waits,
                "writer" | "upgrader" | "readers_head" | "readers_tail" | "writers_head"
                | "writers_tail" => is_used,
                other => {
                    is_used && ["r:", "i:", "q:"].iter().any(|prefix| other.starts_with(prefix))
                }
            };
            that(belongs, || format!("{field} is there"))?;
        }
        that(!reads || self.fields.contains_key("read_min"), || "no read_min".into())
    }

    /// The key outlives everything in it, and ends soon once it is idle.
    fn check_life(&self, latest: u64) -> Check {
        let mut moments: Vec<u64> = self.readers().values().map(|record| record.deadline).collect();
        moments.extend(self.writer().map(|writer| writer.deadline));
        moments.extend(self.waiters().values().map(|waiter| waiter.alive_until));
        moments.push(self.number("fence") / 1000);
        let (last, life) = (moments.into_iter().max().unwrap_or(0), self.number("life"));
        that(self.ends == Some(life), || {
            format!("the key ends at {:?}, and is said to end at {life}", self.ends)
        })?;
        that(life >= last + GRACE, || {
            format!("the key ends at {life}, before {last} and the grace")
        })?;
        // Without a flag for it, a holder that leaves does not change the key's life.
        let flags = self.fields.get("flags").map_or("0", String::as_str);
        let keeps = self.is_shape("F") || (self.is_shape("WRS") && matches!(flags, "0" | "2"));
        let longest = latest.max(self.number("fence") / 1000) + KEEP;
        that(!keeps || life <= longest, || format!("the key ends at {life}, after {longest}"))
    }

    fn prefixed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a String)> {
        let fields = self.fields.iter();
        fields.filter_map(move |(field, value)| Some((field.strip_prefix(prefix)?, value)))
    }
}

fn that(is_so: bool, otherwise: impl FnOnce() -> String) -> Check {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

fn head(mode: &str) -> &'static str {
    if mode == "r" { "readers_head" } else { "writers_head" }
}

fn record(text: &str) -> Record {
    let state = text.chars().next().unwrap();
    assert!("ghkcb".contains(state), "{text}");
    Record {
        state,
        claimed: state != 'g',
        deadline: text[1..14].parse().unwrap(),
        token: text[14..30].parse().unwrap(),
        rest: text[30..].into(),
    }
}

fn waiter(text: &str) -> Waiter {
    let parts: Vec<&str> = text.split(' ').collect();
    assert_eq!(parts.len(), 12, "{text}");
    let number = |at: usize| parts[at].parse::<u64>().unwrap();
    Waiter {
        mode: parts[0].into(),
        previous: parts[1].into(),
        next: parts[2].into(),
        ticket: number(3),
        alive_until: number(4) + number(5),
    }
}
