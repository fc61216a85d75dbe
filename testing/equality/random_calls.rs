//! Random calls of the lock scripts: most are calls that clients make, some come late or twice, and
//! some are calls that no client would make.

use std::collections::BTreeMap;

use fastrand::Rng;
use rwlease_core::resp::RespValue;

use crate::Words;
use crate::side::words;

/// One call of a script.
#[derive(Clone, Debug)]
pub struct Call {
    pub script: &'static str,
    pub keys: Vec<String>,
    pub args: Words,
}

impl Call {
    /// The acquisition that it is for, if it is for one.
    pub fn id(&self) -> &str {
        let at = if self.has_not_after() { 2 } else { 1 };
        self.args.get(at).and_then(|word| str::from_utf8(word).ok()).unwrap_or_default()
    }

    /// The words of the call, if the scripts are loaded under these digests.
    pub fn evalsha(&self, digests: &BTreeMap<&'static str, Vec<u8>>) -> Words {
        let count = self.keys.len().to_string();
        let mut command = vec![b"EVALSHA".to_vec(), digests[self.script].clone(), count.into()];
        command.extend(self.keys.iter().map(|key| key.clone().into()));
        command.extend(self.args.iter().cloned());
        command
    }

    pub fn has_not_after(&self) -> bool {
        self.script.contains("acquire") || matches!(self.script, "upgrade" | "accept_transfer")
    }
}

/// The keys of the locks, of the mutexes, of the two-key lock and of the fenced value.
pub const LOCKS: [&str; 3] = ["rwlease:a", "rwlease:b", "rwlease:c"];
const MUTEX: &str = "mutex";
const LEGACY: [&str; 2] = ["legacy-read", "legacy-write"];
const FENCED: &str = "rwlease:fenced:a";

/// All keys.
pub fn keys() -> impl Iterator<Item = &'static str> {
    LOCKS.into_iter().chain([MUTEX]).chain(LEGACY).chain([FENCED])
}

/// Clients, by their names in ids.
const CLIENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The channels with a subscriber.
pub fn heard_channels() -> impl Iterator<Item = String> {
    CLIENTS[..3].iter().map(|client| format!("{{0}}rwlease:{client:_<11}"))
}

/// Returns true if the client of this acquisition is not subscribed.
pub fn is_deaf(id: &str) -> bool {
    !CLIENTS[..3].iter().any(|client| id.starts_with(&format!("{client:_<11}")))
}

/// The greatest possible token.
const MOST_EXACT: u64 = 1 << 53;

/// Commands that replace any other.
const ODD: &[&[u8]] = &[
    b"",
    b"0",
    b"-1",
    b"1.5",
    b"1e3",
    b" 7",
    b"0x10",
    b"nan",
    b"inf",
    b"-inf",
    b"1e400",
    b"999999999999",
    b"1000000000001",
    b"9007199254740992",
    b"9007199254740993",
    b"9223372036854775808",
    b"-",
    b"a",
    b"f",
    b"r",
    b"wait",
    b"1 1 1 -",
    b"400 2000 100 here there",
    b"%s %d",
    b"with space",
    b"a\0b",
    b"\xff\xfe",
    b"{0}",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Fields that are tampered with.
const FIELDS: &str = "\
    s s s s writer readers waiters fair_writers read_min sweep revoked_up_to forced_up_to \
    lapsed_clients reader_phase ticket readers_head readers_tail writers_head writers_tail upgrader \
    cached_readers recall_cursor i:0 i:1";

/// Lines that look valid, with the token still missing.
const LINES: &str = "\
    2F9999999999999T 2Q9999999999999T 2W9999999999999T99999999999990a__________0000001 \
    2R9999999999999T99999999999990a__________0000001 2S9999999999999T999999999999901 \
    2S9999999999999T999999999999900 2F999999999999xT 2F9999999999999T0 \
    2W9999999999999T99999999999994a__________0000001 2W9999999999999T99999999999990short \
    2X9999999999999T 1F9999999999999T -F9999999999999T";

/// How many acquisitions of a lock are remembered.
const MOST_KNOWN: usize = 60;

/// How many calls are kept to be sent again.
const MOST_SENT: usize = 40;

/// What a client knows about one of its acquisitions.
#[derive(Clone, Debug)]
struct Known {
    key: &'static str,
    id: String,
    writes: bool,
    token: u64,
    ticket: u64,
}

/// The mix of calls.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Whether there are mutexes and two-key locks too.
    pub all_kinds: bool,
    /// The number of locks, at most three.
    pub locks: usize,
    /// The number of clients. The first three are subscribed.
    pub clients: usize,
    /// Of a hundred calls, how many start a new acquisition.
    pub newcomers: u32,
    /// Of ten newcomers, how many want to write.
    pub writers: u32,
    /// Of a thousand calls, how many are odd.
    pub odd: u32,
    /// The longest usual lease, in ms.
    pub lease: u64,
    pub window: u64,
    pub waiter_ttl: u64,
    /// The limits of waiters in the calls.
    pub limits: [u64; 3],
    /// One lease in so many has any possible length.
    pub long_leases: u32,
    /// How far a token is raised, in us; one raise in so many exceeds the limit.
    pub raised_by: u64,
    pub far_raises: u32,
    /// One query in so many is a transfer instead; 0 for none.
    pub transfers: u32,
    /// Of ten requests and renewals, how many request a cached lock.
    pub cached: u32,
    /// Of ten first calls, how many are tries that wait only for cached holders.
    pub cached_tries: u32,
}

/// Makes up calls, and learns from their replies.
#[derive(Debug)]
pub struct Calls {
    rng: Rng,
    ids: u32,
    known: Vec<Known>,
    sent: Vec<Call>,
    habits: Habits,
}

impl Calls {
    pub fn new(seed: u64) -> Calls {
        let mut rng = Rng::with_seed(seed);
        let habits = Habits {
            all_kinds: true,
            locks: LOCKS.len(),
            clients: CLIENTS.len(),
            newcomers: [15, 30, 60][rng.usize(..3)],
            writers: 3,
            odd: [0, 20, 150][rng.usize(..3)],
            lease: 1_500,
            window: 400,
            waiter_ttl: 2_000,
            limits: [0, 3, 1_000],
            long_leases: 50,
            raised_by: 3_000_000,
            far_raises: 8,
            transfers: 4,
            cached: 3,
            cached_tries: 3,
        };
        Calls::with(rng, habits)
    }

    pub fn with(rng: Rng, habits: Habits) -> Calls {
        Calls { rng, ids: 0, known: Vec::new(), sent: Vec::new(), habits }
    }

    /// The next call, at this time in ms.
    pub fn next(&mut self, now: u64) -> Call {
        let draw = self.rng.u32(..100);
        let call = match draw {
            0..4 if !self.sent.is_empty() => self.sent[self.rng.usize(..self.sent.len())].clone(),
            4..8 if self.habits.all_kinds => self.mutex(now),
            8..12 if self.habits.all_kinds => self.fenced(),
            12..16 if self.habits.all_kinds => self.legacy(now),
            16..22 => self.of_a_lock(),
            22.. if draw < 22 + self.habits.newcomers => self.newcomer(now),
            _ => self.again(now),
        };
        let call = if self.rng.u32(..1000) < self.habits.odd {
            made_odd(&mut self.rng, call)
        } else {
            call
        };
        if self.sent.len() == MOST_SENT {
            self.sent.remove(0);
        }
        self.sent.push(call.clone());
        call
    }

    /// A change of a lock's field by somebody who should not change it.
    pub fn tampering(&mut self) -> (&'static str, Vec<u8>) {
        let field = self.one_of(FIELDS);
        let value = match self.rng.u32(..3) {
            0 if field == "s" => {
                let line = self.one_of(LINES);
                line.replace('T', &format!("{:016}", self.rng.u64(..MOST_EXACT))).into()
            }
            0 => b"h9999999999999000000000000000100".to_vec(),
            1 => self.known.first().map_or(Vec::new(), |known| known.id.clone().into()),
            _ => odd_word(&mut self.rng),
        };
        (field, value)
    }

    /// Learns from a reply.
    pub fn learn(&mut self, call: &Call, reply: &RespValue) {
        let (RespValue::String(text), Some(key)) = (reply, call.keys.first()) else {
            return;
        };
        let text = String::from_utf8_lossy(text);
        let words: Vec<&str> = text.split(' ').collect();
        let status = words[0].as_bytes();
        let id = call.id().as_bytes();
        // A grant names the acquisition first.
        let at = if status == b"granted" { 4 } else { 3 };
        let number = words.get(at).and_then(|number| number.parse().ok()).unwrap_or(0);
        let place = |known: &Known| known.key == key && known.id.as_bytes() == id;
        let Some(at) = self.known.iter().position(place) else {
            return;
        };
        let known = &mut self.known[at];
        match (call.script, status) {
            (_, b"queued") => known.ticket = number.max(known.ticket),
            ("downgrade", b"granted") => known.writes = false,
            ("upgrade", b"granted") | (_, b"upgrade_granted") => {
                (known.writes, known.token) = (true, number)
            }
            (_, b"granted" | b"renewed" | b"other") => known.token = number,
            // Some continue to call all the same.
            (
                _,
                b"released" | b"left_queue" | b"force_released" | b"not_found" | b"not_held"
                | b"too_late" | b"busy" | b"queue_full" | b"recalling",
            ) if self.rng.u32(..4) > 0 => {
                self.known.swap_remove(at);
            }
            _ => {}
        }
    }

    fn newcomer(&mut self, now: u64) -> Call {
        self.ids += 1;
        let client = CLIENTS[self.rng.usize(..self.habits.clients)];
        let known = Known {
            key: LOCKS[self.rng.usize(..self.habits.locks)],
            id: format!("{client:_<11}{:07}", self.ids),
            writes: self.rng.u32(..10) < self.habits.writers,
            token: 0,
            ticket: 0,
        };
        if self.known.len() == MOST_KNOWN {
            self.known.swap_remove(self.rng.usize(..MOST_KNOWN));
        }
        self.known.push(known.clone());
        self.acquire(&known, now)
    }

    fn acquire(&mut self, known: &Known, now: u64) -> Call {
        let script = if known.writes { "acquire_write" } else { "acquire_read" };
        let fairness = if self.rng.u32(..5) == 0 { "r" } else { "f" };
        let waits = known.ticket > 0 || self.rng.u32(..4) > 0;
        let cached = if self.is_cached() { "k" } else { "" };
        let tries = if waits && known.ticket == 0 && self.is_cached_try() { "t" } else { "" };
        self.demand(script, known, format!("{fairness}{cached}{tries}"), waits, now)
    }

    /// A further call of a known acquisition.
    fn again(&mut self, now: u64) -> Call {
        if self.known.is_empty() {
            return self.newcomer(now);
        }
        let known = self.known[self.rng.usize(..self.known.len())].clone();
        let Known { id, token, .. } = &known;
        let token = token.to_string();
        match self.rng.u32(..20) {
            0..6 => self.acquire(&known, now),
            6..10 => call("release", &known, &[id]),
            10 => {
                let until = now + self.rng.u64(..1_000);
                call("release", &known, &[id, &until.saturating_sub(200).to_string()])
            }
            11 => call("release", &known, &[id, "wait"]),
            12..15 => {
                let (lease, tokens) = (self.lease(), self.tokens());
                let (mode, token) = (self.believed_mode(&known), known.token.max(1).to_string());
                match self.is_cached() {
                    true => call("renew", &known, &[id, &lease, mode, &token, &tokens]),
                    false => call("renew", &known, &[id, &lease, mode, &token]),
                }
            }
            15 => {
                let lease = self.lease();
                match self.is_cached() {
                    true => call("downgrade", &known, &[id, &token, &lease, "k"]),
                    false => call("downgrade", &known, &[id, &token, &lease]),
                }
            }
            16..18 => {
                let waits = self.rng.bool();
                self.demand("upgrade", &known, token, waits, now)
            }
            18 if self.accepts_transfer() => self.accept_transfer(&known, now),
            18 => call("holds", &known, &[id]),
            _ => {
                let by_us = match self.rng.u32(..self.habits.far_raises) {
                    0 => 100_000_000,
                    _ => self.habits.raised_by,
                };
                let higher = known.token + self.rng.u64(..by_us);
                call("raise_token", &known, &[id, &higher.to_string()])
            }
        }
    }

    /// By a new acquisition, which replaces the holder if the call succeeds.
    fn accept_transfer(&mut self, known: &Known, now: u64) -> Call {
        self.ids += 1;
        let client = CLIENTS[self.rng.usize(..self.habits.clients)];
        let taker = Known { id: format!("{client:_<11}{:07}", self.ids), ..known.clone() };
        let not_after = (now + self.rng.u64(..500)).saturating_sub(20).to_string();
        let (lease, token) = (self.lease(), known.token.max(1).to_string());
        let mode = if known.writes { "w" } else { "r" };
        if self.known.len() == MOST_KNOWN {
            self.known.swap_remove(self.rng.usize(..MOST_KNOWN));
        }
        self.known.push(taker.clone());
        call("accept_transfer", &taker, &[&not_after, &taker.id, &lease, mode, &known.id, &token])
    }

    /// The arguments of an acquire or an upgrade.
    fn demand(
        &mut self,
        script: &'static str,
        known: &Known,
        fifth: String,
        waits: bool,
        now: u64,
    ) -> Call {
        let rng = &mut self.rng;
        let not_after = match rng.u32(..10) {
            0 => 0,
            1 => now - rng.u64(..100),
            _ => now + rng.u64(..500),
        };
        let window = rng.u64(1..self.habits.window).to_string();
        let waiter_ttl = rng.u64(1..self.habits.waiter_ttl).to_string();
        let limit = self.habits.limits[rng.usize(..3)].to_string();
        let node = ["here", "there", "-"][rng.usize(..3)];
        let ticket = match rng.u32(..150) {
            0 => rng.u64(..=MOST_EXACT).to_string(),
            _ => known.ticket.to_string(),
        };
        let upgrades = script == "upgrade";
        let (lease, not_after) = (self.lease(), not_after.to_string());
        let tokens = if fifth.contains('k') { self.tokens() } else { "1".into() };
        let mut args = vec![not_after.as_str(), &known.id, &lease, &fifth];
        args.extend(if upgrades { vec!["0"] } else { vec![tokens.as_str(), "0"] });
        let place = format!("{window} {waiter_ttl} {} {node}", if upgrades { "0" } else { &limit });
        if waits {
            args.push(&place);
            args.extend((!upgrades && ticket != "0").then_some(ticket.as_str()));
        }
        call(script, known, &args)
    }

    /// A call for the lock, without an id.
    fn of_a_lock(&mut self) -> Call {
        let rng = &mut self.rng;
        let script = [
            "grant_waiters",
            "grant_waiters",
            "grant_waiters",
            "revoke",
            "force_release",
            "inspect",
            "inspect",
        ][rng.usize(..7)];
        let key = LOCKS[rng.usize(..self.habits.locks)];
        let mut args = words(&["here"]);
        let tag = words(&["0"]);
        if script == "inspect" {
            let from = if rng.bool() { 0 } else { rng.u64(..20) };
            args.extend(words(&[&from.to_string(), "-", "-", &rng.u64(1..30).to_string()]));
        } else if script != "grant_waiters" {
            // All holders, or those up to one of them.
            let tokens: Vec<u64> = self.known.iter().map(|known| known.token.max(1)).collect();
            let token = rng.choice(tokens).filter(|_| rng.bool()).unwrap_or(MOST_EXACT);
            args.extend(words(&[&token.to_string()]));
        }
        args.extend(tag.into_iter().filter(|_| script != "inspect"));
        let keys = vec![key.to_owned()];
        Call { script, keys, args }
    }

    /// A call on a string: a mutex, or the record of a client.
    fn mutex(&mut self, now: u64) -> Call {
        let rng = &mut self.rng;
        let id = format!("mutex_holder_{}", rng.u32(..4));
        let not_after = (now + rng.u64(..200)).saturating_sub(50).to_string();
        let lease = self.lease();
        let age = self.rng.u64(..1 << 43).to_string();
        let (script, args) = match self.rng.u32(..8) {
            0..2 => ("set_nx/acquire", words(&["here", &not_after, &id, &lease])),
            2 => ("set_nx/renew", words(&["here", &id, &lease])),
            3 => ("set_nx/release", words(&["here", &id])),
            4 => ("client_record/write", words(&["here", &age, &lease, "4711 lib web-1 label"])),
            5 => ("client_record/read", words(&["here"])),
            _ => ("set_nx/inspect", words(&["here"])),
        };
        let keys = vec![MUTEX.to_owned()];
        Call { script, keys, args }
    }

    /// A call of one of four writers with one of three tokens.
    fn fenced(&mut self) -> Call {
        let rng = &mut self.rng;
        let writer = |rng: &mut Rng| format!("value_writer_{}", rng.u32(..4));
        let lock = if rng.u32(..20) == 0 { "other" } else { "a" };
        let (token, sequence) = (rng.u64(7..10).to_string(), rng.u64(1..5).to_string());
        let predecessor = if rng.bool() { "-".into() } else { writer(rng) };
        let retention = rng.u64(1..2_000).to_string();
        let id = writer(rng);
        let mut args = vec!["here", lock, &token, &id, &sequence, &predecessor, &retention];
        let ttl = if rng.bool() { "0".into() } else { rng.u64(1..1_000).to_string() };
        let script = match rng.u32(..6) {
            0..3 => {
                let mode = if rng.u32(..4) == 0 { "existing" } else { "any" };
                args.extend([ttl.as_str(), mode, &id]);
                "fenced/set"
            }
            3 => "fenced/delete",
            4 => "fenced/enter",
            _ => {
                args.truncate(2);
                "fenced/get"
            }
        };
        Call { script, keys: vec![FENCED.to_owned()], args: words(&args) }
    }

    fn legacy(&mut self, now: u64) -> Call {
        let rng = &mut self.rng;
        let id = format!("two_key_holder_{}", rng.u32(..4));
        let not_after = (now + rng.u64(..200)).saturating_sub(50).to_string();
        let acquire = words(&["here", &not_after, &id, &rng.u64(1..4).to_string()]);
        let release = words(&["here", &id]);
        let (script, keys, args) = match rng.u32(..4) {
            0 => ("legacy/acquire_read", &LEGACY[..], acquire),
            1 => ("legacy/acquire_write", &LEGACY[..], acquire),
            2 => ("legacy/release", &LEGACY[..1], release),
            _ => ("legacy/release", &LEGACY[1..], release),
        };
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Call { script, keys, args }
    }

    /// Mostly that of the acquisition. Another one is that of a downgrade that was lost or is under
    /// way.
    fn believed_mode(&mut self, known: &Known) -> &'static str {
        if known.writes != (self.rng.u32(..6) == 0) { "w" } else { "r" }
    }

    fn accepts_transfer(&mut self) -> bool {
        self.habits.transfers > 0 && self.rng.u32(..self.habits.transfers) == 0
    }

    fn is_cached(&mut self) -> bool {
        self.habits.cached > 0 && self.rng.u32(..10) < self.habits.cached
    }

    fn is_cached_try(&mut self) -> bool {
        self.habits.cached_tries > 0 && self.rng.u32(..10) < self.habits.cached_tries
    }

    fn tokens(&mut self) -> String {
        let tokens = if self.rng.bool() { 1_024 } else { self.rng.u64(1..=1_024) };
        tokens.to_string()
    }

    fn lease(&mut self) -> String {
        let ms = match self.rng.u32(..self.habits.long_leases) {
            0 => self.rng.u64(1..1_000_000_000_000),
            _ => self.rng.u64(1..self.habits.lease),
        };
        ms.to_string()
    }

    /// A word of a list.
    fn one_of(&mut self, list: &'static str) -> &'static str {
        let words: Vec<&str> = list.split(' ').collect();
        words[self.rng.usize(..words.len())]
    }
}

/// The same call with something invalid in it.
pub fn made_odd(rng: &mut Rng, mut call: Call) -> Call {
    if call.args.is_empty() {
        return call; // it was made odd often before
    }
    let at = rng.usize(..call.args.len());
    match rng.u32(..16) {
        0 => drop(call.args.remove(at)),
        1 => call.args.insert(at, odd_word(rng)),
        2 => call.keys.clear(),
        3 => call.keys.push(LOCKS[0].to_owned()),
        4 => call.keys = vec![keys().nth(rng.usize(..7)).unwrap_or(MUTEX).to_owned()],
        _ => call.args[at] = odd_word(rng),
    }
    call
}

fn odd_word(rng: &mut Rng) -> Vec<u8> {
    ODD[rng.usize(..ODD.len())].to_vec()
}

/// A call for an id. Of the envelope, only the server's name matters.
fn call(script: &'static str, known: &Known, args: &[&str]) -> Call {
    let mut all = words(&["here"]);
    all.extend(words(args));
    Call { script, keys: vec![known.key.to_owned()], args: all }
}
