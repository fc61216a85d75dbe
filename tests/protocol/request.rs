//! A request for a lock: an acquire or an upgrade, with all its arguments.

use super::fixture::{HERE, TAG, id};

#[derive(Clone, Debug)]
pub struct Request {
    script: &'static str,
    args: Vec<String>,
    /// The index of its place, if it waits.
    at: usize,
    /// Its claim window, its ttl, the most waiters, and its server.
    place: [String; 4],
}

const NOT_AFTER: usize = 1;
const LEASE: usize = 3;
const FLAGS: usize = 4;
const TOKENS: usize = 5;
const WINDOW: usize = 0;
const TTL: usize = 1;
const LIMIT: usize = 2;
const NODE: usize = 3;

impl Request {
    /// A try to read, for a lease of ten seconds.
    pub fn read(name: &str) -> Request {
        Request::new("acquire_read", name, &["f", "1"])
    }

    pub fn write(name: &str) -> Request {
        Request::new("acquire_write", name, &["f", "1"])
    }

    pub fn upgrade(name: &str, token: u64) -> Request {
        Request::new("upgrade", name, &[&token.to_string()])
    }

    fn new(script: &'static str, name: &str, of_its_own: &[&str]) -> Request {
        let mut args: Vec<String> = vec![HERE.into(), "0".into(), id(name), "10000".into()];
        args.extend(of_its_own.iter().chain([&TAG]).map(|word| word.to_string()));
        let limit = if script == "upgrade" { "0" } else { "1000" };
        let place = ["1000", "5000", limit, "-"].map(String::from);
        Request { script, at: args.len(), args, place }
    }

    /// Lets it wait, with a claim window of one second and a ttl of five, by polling.
    pub fn waiting(mut self) -> Request {
        self.args.truncate(self.at);
        self.args.push(self.place.join(" "));
        self
    }

    /// Makes it a later poll. (No waiter has ticket 0, which means the first call.)
    pub fn ticket(mut self, ticket: u64) -> Request {
        self.args.truncate(self.at + 1);
        self.args.extend((ticket > 0).then(|| ticket.to_string()));
        self
    }

    pub fn lease(self, ms: u64) -> Request {
        self.set(LEASE, ms)
    }

    pub fn window(self, ms: u64) -> Request {
        self.set_place(WINDOW, ms)
    }

    pub fn ttl(self, ms: u64) -> Request {
        self.set_place(TTL, ms)
    }

    pub fn limit(self, waiters: u64) -> Request {
        self.set_place(LIMIT, waiters)
    }

    pub fn not_after(self, ms: u64) -> Request {
        self.set(NOT_AFTER, ms)
    }

    pub fn readers_first(self) -> Request {
        let flags = format!("r{}", &self.args[FLAGS][1..]);
        self.set(FLAGS, flags)
    }

    /// Requests a cached hold with this many tokens.
    pub fn cached(self, tokens: u64) -> Request {
        let flags = self.args[FLAGS].replacen(['f', 'r'], "", 1);
        let fairness = self.args[FLAGS][..1].to_owned();
        self.set(FLAGS, format!("{fairness}k{flags}")).set(TOKENS, tokens)
    }

    /// Makes it a try that waits if only cached holders block it.
    pub fn trying(self) -> Request {
        let mut request = self.waiting();
        request.args[FLAGS].push('t');
        request
    }

    /// Subscribed at this server.
    pub fn subscribed(self, node: &str) -> Request {
        self.set_place(NODE, node)
    }

    /// With channels of this tag.
    pub fn tagged(self, tag: &str) -> Request {
        let at = self.at - 1;
        self.set(at, tag)
    }

    fn set_place(mut self, part: usize, value: impl ToString) -> Request {
        self.place[part] = value.to_string();
        let (at, place) = (self.at, self.place.join(" "));
        self.set(at, place)
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
