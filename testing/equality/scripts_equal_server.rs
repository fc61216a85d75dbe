//! The lock scripts answer and write on the engine as on a real server, byte for byte: both run the
//! same random calls, with the same time in place of their clocks.
//!
//! `make equality` compares a million calls. `RWLEASE_SEED=n` starts with that round. `SERVER_IS`
//! says which server it must be.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use rwlease::embedded::EmbeddedCluster;
use rwlease_core::resp::RespValue;

use crate::engine::Engine;
use crate::judge::Judge;
use crate::random_calls::{Calls, LOCKS, heard_channels, keys};
use crate::real::RealSubscriber;
use crate::side::{Lock, Pair, Side};

pub const GIVEN_CLOCK: &str = include_str!("given_clock.lua");

/// What Redis 6.2 lacks: messages to the subscribers of a slot.
const MUTE: &str = "\
local redis = (function(server)
  local function pcall(name, ...)
    return name == 'SPUBLISH' and { err = 'ERR' } or server.pcall(name, ...)
  end
  return { call = server.call, pcall = pcall }
end)(redis)
";

/// The number of calls in one round, which starts with no keys and has its own seed.
const ROUND: u64 = 500;
/// In this many rounds every required status occurs.
const ROUNDS: u64 = 36;

/// Twenty years: nothing may expire by the servers' own clocks.
const AHEAD_S: u64 = 20 * 365 * 86_400;

/// The statuses that must occur at least once, so that the comparison means something.
const MUST_BE_SAID: &str = "\
    LOCKARGS LOCKTYPE LOCKVERSION OOM WRONGTYPE ahead busy conflict done forced granted held \
    left_queue lock not_found not_held not_locked other queue_full queued raised reads recalling \
    released renewed revoked too_late upgrade_granted writes no_value other_lock stale taken_over \
    value written";

#[test]
fn the_lock_scripts_do_as_on_a_server() {
    let mut comparison = Comparison::start();
    comparison.compare_rounds(1..=ROUNDS);
    comparison.must_have_said_all();
    comparison.compare_rounds([fastrand::u64(..)]);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_calls_do_as_on_a_server() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    // Far from the seeds of the short form.
    let first = number("RWLEASE_SEED").unwrap_or_else(|| fastrand::u64(1_000..1_000_000_000));
    let rounds = number("CALLS").unwrap_or(1_000_000) / ROUND;
    let started = Instant::now();
    let mut comparison = Comparison::start();
    let server = comparison.judge.server.clone();
    println!("{server}, from RWLEASE_SEED={first} on");
    let expected = std::env::var("SERVER_IS").unwrap_or_default();
    assert!(server.starts_with(&expected), "not {expected}: set RWLEASE_SERVER");
    assert!(rounds > 0, "a round has {ROUND} calls");
    comparison.compare_rounds(first..first + rounds);
    println!(
        "{} calls as on {server}, in {} s; replies {:?}",
        rounds * ROUND,
        started.elapsed().as_secs(),
        comparison.said
    );
    if rounds >= ROUNDS {
        comparison.must_have_said_all(); // with fewer rounds some may be missing
    }
}

/// An engine and a server.
struct Comparison {
    pair: Pair,
    judge: Judge,
    said: BTreeSet<String>,
}

impl Comparison {
    fn start() -> Comparison {
        let engine = EmbeddedCluster::builder().start_time(since_1970());
        let engine = Engine::start(engine, heard_channels());
        let real = RealSubscriber::start(heard_channels());
        let judge = real.judge.clone();
        let mute = if judge.is_old() { MUTE } else { "" };
        let scripts = || {
            let text = |text| format!("{GIVEN_CLOCK}{mute}{text}");
            rwlease::scripts().map(move |script| (script.name(), text(script.text())))
        };
        let sides = [Side::new(Box::new(engine), scripts()), Side::new(Box::new(real), scripts())];
        Comparison { pair: Pair::new(sides), judge, said: BTreeSet::new() }
    }

    fn compare_rounds(&mut self, seeds: impl IntoIterator<Item = u64>) {
        for seed in seeds {
            let mut round = Round::new(self, seed);
            for call in 1..=ROUND {
                round.step().unwrap_or_else(|difference| {
                    let told = round.comparison.pair.told();
                    panic!("RWLEASE_SEED={seed}, call {call}\n{told}\n{difference}")
                });
            }
            self.pair.fill_memory(false);
        }
    }

    fn must_have_said_all(&self) {
        let mut must = MUST_BE_SAID.split_whitespace();
        assert_eq!(must.find(|status| !self.said.contains(*status)), None, "never said");
    }
}

struct Round<'a> {
    comparison: &'a mut Comparison,
    rng: Rng,
    calls: Calls,
    us: u64,
}

impl Round<'_> {
    fn new(comparison: &mut Comparison, seed: u64) -> Round<'_> {
        let mut rng = Rng::with_seed(seed);
        // Any day will do; sometimes one long ago, when times had fewer digits.
        let day = match rng.u32(..20) {
            0 => rng.u64(1..1_000_000_000),
            _ => since_1970().as_secs() / 86_400 * 86_400 + AHEAD_S,
        };
        keys().for_each(|key| comparison.pair.end(key));
        let us = day * 1_000_000 + rng.u64(..1_000_000);
        Round { us, calls: Calls::new(seed), rng, comparison }
    }

    fn step(&mut self) -> Result<(), String> {
        let pair = &mut self.comparison.pair;
        pair.turn_memory(&mut self.rng, 100);
        self.pass_time();
        self.tamper();
        let Comparison { pair, judge, said } = self.comparison;
        let call = self.calls.next(self.us / 1000);
        call.keys.iter().for_each(|key| pair.end_if_over(key, self.us / 1000));
        let [engine, server] = pair.call(&call);
        self.calls.learn(&call, &engine.reply);
        said.extend(gist(&engine.reply));
        let replies = [&engine.reply, &server.reply].map(|reply| judge.essence(reply.clone()));
        if replies[0] != replies[1] {
            return Err(format!("engine {:?}\nserver {:?}", replies[0], replies[1]));
        }
        pair.locks.extend(call.keys.into_iter().zip(engine.locks.clone()));
        let [engine, server] = [engine, server].map(|side| {
            let locks = side.locks.into_iter().map(Lock::with_large_numbers_in_one_form);
            (locks.collect::<Vec<_>>(), side.pushes)
        });
        if engine != server {
            return Err(format!("engine {engine:#?}\nserver {server:#?}"));
        }
        Ok(())
    }

    fn pass_time(&mut self) {
        let us = match self.rng.u32(..400) {
            0 => self.rng.u64(..60_000_000),
            1..20 => self.rng.u64(..2_500_000),
            20..60 => 0,
            60..160 => 1,
            _ => self.rng.u64(1..40_000),
        };
        self.us = match self.rng.u32(..400) {
            0 => self.us.saturating_sub(us),
            _ => self.us + us,
        };
        self.comparison.pair.set_time(self.us);
    }

    /// Somebody else writes to a lock, and removes it later, so that not all further calls meet a
    /// malformed lock.
    fn tamper(&mut self) {
        let key = LOCKS[self.rng.usize(..LOCKS.len())];
        let pair = &mut self.comparison.pair;
        match self.rng.u32(..400) {
            0 => {
                let (field, value) = self.calls.tampering();
                pair.tell(&[b"HSET", key.as_bytes(), field.as_bytes(), &value]);
            }
            1 => {
                pair.end(key);
                pair.tell(&["SET", key, "somebody else's"]);
            }
            2..5 => pair.end(key),
            5 if self.rng.u32(..5) == 0 => pair.tell(&["HSET", key, "s", "3"]),
            _ => {}
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The status of a reply, or the code of an error.
pub fn gist(reply: &RespValue) -> Option<String> {
    match reply {
        RespValue::Error(error) => Some(error.code.as_bytes()),
        RespValue::String(text) => Some(text.split(|byte| *byte == b' ').next()?),
        RespValue::Array(parts) => match parts.first() {
            Some(RespValue::String(status)) => Some(status.as_ref()),
            _ => None,
        },
        _ => None,
    }
    .map(|status| String::from_utf8_lossy(status).into_owned())
}
