//! Random calls of many acquisitions, compared with a simple model of what each of them was told.
//!
//! After every call the test checks the whole hash (see `state.rs`), and more. What a caller was
//! told that it holds is in the hash for at least as long. Such holds do not conflict. Tokens rise,
//! and none belongs to two acquisitions or to the block of another's write. After the pump no
//! acquisition waits for a lock that it could have.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::lab::{Answer, BLOCK, HERE, Held, KEEP, Lab, id};
use super::request::Request;

const STEPS: u32 = 2_500;

/// What an idle lock keeps until its life is over: its line, and the field that makes the hash
/// wide.
const LEFT_OVER: [&str; 2] = ["s", "wide"];

#[test]
fn random_script_calls_keep_the_lock_rules() {
    let seeds: Vec<u64> = match std::env::var("RWLEASE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 1077, fastrand::u64(..)],
    };
    for seed in seeds {
        println!("RWLEASE_SEED={seed}");
        Model::new(seed).run();
    }
}

/// The last answer to an acquisition.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Waits { write: bool, ticket: u64 },
    Holds { write: bool, held: Held },
}

struct Model {
    lab: Lab,
    random: Rng,
    ids: u32,
    told: BTreeMap<String, Told>,
    /// Calls that were sent, to be sent again later.
    sent: Vec<(&'static str, Vec<String>)>,
    /// The acquisition that has each token.
    tokens: BTreeMap<u64, String>,
    /// The first and the last token that each cached write owns.
    blocks: BTreeMap<String, (u64, u64)>,
    fence: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            lab: Lab::new(),
            random: Rng::with_seed(seed),
            ids: 0,
            told: BTreeMap::new(),
            sent: Vec::new(),
            tokens: BTreeMap::new(),
            blocks: BTreeMap::new(),
            fence: 0,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            let ms = match self.random.u32(..20) {
                0 => self.random.u64(500..2_000),
                1..6 => 0,
                _ => self.random.u64(1..60),
            };
            self.lab.pass(ms);
            self.step();
            self.check_told();
            if self.random.u32(..4) == 0 {
                self.lab.pump_dry();
                self.check_nobody_is_forgotten();
            }
        }
        self.run_out();
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..30 => self.acquire(),
            30..50 => self.poll(),
            50..66 => self.release(),
            66..76 => self.renew(),
            76..80 => self.downgrade(),
            80..83 => self.take_up(),
            83..89 => self.upgrade(),
            89..91 => self.stop_upgrade(),
            91..97 => self.repeat(),
            97 => self.revoke(),
            98 => self.force(),
            _ => {
                self.lab.pump().unwrap();
            }
        }
    }

    fn acquire(&mut self) {
        self.ids += 1;
        let name =
            format!("{}{}", self.random.choice(["a", "b", "c", "d", "e"]).unwrap(), self.ids);
        let write = self.random.u32(..5) < 2;
        let waits = self.random.u32(..3) > 0;
        self.request(&name, write, waits, 0);
    }

    fn poll(&mut self) {
        if let Some((name, Told::Waits { write, ticket })) =
            self.any(|told| matches!(told, Told::Waits { .. }))
        {
            self.request(&name, write, true, ticket);
        }
    }

    fn request(&mut self, name: &str, write: bool, waits: bool, ticket: u64) {
        let mut request = if write { Request::write(name) } else { Request::read(name) };
        request = self.wishes(request, waits);
        if self.random.u32(..4) == 0 {
            request = request.readers_first();
        }
        if self.random.u32(..3) == 0 {
            request = request.cached(self.tokens_wanted());
        }
        if waits && ticket == 0 && self.random.u32(..3) == 0 {
            request = request.trying();
        } else if waits {
            request = request.ticket(ticket);
        }
        let answer = self.send(request.script(), &request.args());
        self.hear(name, write, &answer);
    }

    /// Adds a random lease, window, ttl and subscription. A call is valid for half a second.
    fn wishes(&mut self, request: Request, waits: bool) -> Request {
        let random = &mut self.random;
        let mut request = request;
        if waits {
            request = request
                .waiting()
                .window(random.u64(20..400))
                .ttl(random.u64(100..2_000))
                .limit(if random.u32(..20) == 0 { 3 } else { 1_000 });
            request = match random.u32(..4) {
                0 => request.subscribed(HERE),
                1 => request.subscribed("there"),
                _ => request,
            };
        }
        request.lease(random.u64(50..1_500)).not_after(self.lab.now() + 500)
    }

    fn hear(&mut self, name: &str, write: bool, answer: &Answer) {
        let reply = answer.as_ref().unwrap();
        match reply.status.as_str() {
            "granted" | "renewed" | "revoked" if !reply.rest.is_empty() => {
                self.hold(name, write, reply.held());
                if write && reply.rest.len() == 4 {
                    self.own(name, reply.number(0), reply.number(2));
                }
            }
            "queued" => {
                let ticket = reply.number(0);
                self.told.insert(name.into(), Told::Waits { write, ticket });
            }
            // Another call has granted its upgrade.
            "other" => self.hold(name, true, reply.held()),
            "refused" | "cached" | "full" | "stale" | "lost" => {
                self.told.remove(name);
            }
            other => panic!("{other}"),
        }
    }

    fn hold(&mut self, name: &str, write: bool, held: Held) {
        let whose = self.tokens.entry(held.token).or_insert_with(|| name.into());
        assert_eq!(whose, name, "one token for two");
        let mut blocks = self.blocks.iter().filter(|(other, _)| *other != name);
        let in_block = blocks.find(|(_, (first, last))| (*first..=*last).contains(&held.token));
        assert_eq!(in_block, None, "{name} has a token of another's block: {held:?}");
        self.told.insert(name.into(), Told::Holds { write, held });
    }

    /// A cached write that receives the last token owns all tokens from its own to that one.
    fn own(&mut self, name: &str, first: u64, last: u64) {
        let writer = self.lab.state().writer().filter(|writer| writer.rest == id(name));
        if writer.is_none_or(|writer| !matches!(writer.state, 'k' | 'c' | 'b')) {
            return;
        }
        let mut others = self.tokens.range(first..=last).filter(|(_, other)| *other != name);
        assert_eq!(others.next(), None, "{name} owns {first} to {last}");
        self.blocks.insert(name.into(), (first, last));
    }

    fn tokens_wanted(&mut self) -> u64 {
        if self.random.bool() { BLOCK } else { self.random.u64(1..=BLOCK) }
    }

    fn release(&mut self) {
        if let Some((name, _)) = self.any(|_| true) {
            let args = [HERE, &id(&name)].map(String::from);
            self.send_words("release", &args).unwrap();
            self.told.remove(&name);
            // The call may arrive again after the acquisition is gone, which then never acquires
            // again.
            assert_eq!(self.lab.state().reader(&id(&name)).map(|reader| reader.rest), None);
        }
    }

    fn renew(&mut self) {
        if let Some((name, told)) = self.any(|told| matches!(told, Told::Holds { .. })) {
            let Told::Holds { write, held } = told else { unreachable!() };
            let lease = self.random.u64(10..1_500).to_string();
            let (mode, token) = (if write { "w" } else { "r" }, held.token.to_string());
            let mut args = [HERE, &id(&name), &lease, mode, &token].map(String::from).to_vec();
            if self.random.u32(..3) == 0 {
                args.push(self.tokens_wanted().to_string());
            }
            let answer = self.send_words("renew", &args);
            if answer.as_ref().unwrap().status == "lost" {
                assert!(held.deadline <= self.lab.now(), "{name} lost {held:?}");
            }
            self.hear(&name, write, &answer);
        }
    }

    fn downgrade(&mut self) {
        if let Some((name, told)) = self.any(|told| matches!(told, Told::Holds { write: true, .. }))
        {
            let Told::Holds { held, .. } = told else { unreachable!() };
            let mut args =
                [HERE, &id(&name), &held.token.to_string(), "500"].map(String::from).to_vec();
            args.extend(self.random.bool().then(|| "k".to_owned()));
            let answer = self.send_words("downgrade", &args);
            self.hear(&name, false, &answer);
        }
    }

    /// An acquisition takes up the hold of another one, whose client does not learn of it. At times
    /// the ticket was never valid, or no longer is.
    fn take_up(&mut self) {
        if let Some((from, Told::Holds { write, held })) =
            self.any(|told| matches!(told, Told::Holds { .. }))
        {
            self.ids += 1;
            let name = format!("{}{}", self.random.choice(["a", "b", "c"]).unwrap(), self.ids);
            let is_forged = self.random.u32(..5) == 0;
            let token = (held.token + u64::from(is_forged)).to_string();
            let (lease, mode) =
                (self.random.u64(50..1_500).to_string(), if write { "w" } else { "r" });
            let args = [HERE, "0", &id(&name), &lease, mode, &id(&from), &token];
            let answer = self.send_words("take_up", &args.map(String::from));
            let status = &answer.as_ref().unwrap().status;
            assert!(!is_forged || status == "lost", "{answer:?}");
            if status == "granted" {
                self.told.remove(&from);
                assert_eq!(self.tokens.insert(held.token, name.clone()), Some(from));
                self.hear(&name, write, &answer);
            }
        }
    }

    fn upgrade(&mut self) {
        if let Some((name, told)) =
            self.any(|told| matches!(told, Told::Holds { write: false, .. }))
        {
            let Told::Holds { held, .. } = told else { unreachable!() };
            let waits = self.random.bool();
            let request = self.wishes(Request::upgrade(&name, held.token), waits);
            let request = if waits { request.limit(0) } else { request };
            let answer = self.send(request.script(), &request.args());
            let reply = answer.as_ref().unwrap();
            match reply.status.as_str() {
                "granted" => self.hold(&name, true, reply.held()),
                "lost" => {
                    self.told.remove(&name);
                }
                "queued" | "refused" | "conflict" | "revoked" | "stale" => {}
                other => panic!("{other}"),
            }
        }
    }

    fn stop_upgrade(&mut self) {
        if let Some((name, _)) = self.any(|told| matches!(told, Told::Holds { write: false, .. })) {
            let args = [HERE, &id(&name), "wait"].map(String::from);
            let reply = self.send_words("release", &args).unwrap();
            if reply.status == "writing" {
                self.hold(&name, true, reply.held());
            }
        }
    }

    fn revoke(&mut self) {
        self.lab.revoke().unwrap();
    }

    /// Forces an overlap: the holders still believe that they hold, and the model ignores their
    /// side.
    fn force(&mut self) {
        if self.lab.force().unwrap().status == "forced" {
            self.told.retain(|_, told| matches!(told, Told::Waits { .. }));
        }
    }

    /// Repeats an earlier call after others. No caller gets its answer.
    fn repeat(&mut self) {
        if !self.sent.is_empty() {
            let (script, args) = self.sent[self.random.usize(..self.sent.len())].clone();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            if let Err(refusal) = self.lab.send(script, &args) {
                // A read was upgraded meanwhile, or a write downgraded.
                assert_eq!(refusal.code, "LOCKARGS");
                assert!(refusal.detail.contains("mode"), "{refusal:?}");
            }
        }
    }

    fn send(&mut self, script: &'static str, args: &[&str]) -> Answer {
        let words: Vec<String> = args.iter().map(|word| word.to_string()).collect();
        self.send_words(script, &words)
    }

    fn send_words(&mut self, script: &'static str, words: &[String]) -> Answer {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = self.lab.send(script, &args);
        self.sent.push((script, words.to_vec()));
        if self.sent.len() > 20 {
            self.sent.remove(0);
        }
        answer
    }

    fn any(&mut self, which: impl Fn(&Told) -> bool) -> Option<(String, Told)> {
        let all: Vec<(&String, &Told)> = self.told.iter().filter(|(_, told)| which(told)).collect();
        let (name, told) = self.random.choice(all)?;
        Some((name.clone(), *told))
    }

    fn check_told(&mut self) {
        let now = self.lab.now();
        let state = self.lab.state();
        let fence = state.number("fence");
        // A key that is gone takes its fence with it. By then the clock is past the fence.
        assert!(fence >= self.fence || state.fields.is_empty(), "the fence went back");
        assert!(!state.fields.is_empty() || self.fence < self.lab.now_us());
        self.fence = fence.max(self.fence);
        let mut holders = Vec::new();
        for (name, told) in &self.told {
            let Told::Holds { write, held } = told else {
                continue;
            };
            if held.deadline <= now {
                continue;
            }
            holders.push((name, *write));
            let id = id(name);
            let writer = state.writer().filter(|writer| writer.rest == id);
            let record = writer.or_else(|| state.reader(&id));
            let record =
                record.unwrap_or_else(|| panic!("{name} was told {held:?}: {:#?}", state.fields));
            assert!(
                record.deadline >= held.deadline,
                "{name} was told {held:?}, and has {record:?}"
            );
            assert!(record.token >= held.token);
        }
        let writers = holders.iter().filter(|(_, write)| *write).count();
        assert!(writers == 0 || holders.len() == 1, "{holders:?}");
    }

    /// Each waiter is behind a holder.
    fn check_nobody_is_forgotten(&mut self) {
        let state = self.lab.state();
        let (readers, writers) = (state.living_waiters("r"), state.living_waiters("w"));
        if state.writes().is_some() {
            return;
        }
        let reads = state.reads();
        assert!(
            !reads.is_empty() || (readers.is_empty() && writers.is_empty()),
            "{:#?}",
            state.fields
        );
        let upgrader = state.fields.get("upgrader");
        assert!(
            upgrader.is_some() || !writers.is_empty() || readers.is_empty(),
            "{:#?}",
            state.fields
        );
        if let Some(upgrader) = upgrader {
            assert!(reads.len() > 1 || !reads.contains(upgrader), "{:#?}", state.fields);
        }
    }

    /// When all leases and waits have run out, nothing is left.
    fn run_out(&mut self) {
        self.lab.pass(2_000);
        for _ in 0..10 {
            self.lab.pump_dry();
            self.lab.pass(500);
        }
        let end = self.lab.now();
        let state = self.lab.state();
        let is_more = |field: &String| !LEFT_OVER.contains(&field.as_str());
        assert!(!state.raw.keys().any(is_more), "{:#?}", state.raw);
        match self.lab.ends() {
            Some(ends) => assert!(ends <= end + KEEP),
            None => assert!(state.fields.is_empty(), "forever: {:#?}", state.fields),
        }
    }
}
