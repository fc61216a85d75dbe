//! The lock scripts answer and write on the engine as on a real server, byte for byte: both run the
//! same random calls, with the same time in place of their clocks.
//!
//! `make equality` compares a million calls. `RWLEASE_SEED=n` starts with that round. `SERVER_IS`
//! says which server it must be.

// The calls are real, and so is the time they take.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use fastrand::Rng;
use tokio::sync::mpsc::UnboundedReceiver;

use super::judge::Judge;
use super::random_calls::{self, Call, Calls, LOCKS};
use super::real::{RealConnection, RealServer, program};
use super::{at_once, words};
use crate::backend::{PubSubConnection, PubSubEvent, RespValue};
use crate::embedded::EmbeddedCluster;

pub(super) const GIVEN_CLOCK: &str = include_str!("given_clock.lua");

/// What Redis 6.2 lacks: the expiry of a key, and messages to the subscribers of a slot.
const ENDS: &str = "\
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local before, left
repeat
  before, left = now(), redis.call('PTTL', KEYS[1])
until before == now()
return left < 0 and left or before + left";
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
const ROUNDS: u64 = 24;

/// How many calls are sent to the server at once.
const BATCH: u64 = 50;

/// Twenty years: nothing may expire by the servers' own clocks.
const AHEAD_S: u64 = 20 * 365 * 86_400;

/// The statuses that must occur at least once, so that the comparison means something.
const MUST_BE_SAID: &[&str] = &[
    "LOCKARGS",
    "LOCKFOREIGN",
    "LOCKVERSION",
    "OOM",
    "WRONGTYPE",
    "absent",
    "ahead",
    "cached",
    "conflict",
    "forced",
    "free",
    "full",
    "granted",
    "held",
    "left",
    "lock",
    "lost",
    "other",
    "pumped",
    "queued",
    "raised",
    "reads",
    "refused",
    "released",
    "renewed",
    "revoked",
    "stale",
    "writes",
    "writing",
];

#[test]
fn the_lock_scripts_do_as_on_a_server() {
    let mut pair = Pair::start();
    pair.compare_rounds(1..=ROUNDS);
    pair.must_have_said_all();
    pair.compare_rounds([fastrand::u64(..)]);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_calls_do_as_on_a_server() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    // Far from the seeds of the short form.
    let first = number("RWLEASE_SEED").unwrap_or_else(|| fastrand::u64(1_000..1_000_000_000));
    let rounds = number("CALLS").unwrap_or(1_000_000) / ROUND;
    let started = Instant::now();
    let mut pair = Pair::start();
    let server = pair.judge.server.clone();
    println!("{server} ({}), from RWLEASE_SEED={first} on", program().display());
    let expected = std::env::var("SERVER_IS").unwrap_or_default();
    assert!(server.starts_with(&expected), "not {expected}: set RWLEASE_SERVER");
    assert!(rounds > 0, "a round has {ROUND} calls");
    pair.compare_rounds(first..first + rounds);
    println!(
        "{} calls as on {server}, in {} s; replies {:?}",
        rounds * ROUND,
        started.elapsed().as_secs(),
        pair.said
    );
    if rounds >= ROUNDS {
        pair.must_have_said_all(); // with fewer rounds some may be missing
    }
}

/// An engine and a server that run the same commands.
struct Pair {
    engine: EmbeddedCluster,
    heard: UnboundedReceiver<PubSubEvent>,
    _subscription: Arc<dyn PubSubConnection>,
    real: RealConnection,
    real_ear: RealConnection,
    _server: RealServer,
    judge: Judge,
    digests: BTreeMap<&'static str, Vec<u8>>,
    said: BTreeSet<String>,
    /// The commands that the engine has run, and the server has not.
    ahead: Vec<Done>,
}

/// A command that the engine has run.
#[derive(Debug)]
struct Done {
    command: Vec<Vec<u8>>,
    /// The engine's reply, if it is to be compared.
    reply: Option<RespValue>,
}

impl Pair {
    fn start() -> Pair {
        let server = RealServer::start(false);
        let (mut real, mut real_ear) = (server.connect(), server.connect());
        let engine = EmbeddedCluster::builder().standalone().start_time(since_1970()).build();
        let (subscription, mut heard) =
            at_once(engine.connector().subscribe(&engine.addresses()[0])).unwrap();
        for channel in random_calls::heard_channels() {
            at_once(subscription.subscribe(channel.as_bytes(), false)).unwrap();
            heard.try_recv().unwrap();
            real_ear.query(&["SSUBSCRIBE", &channel]);
        }
        let judge = Judge::of(&mut real);
        let mute = if judge.is_old() { MUTE } else { "" };
        let mut digests = BTreeMap::new();
        for script in crate::scripts() {
            let load = ["SCRIPT", "LOAD", &format!("{GIVEN_CLOCK}{mute}{}", script.text())];
            let RespValue::String(digest) = engine.query(0, &words(&load)) else {
                panic!("{} does not compile", script.name());
            };
            assert_eq!(real.query(&load), RespValue::String(digest.clone()));
            digests.insert(script.name(), digest.to_vec());
        }
        Pair {
            judge,
            engine,
            heard,
            _subscription: subscription,
            real,
            real_ear,
            _server: server,
            digests,
            said: BTreeSet::new(),
            ahead: Vec::new(),
        }
    }

    fn compare_rounds(&mut self, seeds: impl IntoIterator<Item = u64>) {
        for seed in seeds {
            Round::new(self, seed).run();
        }
    }

    fn must_have_said_all(&self) {
        let missing: Vec<_> =
            MUST_BE_SAID.iter().filter(|word| !self.said.contains(**word)).collect();
        assert!(missing.is_empty(), "never said: {missing:?}");
    }

    /// Runs a command on the engine now, and on the server later.
    fn tell<W: AsRef<[u8]>>(&mut self, command: &[W], is_compared: bool) -> RespValue {
        let reply = self.engine.query(0, &words(command));
        self.ahead.push(Done {
            command: command.iter().map(|word| word.as_ref().to_vec()).collect(),
            reply: is_compared.then(|| reply.clone()),
        });
        reply
    }

    /// As `tell`, for the expiry of a key.
    fn tell_end(&mut self, key: &str) {
        let reply = self.engine.query(0, &words(&["PEXPIRETIME", key]));
        let command: &[&str] =
            if self.judge.is_old() { &["EVAL", ENDS, "1", key] } else { &["PEXPIRETIME", key] };
        let command = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.ahead.push(Done { command, reply: Some(reply) });
    }

    fn fill_memory(&mut self, is_full: bool) {
        self.engine.faults().set_out_of_memory(0, is_full);
        let limit = if is_full { "1" } else { "0" };
        let command = ["CONFIG", "SET", "maxmemory", limit].map(|word| word.as_bytes().to_vec());
        self.ahead.push(Done { command: command.into(), reply: None });
    }

    /// Runs the commands on the server, and returns the first difference.
    fn catch_up(&mut self) -> Result<(), String> {
        let ahead = std::mem::take(&mut self.ahead);
        let replies = self.real.ask_all(ahead.iter().map(|done| done.command.as_slice()));
        for (at, (done, reply)) in ahead.iter().zip(replies).enumerate() {
            let Some(expected) = done.reply.clone() else {
                continue;
            };
            let sorts = done.command[0] == b"HGETALL";
            let [engine, server] =
                [expected, reply].map(|reply| self.judge.essence(sorted(reply, sorts)));
            if engine != server {
                let before = &ahead[at.saturating_sub(12)..=at];
                let before: Vec<String> = before.iter().map(|done| tell(&done.command)).collect();
                return Err(format!(
                    "{}\n   server {server:?}\n   engine {engine:?}",
                    before.join("\n")
                ));
            }
        }
        self.compare_pushes()
    }

    /// Compares the messages of the subscribers, and their order.
    fn compare_pushes(&mut self) -> Result<(), String> {
        let mut engine = Vec::new();
        while let Ok(PubSubEvent::Message { channel, payload }) = self.heard.try_recv() {
            engine.push((channel, payload));
        }
        let mut server = Vec::new();
        let mut reply = self.real_ear.query(&["PING"]);
        while let Some(message) = message(&reply) {
            server.push(message);
            reply = self.real_ear.reply();
        }
        match engine == server {
            true => Ok(()),
            false => Err(format!("pushes\n   server {server:?}\n   engine {engine:?}")),
        }
    }
}

struct Round<'a> {
    pair: &'a mut Pair,
    seed: u64,
    rng: Rng,
    calls: Calls,
    us: u64,
    is_full: bool,
}

impl Round<'_> {
    fn new(pair: &mut Pair, seed: u64) -> Round<'_> {
        let mut rng = Rng::with_seed(seed);
        // Any day will do; sometimes one long ago, when times had fewer digits.
        let day = match rng.u32(..20) {
            0 => rng.u64(1..1_000_000_000),
            _ => since_1970().as_secs() / 86_400 * 86_400 + AHEAD_S,
        };
        Round {
            us: day * 1_000_000 + rng.u64(..1_000_000),
            calls: Calls::new(seed),
            rng,
            pair,
            seed,
            is_full: false,
        }
    }

    fn run(mut self) {
        random_calls::keys().for_each(|key| drop(self.pair.tell(&["DEL", key], false)));
        for call in 1..=ROUND {
            self.step();
            if call % BATCH == 0
                && let Err(difference) = self.pair.catch_up()
            {
                panic!("RWLEASE_SEED={}: by call {call}\n{difference}", self.seed);
            }
        }
        self.set_full(false);
    }

    fn step(&mut self) {
        let odds = if self.is_full { 10 } else { 100 };
        let turns = self.rng.u32(..odds) == 0;
        self.set_full(self.is_full ^ turns);
        self.pass_time();
        self.tamper();
        let call = self.calls.next(self.us / 1000);
        call.keys.iter().for_each(|key| self.end_if_over(key));
        let reply = self.pair.tell(&self.command(&call), true);
        self.pair.said.extend(gist(&reply));
        self.calls.learn(&call, &reply);
        for key in &call.keys {
            self.pair.tell(&["HGETALL", key], true);
            self.pair.tell(&["GET", key], true);
            self.pair.tell_end(key);
        }
    }

    fn command(&self, call: &Call) -> Vec<Vec<u8>> {
        let count = call.keys.len().to_string();
        let mut command =
            vec![b"EVALSHA".to_vec(), self.pair.digests[call.script].clone(), count.into()];
        command.extend(call.keys.iter().map(|key| key.clone().into()));
        command.extend(call.args.iter().cloned());
        command
    }

    fn set_full(&mut self, is_full: bool) {
        if is_full != self.is_full {
            self.is_full = is_full;
            self.pair.fill_memory(is_full);
        }
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
        let clock = format!("{} {}", self.us / 1_000_000, self.us % 1_000_000);
        let is_full = self.is_full;
        self.set_full(false); // otherwise the server would refuse it
        self.pair.tell(&["SET", "clock", &clock], true);
        self.set_full(is_full);
    }

    /// Removes a key that has expired by the given clock.
    fn end_if_over(&mut self, key: &str) {
        if let RespValue::Int(ends) = self.pair.engine.query(0, &words(&["PEXPIRETIME", key]))
            && (0..=self.us as i64 / 1000).contains(&ends)
        {
            self.pair.tell(&["DEL", key], true);
        }
    }

    /// Somebody else writes to a lock, and removes it later, so that not all further calls meet a
    /// malformed lock.
    fn tamper(&mut self) {
        let key = LOCKS[self.rng.usize(..LOCKS.len())];
        match self.rng.u32(..400) {
            0 => {
                let (field, value) = self.calls.tampering();
                self.pair.tell(&[b"HSET", key.as_bytes(), field.as_bytes(), &value], true);
            }
            1 => drop(self.pair.tell(&["SET", key, "somebody else's"], true)),
            2..5 => drop(self.pair.tell(&["DEL", key], true)),
            5 if self.rng.u32(..5) == 0 => drop(self.pair.tell(&["HSET", key, "s", "3"], true)),
            _ => {}
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The status of a reply, or the code of an error.
pub(super) fn gist(reply: &RespValue) -> Option<String> {
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

/// The fields of a hash have no order.
fn sorted(reply: RespValue, sorts: bool) -> RespValue {
    match reply {
        RespValue::Array(parts) if sorts => {
            let mut fields: Vec<Vec<RespValue>> =
                parts.chunks(2).map(<[RespValue]>::to_vec).collect();
            fields.sort_by_key(|field| format!("{field:?}"));
            RespValue::Array(fields.into_iter().flatten().collect())
        }
        other => other,
    }
}

pub(super) fn message(reply: &RespValue) -> Option<(Bytes, Bytes)> {
    match reply {
        RespValue::Array(parts) => match parts.as_slice() {
            [RespValue::String(kind), RespValue::String(channel), RespValue::String(payload)]
                if kind.as_ref() == b"smessage" =>
            {
                Some((channel.clone(), payload.clone()))
            }
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn tell(command: &[Vec<u8>]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}
