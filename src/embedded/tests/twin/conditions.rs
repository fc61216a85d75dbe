//! The conditions of the fast paths of contended calls, judged by the state before the call. They
//! say how often a history would show that one of them is missing: when it was the only one that
//! did not hold.

use super::super::random_calls::Call;
use super::census::{Record, Waiter};
use super::side::Lock;

/// A condition, and whether it holds.
pub(super) type Condition = (&'static str, bool);

/// The fast path that this call could take beside a queue, and the conditions of that path.
pub(super) fn conditions(
    call: &Call,
    before: &Lock,
    us: u64,
) -> Option<(&'static str, Vec<Condition>)> {
    let state = State { call, before, us, now: us / 1000 };
    let waits = state.number("waiters") > 0;
    match (call.script, call.args.len()) {
        ("acquire_read" | "acquire_write", 8 | 9) => state.place(),
        ("release", 2) if waits => state.release(),
        ("pump", 2) if waits => {
            let mut all = vec![state.clock()];
            all.extend(state.at_rest(None));
            Some(("pump: nothing to do", all))
        }
        ("renew", 5) if waits && state.reads() => {
            let mut all = state.at_rest(None);
            all.push(("nobody is revoked", !state.has("revoked")));
            all.push(("nobody is forced out", !state.has("forced")));
            let record = state.record(&format!("r:{}", call.id()))?;
            all.push(("it is not cached", "hg".contains(record.state)));
            Some(("renew: a read while others wait", all))
        }
        _ => None,
    }
}

/// A waiter that is the first of its list, or will be.
struct First {
    lives: bool,
    ticket: u64,
    readers_first: bool,
}

struct State<'a> {
    call: &'a Call,
    before: &'a Lock,
    us: u64,
    now: u64,
}

impl State<'_> {
    fn place(&self) -> Option<(&'static str, Vec<Condition>)> {
        let id = self.call.id();
        let writes = self.call.script == "acquire_write";
        let words: Vec<&str> = str::from_utf8(&self.call.args[7]).ok()?.split(' ').collect();
        let [_, ttl, limit, _] = words[..] else { return None };
        let (ttl, limit) = (ttl.parse::<u64>().ok()?, limit.parse::<u64>().ok()?);
        let entry = self.waiter(id);
        let is_fair = self.call.args[4].first() == Some(&b'f');
        let is_free = !self.has("writer") && !self.has("readers") && !self.has("waiters");
        let joins = entry.is_none() && self.call.args.len() == 8;
        if is_free || (entry.is_none() && !joins) {
            return None;
        }
        let newcomer = First { lives: true, ticket: u64::MAX, readers_first: !is_fair };
        let mut all = vec![self.clock()];
        all.extend(self.at_rest(joins.then_some((writes, newcomer))));
        all.push(("it holds nothing", !self.reads() && !self.writes()));
        all.push(("nothing of it is cached", self.call.args[4].len() == 1));
        let needed = self.now + ttl + 10_000;
        all.push(("the key lives long enough", self.number("life") >= needed));
        match entry {
            Some(entry) => {
                all.push(("it waits in this mode", entry.mode == if writes { "w" } else { "r" }));
                Some(("acquire: a poll", all))
            }
            None => {
                all.push(("the queue is not full", self.number("waiters") < limit));
                Some(("acquire: a place in the queue", all))
            }
        }
    }

    fn release(&self) -> Option<(&'static str, Vec<Condition>)> {
        let mut all = vec![self.clock()];
        if self.writes() && self.has("readers_head") {
            all.push(("no upgrader waits", !self.has("upgrader")));
            all.push((
                "the first writer lives",
                self.first("writers_head").is_none_or(|w| w.lives),
            ));
            all.push(("the next readers live", self.next_readers().all(|lives| lives)));
            all.push(("nobody is revoked", !self.has("revoked")));
            return Some(("release: a write before readers", all));
        } else if !self.reads() {
            return None;
        }
        all.extend(self.at_rest(None));
        let is_last = self.number("readers") == 1;
        Some((
            if is_last { "release: the last reader" } else { "release: of several readers" },
            all,
        ))
    }

    /// The conditions under which the holders keep out all that wait. `newcomer`: one that takes a
    /// place by this call, and whether it wants to write.
    fn at_rest(&self, newcomer: Option<(bool, First)>) -> Vec<Condition> {
        let (mut writer, mut reader) = (self.first("writers_head"), self.first("readers_head"));
        let mut fair = self.number("fair");
        if let Some((writes, first)) = newcomer {
            fair += u64::from(writes && !first.readers_first);
            let list = if writes { &mut writer } else { &mut reader };
            list.get_or_insert(first);
        }
        let mut all = vec![("no upgrader waits", !self.has("upgrader"))];
        if let Some(record) = self.record("writer") {
            all.push(("the writer lives", record.deadline > self.now));
            all.push(("no holder is cached", !"kc".contains(record.state)));
            return all;
        }
        all.push(("the readers live", self.number("read_min") > self.now));
        all.push(("no holder is cached", !self.has("cached")));
        all.push(("the first writer lives", writer.is_some_and(|writer| writer.lives)));
        if let Some(reader) = reader {
            all.push(("the first reader lives", reader.lives));
            all.push(("the readers' phase is over", reader.ticket > self.number("phase")));
            all.push(("no reader goes first", !reader.readers_first || fair > 0));
        }
        all
    }

    fn clock(&self) -> Condition {
        ("the clock is past the last token", self.number("fence") < self.us)
    }

    /// Whether each of the readers lives that the end of a write lets in.
    fn next_readers(&self) -> impl Iterator<Item = bool> {
        let mut next = self.before.fields.get("readers_head").map(String::as_str);
        std::iter::from_fn(move || {
            let id = next.filter(|id| *id != "-")?;
            let waiter = self.waiter(id)?;
            let lives = self.lives(id, &waiter);
            next = Some(waiter.next);
            Some(lives)
        })
        .take(16)
    }

    fn first(&self, list: &str) -> Option<First> {
        let id = self.before.fields.get(list)?;
        let waiter = self.waiter(id)?;
        Some(First {
            lives: id == self.call.id() || self.lives(id, &waiter),
            ticket: waiter.ticket,
            readers_first: waiter.fairness == "r",
        })
    }

    fn lives(&self, id: &str, waiter: &Waiter<'_>) -> bool {
        let lapsed = self.before.fields.get("lapsed").map_or("", String::as_str);
        waiter.ends > self.now && !lapsed.contains(&id[..11])
    }

    fn waiter(&self, id: &str) -> Option<Waiter<'_>> {
        self.before.fields.get(&format!("q:{id}")).and_then(|text| Waiter::of(text))
    }

    fn record(&self, field: &str) -> Option<Record<'_>> {
        self.before.fields.get(field).and_then(|text| Record::of(text))
    }

    fn reads(&self) -> bool {
        self.has(&format!("r:{}", self.call.id()))
    }

    fn writes(&self) -> bool {
        self.record("writer").is_some_and(|record| record.rest == self.call.id())
    }

    fn has(&self, field: &str) -> bool {
        self.before.fields.contains_key(field)
    }

    fn number(&self, field: &str) -> u64 {
        self.before.fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}
