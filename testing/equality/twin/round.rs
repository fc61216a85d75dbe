//! One history, run on both sides.

use fastrand::Rng;
use oracle::LockHash;
use oracle::step::{self, Setting, first_violation};
use rwlease_core::resp::RespValue;

use crate::random_calls::{Call, Calls, Habits, LOCKS};
use crate::side::{Lock, Outcome, words};
use crate::twin::census::{Step, says_more};
use crate::twin::{Twins, difference};

/// The steps of a round.
pub const ROUND: u64 = 500;

/// The given time starts here: 1 January 2050, in s. It is far ahead of any server's own clock, so
/// that no key expires by that.
pub const BEGINNING: u64 = 2_524_608_000;

/// Many acquisitions of one lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowd {
    None,
    /// Few wait: most are readers that hold.
    OfReaders,
    /// A writer holds for long, and readers gather behind it.
    BehindWriter,
    /// Writes and batches of readers take turns.
    OfBoth,
}

impl Crowd {
    /// The crowd of a round, of which each eighth has its own.
    fn of_eighth(eighth: usize) -> Crowd {
        match eighth {
            0..4 => Crowd::None,
            4 => Crowd::OfReaders,
            5 | 6 => Crowd::BehindWriter,
            _ => Crowd::OfBoth,
        }
    }
}

pub struct Round<'a> {
    twins: &'a mut Twins,
    seed: u64,
    rng: Rng,
    calls: Calls,
    us: u64,
    /// The latest time so far.
    latest: u64,
    /// The most ms between two usual calls.
    pace: u64,
    /// Of this many calls, 45 are by a holder.
    by_holders: u32,
    /// Of ten renewals by holders, how many are of cached leases.
    cached: u32,
    went_back: bool,
    /// The lock of which the last call has left something over.
    left_over: Option<String>,
    /// The locks in use.
    keys: &'static [&'static str],
    /// The key of a lock holds something else.
    is_foreign: bool,
}

impl Round<'_> {
    pub fn new(twins: &mut Twins, seed: u64) -> Round<'_> {
        let mut rng = Rng::with_seed(seed);
        let crowd = Crowd::of_eighth(rng.usize(if twins.crowds { 4 } else { 0 }..8));
        let mut one_of = |numbers: [u64; 3]| numbers[rng.usize(..3)];
        let mut habits = Habits {
            all_kinds: false,
            locks: one_of([1, 1, 2]) as usize,
            clients: one_of([3, 6, 6]) as usize,
            newcomers: one_of([10, 25, 60]) as u32,
            writers: one_of([1, 4, 9]) as u32,
            odd: one_of([0, 10, 40]) as u32,
            lease: one_of([200, 1_500, 15_000]),
            window: one_of([50, 400, 40_000]),
            waiter_ttl: one_of([100, 1_000, 10_000]),
            limits: [one_of([0, 100, 100]), one_of([3, 100, 100]), 1_000],
            long_leases: 1_000,
            raised_by: one_of([100, 10_000, 300_000]),
            far_raises: 30,
            transfers: 0, // they have no fast path, and reach no new states
            cached: one_of([0, 0, 3]) as u32,
            cached_tries: 0,
        };
        habits.cached_tries = habits.cached;
        let (mut pace, mut by_holders) = (one_of([2, 20, 60]), one_of([200, 500, 4_000]) as u32);
        if crowd != Crowd::None {
            (habits.locks, habits.newcomers, habits.writers, habits.lease) = (1, 60, 1, 4_000);
            (pace, by_holders) = (10, 1_000);
            if habits.cached > 0 {
                (habits.cached, habits.cached_tries) = (9, 1); // a crowd of cached readers
            }
        }
        match crowd {
            Crowd::BehindWriter => {
                (habits.lease, habits.waiter_ttl, by_holders) = (15_000, 10_000, 500);
                (habits.newcomers, habits.writers, habits.limits[1]) = (50, 2, 100);
            }
            Crowd::OfBoth => {
                (habits.lease, habits.waiter_ttl, by_holders) = (15_000, 10_000, 150);
                (habits.newcomers, habits.writers, habits.limits) = (30, 2, [20, 100, 1_000]);
            }
            Crowd::None | Crowd::OfReaders => {}
        }
        let (locks, cached) = (habits.locks, habits.cached);
        Round {
            us: BEGINNING * 1_000_000 + rng.u64(..1_000_000),
            latest: 0,
            calls: Calls::with(rng.fork(), habits),
            pace,
            by_holders,
            cached,
            rng,
            twins,
            keys: &LOCKS[..locks],
            is_foreign: false,
            seed,
            went_back: false,
            left_over: None,
        }
    }

    pub fn run(mut self) -> Result<(), String> {
        LOCKS.iter().for_each(|key| self.twins.pair.end(key));
        let outcome = (1..=ROUND).try_for_each(|step| {
            self.step().map_err(|difference| {
                let (seed, told) = (self.seed, self.twins.pair.told());
                format!("RWLEASE_SEED={seed}, step {step}\n{told}\n{difference}")
            })
        });
        self.twins.pair.fill_memory(false);
        outcome
    }

    fn step(&mut self) -> Result<(), String> {
        self.twins.pair.turn_memory(&mut self.rng, 200);
        self.pass_time();
        self.tamper();
        let grant_waiters = self.continue_grants();
        let call = grant_waiters.or_else(|| self.call_by_holder());
        let call = call.unwrap_or_else(|| self.calls.next(self.us / 1000));
        call.keys.iter().for_each(|key| self.twins.pair.end_if_over(key, self.us / 1000));
        let [quick, slow] = self.twins.pair.call(&call);
        self.calls.learn(&call, &quick.reply);
        self.left_over = call.keys.first().filter(|_| says_more(&quick.reply)).cloned();
        self.count(&call, &quick, &slow);
        difference::compare(&self.twins.pair, &call, &quick, &slow, self.us / 1000)?;
        self.judge(&call, &quick)?;
        difference::go_on(&mut self.twins.pair, &call, quick, &slow);
        Ok(())
    }

    /// The call must keep the rules of a lock.
    fn judge(&self, call: &Call, quick: &Outcome) -> Result<(), String> {
        let args: Result<Vec<&str>, _> = call.args.iter().map(|it| str::from_utf8(it)).collect();
        let (Ok(args), [key], [after]) = (args, &call.keys[..], &quick.locks[..]) else {
            return Ok(());
        };
        let reply: Vec<String> = match &quick.reply {
            RespValue::String(text) => {
                String::from_utf8_lossy(text).split(' ').map(str::to_owned).collect()
            }
            RespValue::Error(_) => return Ok(()),
            _ => Vec::new(),
        };
        // Lua reads numbers such as 0x10, too. No client names a token that is greater than all.
        let is_odd = |word: &&str| match word.parse::<f64>() {
            Ok(number) => number >= 2f64.powi(53) || word.parse::<u64>().is_err(),
            Err(_) => word.starts_with([' ', '0']),
        };
        if self.is_foreign || args.iter().any(is_odd) {
            return Ok(());
        }
        let now = self.us / 1000;
        let hash = |lock: &Lock| LockHash { now, ..lock.decode() };
        let (before, after) = (self.twins.pair.locks.get(key).map(hash), &hash(after));
        let setting = Setting {
            newest: before.as_ref().map(|before| before.number("fence")),
            skew: self.latest / 1000 - now,
            is_memory_full: self.twins.pair.is_full,
            ..Setting::default()
        };
        let (script, before) = (call.script, before.as_ref());
        let step = step::Step { script, args, reply: &reply, before, after, setting };
        match first_violation(&step, |_| true) {
            Some(broken) => Err(format!(
                "{}: {}, from {:#?}\n to {:#?}\n by {script} {:?}: {reply:?}",
                broken.rule,
                broken.what,
                before.map(|it| &it.stored),
                after.stored,
                step.args
            )),
            None => Ok(()),
        }
    }

    /// Mostly the `grant_waiters` that a client sends when a reply says `more`.
    fn continue_grants(&mut self) -> Option<Call> {
        let is_cached = self.cached > 3;
        let key = self.left_over.take().filter(|_| is_cached || self.rng.u32(..3) > 0)?;
        if is_cached
            && self.rng.u32(..3) == 0
            && let Some(claim) = self.claim(&key)
        {
            return Some(claim);
        }
        Some(Call { script: "grant_waiters", keys: vec![key], args: words(&["here", "0"]) })
    }

    /// The claim of a granted read that becomes cached while others are still to be granted.
    fn claim(&mut self, key: &str) -> Option<Call> {
        let fields = self.twins.pair.locks.get(key)?.fields.iter();
        let granted = fields.filter(|(_, record)| record.starts_with('g'));
        let granted =
            granted.filter_map(|(field, record)| Some((field.strip_prefix("r:")?, record)));
        let (id, record) = self.rng.choice(granted.collect::<Vec<_>>())?;
        let token = record.get(14..30)?.parse::<u64>().ok()?.to_string();
        let args = words(&["here", id, "1500", "r", &token, "1024"]);
        Some(Call { script: "renew", keys: vec![key.to_owned()], args })
    }

    /// Sometimes a call by a holder, whether or not its client knows: otherwise hand-offs and
    /// claims are rare. Also ends a crowd.
    fn call_by_holder(&mut self) -> Option<Call> {
        let key = self.keys[self.rng.usize(..self.keys.len())];
        let fields = &self.twins.pair.locks.get(key)?.fields;
        let writer = fields.get("writer").and_then(|record| record.get(30..));
        let holders = fields.keys().filter_map(|field| field.strip_prefix("r:")).chain(writer);
        let holder = self.rng.choice(holders.collect::<Vec<_>>())?;
        let lease = self.rng.u64(1..20_000).to_string();
        let writes = writer.is_some_and(|writer| writer == holder);
        let record = if writes { "writer".to_owned() } else { format!("r:{holder}") };
        let token = fields.get(&record)?.get(14..30)?.parse::<u64>().ok()?;
        // Sometimes as after a downgrade, or by another token.
        let mode = if writes == (self.rng.u32(..8) > 0) { "w" } else { "r" };
        let token = (token + u64::from(self.rng.u32(..16) == 0)).to_string();
        let is_crowd = fields.get("readers").is_some_and(|count| count.len() > 1);
        let is_forced = fields.contains_key("forced_up_to");
        let (script, args) = match self.rng.u32(..if is_forced { 60 } else { self.by_holders }) {
            0..30 => ("release", vec![holder]),
            30..45 if self.rng.u32(..10) < self.cached => {
                ("renew", vec![holder, &lease, mode, &token, "1024"])
            }
            30..45 => ("renew", vec![holder, &lease, mode, &token]),
            _ if is_crowd && self.rng.u32(..20) == 0 => {
                ("force_release", vec![fields.get("fence")?.as_str(), "0"])
            }
            _ => return None,
        };
        let args = words(&[&["here"], &args[..]].concat());
        Some(Call { script, keys: vec![key.to_owned()], args })
    }

    fn count(&mut self, call: &Call, quick: &Outcome, slow: &Outcome) {
        let before = call.keys.first().and_then(|key| self.twins.pair.locks.get(key));
        let decode = |lock: Option<&Lock>| lock.map(Lock::decode).unwrap_or_default();
        self.twins.census.count(&Step {
            call,
            before: decode(before),
            after: decode(quick.locks.first()),
            quick,
            slow,
            us: self.us,
            went_back: self.went_back,
        });
    }

    fn pass_time(&mut self) {
        let us = match self.rng.u32(..400) {
            0 => self.rng.u64(..30_000_000),
            1..20 => self.rng.u64(..2_500_000),
            20..60 => 0,
            60..160 => 1,
            _ => self.rng.u64(1..self.pace * 1_000),
        };
        self.went_back = self.rng.u32(..60) == 0;
        self.us = match self.went_back {
            true => self.us - us.min(500_000),
            false => self.deadline_ahead().unwrap_or(self.us + us),
        };
        self.latest = self.latest.max(self.us);
        self.twins.pair.set_time(self.us);
    }

    /// Sometimes the exact time at which a lease ends.
    fn deadline_ahead(&mut self) -> Option<u64> {
        if self.rng.u32(..20) > 0 {
            return None;
        }
        let fields = self.twins.pair.locks.values().flat_map(|lock| &lock.fields);
        let records = fields.filter(|(field, _)| *field == "writer" || field.starts_with("r:"));
        let ends =
            records.filter_map(|(_, text)| Some(text.get(1..14)?.parse::<u64>().ok()? * 1000));
        ends.filter(|ends| (self.us..self.us + 300_000).contains(ends)).min()
    }

    /// Somebody deletes a lock, or replaces it for some time.
    fn tamper(&mut self) {
        let key = self.keys[self.rng.usize(..self.keys.len())];
        let draw = if self.is_foreign { self.rng.u32(..10) } else { self.rng.u32(..2_000) };
        match draw {
            0 if self.is_foreign => {
                self.is_foreign = false;
                self.keys.iter().for_each(|key| self.twins.pair.end(key));
            }
            0 => self.put_something_else(key, &["SET", key, "somebody else's"]),
            1 if !self.is_foreign => self.put_something_else(key, &["HSET", key, "s", "3"]),
            2..5 if !self.is_foreign => self.twins.pair.end(key),
            _ => {}
        }
    }

    fn put_something_else(&mut self, key: &str, command: &[&str]) {
        self.twins.pair.end(key);
        self.twins.pair.tell(command);
        self.is_foreign = true;
    }
}
