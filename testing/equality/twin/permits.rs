//! One history of a semaphore, run on both sides.

use fastrand::Rng;
use oracle::step::{Setting, hash_violation};

use crate::random_calls::{Call, LOCKS, keys, made_odd};
use crate::scripts_equal_server::gist;
use crate::side::{Lock, Outcome, words};
use crate::twin::census::{self, says_more};
use crate::twin::round::{BEGINNING, ROUND};
use crate::twin::{Twins, difference};

/// How often the short form must take each fast path at least: a third of the usual counts.
pub const LEAST: &[(&str, u64)] = &[
    ("acquire: granted", 364),
    ("acquire: granted after a queue", 305),
    ("acquire: the first of a queue", 172),
    ("acquire: a place in the queue", 385),
    ("acquire: a poll of the first waiter", 232),
    ("acquire: a poll", 291),
    ("release: nobody waits", 180),
    ("release: nobody waits any more", 125),
    ("release: the last after a queue", 44),
    ("release: the first waiter cannot be granted", 114),
    ("release: a grant", 145),
    ("release: several grants", 10),
    ("release: the ninth holder", 1),
    ("release: taken back", 22),
    ("grant_waiters: nothing to do", 111),
    ("grant_waiters: grants", 1),
    ("grant_waiters: taken back", 1),
    ("renew: nobody waits", 255),
    ("renew: while others wait", 256),
];

const KEY: &str = LOCKS[0];

/// The clients, of which the first ones are subscribed.
const CLIENTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const SUBSCRIBED: usize = 3;

/// How many waiters are remembered.
const MOST_KNOWN: usize = 20;

/// The habits of a round: waiters that live long, many holders, or short windows.
struct PermitHabits {
    limit: u64,
    most_permits: u64,
    lease: u64,
    window: u64,
    waiter_ttl: u64,
    newcomers: u32,
    odd: u32,
    pace: u64,
    /// Whether a crowd gathers behind a holder of all permits.
    crowds: bool,
}

pub struct PermitRound<'a> {
    twins: &'a mut Twins,
    seed: u64,
    rng: Rng,
    habits: PermitHabits,
    us: u64,
    ids: u32,
    /// Waiters, by id, with their permits and tickets: they come back.
    known: Vec<(String, u64, String)>,
    has_more: bool,
}

impl PermitRound<'_> {
    pub fn new(twins: &mut Twins, seed: u64) -> PermitRound<'_> {
        let mut rng = Rng::with_seed(seed);
        let mut one_of = |numbers: [u64; 3]| numbers[rng.usize(..3)];
        let mut habits = PermitHabits {
            limit: one_of([1, 4, 24]),
            most_permits: one_of([1, 3, 30]),
            lease: one_of([300, 4_000, 90_000]),
            window: one_of([50, 1_000, 40_000]),
            waiter_ttl: one_of([200, 3_000, 30_000]),
            newcomers: one_of([15, 30, 50]) as u32,
            odd: one_of([0, 0, 30]) as u32,
            pace: one_of([2, 20, 100]),
            crowds: false,
        };
        if rng.u32(..5) > 1 {
            (habits.limit, habits.lease, habits.window) = (24, 15_000, 10_000);
            (habits.waiter_ttl, habits.newcomers, habits.pace) = (10_000, 30, 10);
            (habits.crowds, habits.most_permits) = (true, habits.most_permits.min(3));
        }
        let us = BEGINNING * 1_000_000 + rng.u64(..1_000_000);
        PermitRound { twins, seed, rng, habits, us, ids: 0, known: Vec::new(), has_more: false }
    }

    pub fn run(mut self) -> Result<(), String> {
        keys().for_each(|key| self.twins.pair.end(key));
        let outcome = (1..=ROUND).try_for_each(|step| {
            self.step().map_err(|difference| {
                let (seed, told) = (self.seed, self.twins.pair.told());
                format!("RWLEASE_SEED={seed} of permits, step {step}\n{told}\n{difference}")
            })
        });
        self.twins.pair.fill_memory(false);
        outcome
    }

    fn step(&mut self) -> Result<(), String> {
        self.twins.pair.turn_memory(&mut self.rng, 200);
        self.pass_time();
        if self.rng.u32(..1_000) == 0 {
            self.twins.pair.end(KEY);
        }
        let mut call = self.call();
        if self.rng.u32(..1_000) < self.habits.odd {
            call = made_odd(&mut self.rng, call);
        }
        call.keys.iter().for_each(|key| self.twins.pair.end_if_over(key, self.us / 1000));
        let [quick, slow] = self.twins.pair.call(&call);
        self.has_more = says_more(&quick.reply);
        self.count(&call, &quick, &slow);
        difference::compare(&self.twins.pair, &call, &quick, &slow, self.us / 1000)?;
        difference::go_on(&mut self.twins.pair, &call, quick, &slow);
        self.judge()
    }

    /// The hash must keep the rules of a semaphore.
    fn judge(&self) -> Result<(), String> {
        let hash = self.twins.pair.locks.get(KEY).map(Lock::decode).unwrap_or_default();
        let setting = Setting { distrusts_clocks: true, ..Setting::default() };
        match hash_violation(&hash, &setting) {
            Some(broken) if hash.shape() == "P" => Err(format!("{}: {}", broken.rule, broken.what)),
            _ => Ok(()),
        }
    }

    fn call(&mut self) -> Call {
        if self.has_more && self.rng.u32(..3) > 0 {
            return call("semaphore/grant_waiters", &[]);
        }
        let draw = match self.rng.u32(..100) {
            50..75 if self.habits.crowds && self.rng.u32(..2) > 0 => 49,
            draw => draw,
        };
        match draw {
            draw if draw < self.habits.newcomers => self.newcomer(),
            0..50 => self.poll().unwrap_or_else(|| self.newcomer()),
            50..75 => self.by_holder("semaphore/release"),
            75..88 => self.by_holder("semaphore/renew"),
            88..91 => self.by_holder("semaphore/release_permits"),
            91..94 => self.leave(),
            94..97 => call("semaphore/grant_waiters", &[]),
            _ => self.set_limit(),
        }
    }

    fn newcomer(&mut self) -> Call {
        self.ids += 1;
        let all_hear = self.habits.crowds && self.seed.is_multiple_of(2);
        let clients = if all_hear { SUBSCRIBED } else { CLIENTS.len() };
        let client = CLIENTS[self.rng.usize(..clients)];
        let most = self.habits.most_permits.min(self.limit());
        let holders = self.twins.pair.locks.get(KEY).and_then(|lock| lock.fields.get("readers"));
        let permits = match self.rng.u32(..4) {
            0..3 if self.habits.crowds && holders.is_none() => self.limit(),
            0 if self.habits.crowds && self.rng.u32(..4) == 0 => self.limit(),
            0..2 => 1,
            _ => self.rng.u64(1..=most),
        };
        self.acquire(format!("{client:_<11}{:07}", self.ids), permits, "0".into())
    }

    /// Of a waiter, or of one that may be gone.
    fn poll(&mut self) -> Option<Call> {
        let waiters = self.twins.pair.locks.get(KEY).into_iter().flat_map(|lock| &lock.fields);
        let waiters = waiters.filter_map(|(field, record)| {
            let mut parts = record.split(' ');
            let (ticket, permits) = (parts.nth(3)?, parts.nth(4)?);
            Some((field.strip_prefix("q:")?.to_owned(), permits.parse().ok()?, ticket.to_owned()))
        });
        let waiter = match self.rng.u32(..8) {
            0 => self.rng.choice(&self.known).cloned()?,
            _ => self.rng.choice(waiters.collect::<Vec<_>>())?,
        };
        if self.known.len() == MOST_KNOWN {
            self.known.swap_remove(self.rng.usize(..MOST_KNOWN));
        }
        self.known.push(waiter.clone());
        let (id, permits, ticket) = waiter;
        // A reply may have been lost.
        let ticket = if self.rng.u32(..10) == 0 { "0".into() } else { ticket };
        Some(self.acquire(id, permits, ticket))
    }

    fn acquire(&mut self, id: String, permits: u64, ticket: String) -> Call {
        let limit = self.limit().max(permits);
        let (rng, habits) = (&mut self.rng, &self.habits);
        let not_after = match rng.u32(..20) {
            0 => self.us / 1000 - rng.u64(..100),
            1..5 => self.us / 1000 + rng.u64(..500),
            _ => 0,
        };
        let limit = limit + u64::from(rng.u32(..40) == 0);
        let least = if habits.crowds { 2 } else { habits.lease };
        let lease = rng.u64(habits.lease / least..habits.lease);
        let (window, ttl) = (rng.u64(1..habits.window), rng.u64(1..habits.waiter_ttl));
        let most_waiters = if rng.u32(..30) == 0 { 2 } else { 1_000 };
        let node = ["here", "there", "-"][rng.usize(..3)];
        let place = format!("{window} {ttl} {most_waiters} {node}");
        let [not_after, lease, permits, limit] =
            [not_after, lease, permits, limit].map(|number| number.to_string());
        let args = [&not_after, &id, &lease, &permits, &limit, "0", &place, &ticket];
        let count = match ticket.as_str() {
            "0" => args.len() - 1 - usize::from(rng.u32(..5) == 0),
            _ => args.len(),
        };
        call("semaphore/acquire", &args[..count])
    }

    fn by_holder(&mut self, script: &'static str) -> Call {
        let fields = self.twins.pair.locks.get(KEY).into_iter().flat_map(|lock| &lock.fields);
        let holders = fields.filter_map(|(field, record)| {
            let (_, permits) = record.split_once(' ')?;
            let token = record.get(14..30)?.parse::<u64>().ok()?;
            Some((field.strip_prefix("r:")?.to_owned(), permits.parse::<u64>().ok()?, token))
        });
        let Some((id, permits, token)) = self.rng.choice(holders.collect::<Vec<_>>()) else {
            return self.newcomer();
        };
        let others = self.rng.u64(1..=permits);
        let kept = if self.rng.u32(..8) == 0 { others } else { permits };
        let token = token + u64::from(self.rng.u32(..16) == 0);
        let lease = self.rng.u64(1..self.habits.lease);
        let [kept, token, lease] = [kept, token, lease].map(|number| number.to_string());
        match script {
            "semaphore/renew" => call(script, &[&id, &lease, &kept, &token]),
            "semaphore/release_permits" => call(script, &[&id, &kept]),
            _ => call(script, &[&id]),
        }
    }

    fn leave(&mut self) -> Call {
        match self.poll() {
            Some(poll) => call("semaphore/release", &[poll.id()]),
            None => self.newcomer(),
        }
    }

    fn set_limit(&mut self) -> Call {
        let limits = [self.habits.limit, self.habits.limit.div_ceil(2), self.habits.limit + 1];
        let [limit, other] = [self.limit(), limits[self.rng.usize(..3)]].map(|it| it.to_string());
        call("semaphore/set_limit", &["0", &limit, &other])
    }

    /// The stored limit.
    fn limit(&self) -> u64 {
        let lock = self.twins.pair.locks.get(KEY);
        let limit = lock.and_then(|lock| lock.fields.get("limit")?.parse().ok());
        limit.unwrap_or(self.habits.limit)
    }

    fn pass_time(&mut self) {
        let us = match self.rng.u32(..400) {
            0 => self.rng.u64(..30_000_000),
            1..20 => self.rng.u64(..2_500_000),
            20..40 => 0,
            40..140 => 1,
            _ => self.rng.u64(1..self.habits.pace * 1_000),
        };
        match self.rng.u32(..60) {
            0 => self.us -= us.min(500_000),
            _ => self.us = self.time_ahead().unwrap_or(self.us + us),
        }
        self.twins.pair.set_time(self.us);
    }

    /// Sometimes the exact time at which a lease ends.
    fn time_ahead(&mut self) -> Option<u64> {
        if self.rng.u32(..20) > 0 {
            return None;
        }
        let fields = self.twins.pair.locks.get(KEY)?.fields.iter();
        let records = fields.filter(|(field, _)| field.starts_with("r:"));
        let ends =
            records.filter_map(|(_, text)| Some(text.get(1..14)?.parse::<u64>().ok()? * 1000));
        ends.filter(|ends| (self.us..self.us + 300_000).contains(ends)).min()
    }

    /// Counts the fast path that this call took, if it took one.
    fn count(&mut self, call: &Call, quick: &Outcome, slow: &Outcome) {
        census::must_be_slow(call, slow);
        let before = self.twins.pair.locks.get(KEY);
        let number = |field: &str| -> u64 {
            let text = before.and_then(|lock| lock.fields.get(field));
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let said = gist(&quick.reply).unwrap_or_default();
        let after = quick.locks.first().map(|lock| &lock.fields);
        let is_known =
            before.is_some_and(|lock| lock.fields.contains_key(&format!("q:{}", call.id())));
        let is_first =
            before.is_some_and(|lock| lock.fields.get("head").is_some_and(|id| id == call.id()));
        let left: u64 = after.and_then(|lock| lock.get("waiters")?.parse().ok()).unwrap_or(0);
        let holders: u64 = after.and_then(|lock| lock.get("readers")?.parse().ok()).unwrap_or(0);
        let (waited, granted) = (number("waiters") > 0, number("waiters").saturating_sub(left));
        let had_queue = number("flags") >= 2;
        let script = call.script.strip_prefix("semaphore/").unwrap_or_default();
        let path = match (script, said.as_str(), quick.slow_path.as_deref()) {
            ("acquire", "granted", None) if had_queue => "acquire: granted after a queue",
            ("acquire", "granted", None) => "acquire: granted",
            ("acquire", "queued", None) if is_first => "acquire: a poll of the first waiter",
            ("acquire", "queued", None) if is_known => "acquire: a poll",
            ("acquire", "queued", None) if waited => "acquire: a place in the queue",
            ("acquire", "queued", None) => "acquire: the first of a queue",
            ("release", "released", None) if !had_queue => "release: nobody waits",
            ("release", "released", None) if holders == 0 => "release: the last after a queue",
            ("release", "released", None) if !waited => "release: nobody waits any more",
            ("release", "released", None) if granted == 0 => {
                "release: the first waiter cannot be granted"
            }
            ("release", "released", None) if holders > 8 && number("readers") <= 8 => {
                "release: the ninth holder"
            }
            ("release", "released", None) if granted == 1 => "release: a grant",
            ("release", "released", None) => "release: several grants",
            ("release", "released", Some(b"unheard")) => "release: taken back",
            ("grant_waiters", "done", None) if granted == 0 => "grant_waiters: nothing to do",
            ("grant_waiters", "done", None) => "grant_waiters: grants",
            ("grant_waiters", "done", Some(b"unheard")) => "grant_waiters: taken back",
            ("renew", "renewed", None) if waited => "renew: while others wait",
            ("renew", "renewed", None) => "renew: nobody waits",
            _ => return self.twins.census.add_step(),
        };
        self.twins.census.add_step();
        self.twins.census.add(path);
    }
}

fn call(script: &'static str, args: &[&str]) -> Call {
    let args = words(&[&["here"], args].concat());
    Call { script, keys: vec![KEY.to_owned()], args }
}
