//! A semaphore on a real server, whose whole hash is checked after each call.

use std::collections::BTreeMap;

use super::super::lab::{Answer, Expect, GRACE, HERE, KEEP, Lab, SLACK, TAG, id};

/// Fields that may be beside the line only if it has flag 2.
const OF_A_QUEUE: [&str; 6] = ["waiters", "head", "tail", "ticket", "lapsed", "sweep"];

pub struct Bench {
    pub lab: Lab,
    token: u64,
}

/// The state line, and what stands beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub life: u64,
    pub token: u64,
    pub least: u64,
    pub flags: u64,
    pub limit: u64,
    pub used: u64,
    pub holders: u64,
    pub fields: BTreeMap<String, String>,
}

impl Bench {
    pub fn new() -> Bench {
        let mut lab = Lab::new();
        lab.checked = false;
        Bench { lab, token: 0 }
    }

    /// A bench without the fast paths.
    pub fn slow_path() -> Bench {
        let mut bench = Bench::new();
        bench.lab.slow_path = true;
        bench
    }

    #[track_caller]
    pub fn send(&mut self, script: &str, args: &[&str]) -> Answer {
        let answer = self.lab.send(&format!("semaphore/{script}"), args);
        if let Some(state) = self.state().filter(|state| state.token > 0) {
            assert!(state.token >= self.token, "after {script} {args:?}: the token fell");
            self.token = state.token;
        }
        answer
    }

    /// Tries to take permits of a limit of ten, for a lease of ten seconds.
    #[track_caller]
    pub fn take(&mut self, name: &str, permits: u64) -> Answer {
        self.take_of(name, permits, 10)
    }

    #[track_caller]
    pub fn take_of(&mut self, name: &str, permits: u64, limit: u64) -> Answer {
        let (permits, limit) = (permits.to_string(), limit.to_string());
        self.send("acquire", &[HERE, "0", &id(name), "10000", &permits, &limit, TAG])
    }

    /// Takes them or waits for them, with a claim window of one second and a ttl of five, by
    /// polling.
    #[track_caller]
    pub fn wait(&mut self, name: &str, permits: u64) -> Answer {
        self.poll(name, permits, 0)
    }

    /// The same with the ticket that the waiter was given.
    #[track_caller]
    pub fn poll(&mut self, name: &str, permits: u64, ticket: u64) -> Answer {
        let (id, permits, ticket) = (id(name), permits.to_string(), ticket.to_string());
        let args = [HERE, "0", &id, "10000", &permits, "10", TAG, "1000 5000 1000 -", &ticket];
        let count = if ticket == "0" { 8 } else { 9 };
        self.send("acquire", &args[..count])
    }

    #[track_caller]
    pub fn release(&mut self, name: &str) -> Answer {
        self.send("release", &[HERE, &id(name)])
    }

    /// Renews what the acquisition has.
    #[track_caller]
    pub fn renew(&mut self, name: &str, lease: u64) -> Answer {
        let (permits, token) = self.held_by(&id(name)).unwrap_or((1, 1));
        self.renew_as(name, lease, permits, token)
    }

    /// The permits of an acquisition, and its token.
    pub fn held_by(&mut self, id: &str) -> Option<(u64, u64)> {
        let (fields, _) = self.lab.look();
        let record = fields.get(&format!("r:{id}"))?;
        Some((permits_of(record), record[14..30].parse().unwrap()))
    }

    /// Renews what its client believes that it has.
    #[track_caller]
    pub fn renew_as(&mut self, name: &str, lease: u64, permits: u64, token: u64) -> Answer {
        let [lease, permits, token] = [lease, permits, token].map(|number| number.to_string());
        self.send("renew", &[HERE, &id(name), &lease, &permits, &token])
    }

    #[track_caller]
    pub fn shrink(&mut self, name: &str, keep: u64) -> Answer {
        self.send("shrink", &[HERE, &id(name), &keep.to_string()])
    }

    #[track_caller]
    pub fn set_limit(&mut self, expected: u64, limit: u64) -> Answer {
        self.send("set_limit", &[HERE, "0", &expected.to_string(), &limit.to_string()])
    }

    pub fn delete(&mut self) {
        self.lab.delete();
        self.token = 0;
    }

    pub fn inspect(&mut self) -> Answer {
        self.send("inspect", &[HERE, "0", "-", "100"])
    }

    /// The permits by their holders, including holders whose lease is over.
    pub fn held(&mut self) -> BTreeMap<String, u64> {
        let fields = self.state().map(|state| state.fields).unwrap_or_default();
        let records =
            fields.iter().filter_map(|(field, text)| Some((field.strip_prefix("r:")?, text)));
        records.map(|(id, text)| (id.to_owned(), permits_of(text))).collect()
    }

    /// What is stored, after a check. `None` without a key.
    #[track_caller]
    pub fn state(&mut self) -> Option<State> {
        let (mut fields, ends) = self.lab.look();
        let line = fields.remove("s")?;
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        assert!(line.starts_with("2P"), "{line}");
        let words: Vec<&str> = line[45..].split(' ').collect();
        let [limit, used, holders] = words[..] else { panic!("{line}") };
        let state = State {
            life: number(&line[2..15]),
            token: number(&line[15..31]),
            least: number(&line[31..44]),
            flags: number(&line[44..45]),
            limit: number(limit),
            used: number(used),
            holders: number(holders),
            fields,
        };
        state.check(ends, self.lab.now());
        Some(state)
    }
}

impl State {
    #[track_caller]
    fn check(&self, ends: Option<u64>, now: u64) {
        let State { fields, .. } = self;
        assert_eq!(ends, Some(self.life), "the line tells of the key's life: {self:?}");
        let mut used = 0;
        let sweeps = fields.contains_key("sweep");
        for index in 0..self.holders {
            let id = &fields[&format!("i:{index}")];
            let record = &fields[&format!("r:{id}")];
            let own: Vec<&str> = record[30..].split(' ').collect();
            assert_eq!(own[0], index.to_string(), "{self:?}");
            used += permits_of(record);
            let deadline: u64 = record[1..14].parse().unwrap();
            assert!(sweeps || self.least <= deadline, "the bound is past {id}'s: {self:?}");
            assert!(self.life >= deadline + GRACE || deadline <= now, "{id} outlives the key");
            assert!(record[14..30].parse::<u64>().unwrap() <= self.token);
        }
        assert_eq!(used, self.used, "{self:?}");
        let count = |prefix: &str| fields.keys().filter(|field| field.starts_with(prefix)).count();
        assert_eq!((count("r:"), count("i:")), (self.holders as usize, self.holders as usize));
        assert_eq!(count("q:"), fields.get("waiters").map_or(0, |text| text.parse().unwrap()));
        let of_a_queue = OF_A_QUEUE.iter().any(|field| fields.contains_key(*field));
        assert_eq!(self.flags >= 2, of_a_queue, "{self:?}");
        assert!(self.flags % 2 == 1 || self.life <= now + KEEP + SLACK, "unflagged: {self:?}");
        if self.holders == 0 && count("q:") == 0 {
            assert!(!of_a_queue, "an idle semaphore has a queue: {self:?}");
        }
        let queue = self.queue();
        assert_eq!(queue.len(), count("q:"), "{self:?}");
        let others = fields.keys().filter(|field| {
            !["r:", "i:", "q:"].iter().any(|prefix| field.starts_with(prefix))
                && !OF_A_QUEUE.contains(&field.as_str())
                && *field != "wide"
        });
        assert_eq!(others.count(), 0, "fields that nobody knows: {self:?}");
    }

    /// The waiters in order.
    pub fn queue(&self) -> Vec<String> {
        let mut queue: Vec<String> = Vec::new();
        let mut next = self.fields.get("head").cloned();
        while let Some(id) = next.filter(|id| id != "-") {
            assert!(queue.len() < 10_000, "the queue goes in a circle: {self:?}");
            let words: Vec<&str> = self.fields[&format!("q:{id}")].split(' ').collect();
            assert_eq!(words[1], queue.last().map_or("-", String::as_str), "{self:?}");
            next = Some(words[2].to_owned());
            queue.push(id);
        }
        queue
    }
}

fn permits_of(record: &str) -> u64 {
    record[30..].split(' ').nth(1).unwrap().parse().unwrap()
}

/// The limit that the call returned.
#[track_caller]
pub fn told_limit(answer: &Answer) -> u64 {
    assert_eq!(answer.status(), "limit", "{answer:?}");
    answer.as_ref().unwrap().number(0)
}
