//! A request for a lock: an acquire or an upgrade, with all its arguments.

use super::lab::{HERE, id};

#[derive(Clone, Debug)]
pub struct Request {
    script: &'static str,
    args: Vec<String>,
}

const NOT_AFTER: usize = 1;
const LEASE: usize = 3;
const FAIRNESS: usize = 4;
const WINDOW: usize = 5;
const LIVENESS: usize = 6;
const TICKET: usize = 7;
const LIMIT: usize = 8;
const NODE: usize = 9;

impl Request {
    /// To read now or not at all, for a lease of ten seconds.
    pub fn read(name: &str) -> Request {
        Request::new("acquire_read", name, "f".into())
    }

    pub fn write(name: &str) -> Request {
        Request::new("acquire_write", name, "f".into())
    }

    pub fn upgrade(name: &str, token: u64) -> Request {
        Request::new("upgrade", name, token.to_string())
    }

    fn new(script: &'static str, name: &str, fifth: String) -> Request {
        let args = [HERE.into(), "0".into(), id(name), "10000".into(), fifth];
        Request { script, args: args.into() }
    }

    /// Or to wait: a claim window of one second, a ttl of five, by polling.
    pub fn waiting(mut self) -> Request {
        self.args.truncate(WINDOW);
        self.args.extend(["1000", "5000", "0", "1000", "-", "-"].map(String::from));
        if self.script == "upgrade" {
            self = self.set(LIMIT, 0);
        }
        self
    }

    /// The waiter polls once more.
    pub fn ticket(self, ticket: u64) -> Request {
        self.set(TICKET, ticket)
    }

    pub fn lease(self, ms: u64) -> Request {
        self.set(LEASE, ms)
    }

    pub fn window(self, ms: u64) -> Request {
        self.set(WINDOW, ms)
    }

    pub fn ttl(self, ms: u64) -> Request {
        self.set(LIVENESS, ms)
    }

    pub fn limit(self, waiters: u64) -> Request {
        self.set(LIMIT, waiters)
    }

    pub fn not_after(self, ms: u64) -> Request {
        self.set(NOT_AFTER, ms)
    }

    pub fn readers_first(self) -> Request {
        self.set(FAIRNESS, "r")
    }

    /// Subscribed at this server, under the tag `0`.
    pub fn subscribed(self, node: &str) -> Request {
        self.set(NODE, node).set(NODE + 1, "0")
    }

    /// Any argument, by its number in ARGV.
    pub fn arg(self, number: usize, value: &str) -> Request {
        self.set(number - 1, value)
    }

    fn set(mut self, at: usize, value: impl ToString) -> Request {
        self.args[at] = value.to_string();
        self
    }

    pub fn script(&self) -> &'static str {
        self.script
    }

    pub fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }
}
