//! A server, embedded or real, with scripts; and a pair of them, which get the same commands.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use fastrand::Rng;
use oracle::{LockHash, expand_line};
use rwlease_core::resp::RespValue;

use crate::Words;
use crate::engine::Engine;
use crate::random_calls::Call;
use crate::twin::scripts::SLOW_PATH;

/// How many of the last commands are printed with a difference.
const TOLD: usize = 24;

/// The state of a lock at its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// As if each part of the state line had its own field.
    pub fields: BTreeMap<String, String>,
    /// The fields as they are.
    pub raw: BTreeMap<Bytes, Bytes>,
    /// The value of a key that is a string.
    pub text: Option<Bytes>,
    /// When the key expires, in ms.
    pub ends: Option<u64>,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub reply: RespValue,
    /// The state of each key of the call.
    pub locks: Vec<Lock>,
    /// The messages that were published and received, by channel.
    pub pushes: Vec<(Bytes, Bytes)>,
    /// The message of the slow path, if the call reached it.
    pub slow_path: Option<Bytes>,
}

pub struct Side {
    server: Box<dyn CommandServer>,
    digests: BTreeMap<&'static str, Vec<u8>>,
}

impl Side {
    /// A server that knows these scripts, each a name and a text.
    pub fn new(
        mut server: Box<dyn CommandServer>,
        scripts: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Side {
        let mut digests = BTreeMap::new();
        for (name, text) in scripts {
            let load = words(&["SCRIPT", "LOAD", &text]);
            let RespValue::String(digest) = server.query(&[load]).remove(0) else {
                panic!("{name} does not compile");
            };
            digests.insert(name, digest.to_vec());
        }
        Side { server, digests }
    }

    pub fn tell(&mut self, commands: &[Words]) {
        self.server.query(commands);
    }

    fn call(&mut self, call: &Call) -> Outcome {
        let mut commands = vec![call.evalsha(&self.digests)];
        commands.extend(call.keys.iter().flat_map(|key| Lock::queries(key)));
        let mut replies = self.server.query(&commands).into_iter();
        let reply = replies.next().unwrap_or(RespValue::Nil);
        let locks = call.keys.iter().map(|_| Lock::read(replies.by_ref())).collect();
        let mut pushes = self.server.messages();
        let said = pushes.iter().position(|(channel, _)| channel.as_ref() == SLOW_PATH.as_bytes());
        Outcome { reply, locks, slow_path: said.map(|at| pushes.remove(at).1), pushes }
    }
}

/// Two servers that get the same commands.
pub struct Pair {
    pub sides: [Side; 2],
    /// The locks, as the first one has them after the calls.
    pub locks: BTreeMap<String, Lock>,
    pub is_full: bool,
    /// The last commands.
    told: VecDeque<String>,
}

impl Pair {
    pub fn new(sides: [Side; 2]) -> Pair {
        Pair { sides, locks: BTreeMap::new(), is_full: false, told: VecDeque::new() }
    }

    pub fn tell<W: AsRef<[u8]>>(&mut self, command: &[W]) {
        let command = words(command);
        self.remember(String::new(), &command);
        self.sides.iter_mut().for_each(|side| side.tell(std::slice::from_ref(&command)));
    }

    pub fn call(&mut self, call: &Call) -> [Outcome; 2] {
        self.remember(format!("{} {:?} ", call.script, call.keys), &call.args);
        let [first, second] = &mut self.sides;
        [first.call(call), second.call(call)]
    }

    /// Removes a key that has expired by this time, in ms.
    pub fn end_if_over(&mut self, key: &str, now: u64) {
        let ends = self.locks.get(key).and_then(|lock| lock.ends);
        if ends.is_some_and(|ends| ends <= now) {
            self.end(key);
        }
    }

    pub fn end(&mut self, key: &str) {
        self.tell(&["DEL", key]);
        self.locks.remove(key);
    }

    /// Sets the time that the scripts get, in us.
    pub fn set_time(&mut self, us: u64) {
        let clock = format!("{} {}", us / 1_000_000, us % 1_000_000);
        self.with_free_memory(|pair| pair.tell(&["SET", "clock", &clock]));
    }

    /// Sometimes fills the memory of both, and soon frees it again.
    pub fn turn_memory(&mut self, rng: &mut Rng, seldom: u32) {
        let odds = if self.is_full { 10 } else { seldom };
        let turns = rng.u32(..odds) == 0;
        self.fill_memory(self.is_full ^ turns);
    }

    /// Runs commands that a full server would refuse.
    pub fn with_free_memory(&mut self, run: impl FnOnce(&mut Pair)) {
        let is_full = self.is_full;
        self.fill_memory(false);
        run(self);
        self.fill_memory(is_full);
    }

    pub fn fill_memory(&mut self, is_full: bool) {
        if is_full != self.is_full {
            self.is_full = is_full;
            self.sides.iter_mut().for_each(|side| side.server.fill_memory(is_full));
        }
    }

    /// The last commands, one a line.
    pub fn told(&mut self) -> String {
        self.told.make_contiguous().join("\n")
    }

    fn remember(&mut self, head: String, command: &Words) {
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.told.push_back(head + &words.join(" "));
    }
}

impl Lock {
    /// The state of a key of an engine.
    pub fn at(engine: &Engine, key: &str) -> Lock {
        Lock::read(Lock::queries(key).iter().map(|query| engine.query(query)))
    }

    /// The commands whose replies `read` expects.
    fn queries(key: &str) -> [Words; 3] {
        ["HGETALL", "GET", "PEXPIRETIME"].map(|name| words(&[name, key]))
    }

    fn read(mut replies: impl Iterator<Item = RespValue>) -> Lock {
        let raw = match replies.next() {
            Some(RespValue::Array(parts)) => {
                parts.chunks(2).map(|pair| (string(&pair[0]), string(&pair[1]))).collect()
            }
            _ => BTreeMap::new(), // a key of another type
        };
        let text = match replies.next() {
            Some(RespValue::String(text)) => Some(text),
            _ => None,
        };
        let ends = match replies.next() {
            Some(RespValue::Int(ends)) => u64::try_from(ends).ok(),
            _ => None,
        };
        let mut lock = Lock { fields: BTreeMap::new(), raw, text, ends };
        let printable = lock.printable();
        lock.fields = expand_line(&printable).unwrap_or(printable);
        lock
    }

    /// The state for a comparison of server versions: a script that counts on from a forged count
    /// passes a number that versions write differently.
    pub fn with_large_numbers_in_one_form(mut self) -> Lock {
        const EXACT: f64 = (1u64 << 53) as f64;
        let one_form = |text: &str| {
            let number = text.parse::<f64>().ok()?;
            (number.is_finite() && number.abs() > EXACT).then(|| format!("{number:e}"))
        };
        for value in self.raw.values_mut() {
            if let Some(number) = str::from_utf8(value).ok().and_then(one_form) {
                *value = number.into();
            }
        }
        for value in self.fields.values_mut() {
            if let Some(number) = one_form(value) {
                *value = number;
            }
        }
        self
    }

    /// The fields as they are, as texts.
    pub fn printable(&self) -> BTreeMap<String, String> {
        let text = |text: &Bytes| String::from_utf8_lossy(text).into_owned();
        self.raw.iter().map(|(field, value)| (text(field), text(value))).collect()
    }

    pub fn decode(&self) -> LockHash {
        LockHash::decode(self.printable(), self.ends, 0)
    }
}

fn string(reply: &RespValue) -> Bytes {
    match reply {
        RespValue::String(text) => text.clone(),
        other => panic!("{other:?} in a hash"),
    }
}

/// A server that no one else uses.
pub trait CommandServer {
    fn query(&mut self, commands: &[Words]) -> Vec<RespValue>;

    /// The messages since the last call.
    fn messages(&mut self) -> Vec<(Bytes, Bytes)>;

    fn fill_memory(&mut self, is_full: bool);
}

pub fn words<W: AsRef<[u8]>>(words: &[W]) -> Words {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}
