//! Random calls of many acquisitions, each by what the acquisition was told last. The fixture
//! judges them, and at the end nothing is left.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::fixture::{Answer, BLOCK, HERE, KEEP, Lab, id};
use super::request::Request;

const STEPS: u32 = 2_500;

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
    Holds { write: bool, token: u64 },
}

struct Model {
    lab: Lab,
    random: Rng,
    ids: u32,
    told: BTreeMap<String, Told>,
    /// Calls that were sent, to be sent again later.
    sent: Vec<(&'static str, Vec<String>)>,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            lab: Lab::new(),
            random: Rng::with_seed(seed),
            ids: 0,
            told: BTreeMap::new(),
            sent: Vec::new(),
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
            if self.random.u32(..4) == 0 {
                self.lab.grant_all();
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
            80..83 => self.accept_transfer(),
            83..89 => self.upgrade(),
            89..91 => self.stop_upgrade(),
            91..97 => self.repeat(),
            97 => self.revoke(),
            98 => self.force(),
            _ => {
                self.lab.grant_waiters().unwrap();
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
                self.hold(name, write, reply.held().token);
            }
            "queued" => {
                let ticket = reply.number(0);
                self.told.insert(name.into(), Told::Waits { write, ticket });
            }
            // Another call has granted its upgrade.
            "other" => self.hold(name, true, reply.held().token),
            "busy" | "recalling" | "queue_full" | "too_late" | "not_held" => {
                self.told.remove(name);
            }
            other => panic!("{other}"),
        }
    }

    fn hold(&mut self, name: &str, write: bool, token: u64) {
        self.told.insert(name.into(), Told::Holds { write, token });
    }

    fn tokens_wanted(&mut self) -> u64 {
        if self.random.bool() { BLOCK } else { self.random.u64(1..=BLOCK) }
    }

    fn release(&mut self) {
        if let Some((name, _)) = self.any(|_| true) {
            let args = [HERE, &id(&name)].map(String::from);
            self.send_words("release", &args).unwrap();
            self.told.remove(&name);
        }
    }

    fn renew(&mut self) {
        if let Some((name, told)) = self.any(|told| matches!(told, Told::Holds { .. })) {
            let Told::Holds { write, token } = told else { unreachable!() };
            let lease = self.random.u64(10..1_500).to_string();
            let (mode, token) = (if write { "w" } else { "r" }, token.to_string());
            let mut args = [HERE, &id(&name), &lease, mode, &token].map(String::from).to_vec();
            if self.random.u32(..3) == 0 {
                args.push(self.tokens_wanted().to_string());
            }
            let answer = self.send_words("renew", &args);
            self.hear(&name, write, &answer);
        }
    }

    fn downgrade(&mut self) {
        if let Some((name, told)) = self.any(|told| matches!(told, Told::Holds { write: true, .. }))
        {
            let Told::Holds { token, .. } = told else { unreachable!() };
            let mut args = [HERE, &id(&name), &token.to_string(), "500"].map(String::from).to_vec();
            args.extend(self.random.bool().then(|| "k".to_owned()));
            let answer = self.send_words("downgrade", &args);
            self.hear(&name, false, &answer);
        }
    }

    /// An acquisition takes up the hold of another one, whose client does not learn of it. At times
    /// the ticket was never valid, or no longer is.
    fn accept_transfer(&mut self) {
        if let Some((from, Told::Holds { write, token })) =
            self.any(|told| matches!(told, Told::Holds { .. }))
        {
            self.ids += 1;
            let name = format!("{}{}", self.random.choice(["a", "b", "c"]).unwrap(), self.ids);
            let is_forged = self.random.u32(..5) == 0;
            let token = (token + u64::from(is_forged)).to_string();
            let (lease, mode) =
                (self.random.u64(50..1_500).to_string(), if write { "w" } else { "r" });
            let args = [HERE, "0", &id(&name), &lease, mode, &id(&from), &token];
            let answer = self.send_words("accept_transfer", &args.map(String::from));
            let status = &answer.as_ref().unwrap().status;
            assert!(!is_forged || status == "not_held", "{answer:?}");
            if status == "granted" {
                self.told.remove(&from);
                self.hear(&name, write, &answer);
            }
        }
    }

    fn upgrade(&mut self) {
        if let Some((name, told)) =
            self.any(|told| matches!(told, Told::Holds { write: false, .. }))
        {
            let Told::Holds { token, .. } = told else { unreachable!() };
            let waits = self.random.bool();
            let request = self.wishes(Request::upgrade(&name, token), waits);
            let request = if waits { request.limit(0) } else { request };
            let answer = self.send(request.script(), &request.args());
            let reply = answer.as_ref().unwrap();
            match reply.status.as_str() {
                "granted" => self.hold(&name, true, reply.held().token),
                "not_held" => {
                    self.told.remove(&name);
                }
                "queued" | "busy" | "conflict" | "revoked" | "too_late" => {}
                other => panic!("{other}"),
            }
        }
    }

    fn stop_upgrade(&mut self) {
        if let Some((name, _)) = self.any(|told| matches!(told, Told::Holds { write: false, .. })) {
            let args = [HERE, &id(&name), "wait"].map(String::from);
            let reply = self.send_words("release", &args).unwrap();
            if reply.status == "upgrade_granted" {
                self.hold(&name, true, reply.held().token);
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
        let answer = self.lab.send(script, words);
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

    /// When all leases and waits have run out, nothing is left.
    fn run_out(&mut self) {
        self.lab.pass(2_000);
        for _ in 0..10 {
            self.lab.grant_all();
            self.lab.pass(500);
        }
        let end = self.lab.now();
        let state = self.lab.state();
        assert!(matches!(state.shape(), "" | "F"), "{:#?}", state.stored);
        match self.lab.ends() {
            Some(ends) => assert!(ends <= end + KEEP),
            None => assert!(state.fields.is_empty(), "forever: {:#?}", state.fields),
        }
    }
}
