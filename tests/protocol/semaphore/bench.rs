//! A semaphore on a real server.

use std::collections::BTreeMap;

use super::super::fixture::{Answer, Expect, HERE, Lab, TAG, id};

pub struct Bench {
    pub lab: Lab,
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
    /// The waiters in order.
    pub queue: Vec<String>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { lab: Lab::new() }
    }

    /// A semaphore of ten permits, of which ann holds so many.
    #[track_caller]
    pub fn with_ann(permits: u64) -> Bench {
        let mut bench = Bench::new();
        bench.take("ann1", permits).granted();
        bench
    }

    /// A bench without the fast paths.
    pub fn slow_path() -> Bench {
        let mut bench = Bench::new();
        bench.lab.slow_path = true;
        bench
    }

    #[track_caller]
    pub fn send(&mut self, script: &str, args: &[impl AsRef<str>]) -> Answer {
        self.lab.send(&format!("semaphore/{script}"), args)
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
        self.lab.state().record(id).map(|record| (record.permits, record.token))
    }

    /// Renews what its client believes that it has.
    #[track_caller]
    pub fn renew_as(&mut self, name: &str, lease: u64, permits: u64, token: u64) -> Answer {
        let [lease, permits, token] = [lease, permits, token].map(|number| number.to_string());
        self.send("renew", &[HERE, &id(name), &lease, &permits, &token])
    }

    #[track_caller]
    pub fn release_permits(&mut self, name: &str, keep: u64) -> Answer {
        self.send("release_permits", &[HERE, &id(name), &keep.to_string()])
    }

    #[track_caller]
    pub fn set_limit(&mut self, expected: u64, limit: u64) -> Answer {
        self.send("set_limit", &[HERE, "0", &expected.to_string(), &limit.to_string()])
    }

    pub fn inspect(&mut self) -> Answer {
        self.send("inspect", &[HERE, "0", "-", "100"])
    }

    /// The permits by their holders, including holders whose lease is over.
    pub fn held(&mut self) -> BTreeMap<String, u64> {
        let readers = self.lab.state().readers.into_iter();
        readers.map(|(id, record)| (id, record.permits)).collect()
    }

    /// What is stored. `None` without a key.
    pub fn state(&mut self) -> Option<State> {
        let hash = self.lab.state();
        let mut fields = hash.stored.clone();
        fields.remove("s")?;
        assert_eq!(hash.shape(), "P");
        Some(State {
            life: hash.number("life"),
            token: hash.number("fence"),
            least: hash.number("read_min"),
            flags: hash.number("flags"),
            limit: hash.number("limit"),
            used: hash.number("used"),
            holders: hash.number("readers"),
            queue: hash.queue_ids('p'),
            fields,
        })
    }
}

/// The limit that the call returned.
#[track_caller]
pub fn told_limit(answer: &Answer) -> u64 {
    assert_eq!(answer.status(), "limit_mismatch", "{answer:?}");
    answer.as_ref().unwrap().number(0)
}
