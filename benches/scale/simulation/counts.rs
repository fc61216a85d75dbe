//! Counts the messages on the wire, and the servers' answers.

use std::collections::HashMap;
use std::ops::{AddAssign, Index, IndexMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::{Fate, Kind, Message, Served, Watcher, Weather};

/// The one-way delay of a message.
pub const LATENCY: Duration = Duration::from_micros(250);

/// The kinds of messages that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// An acquire of an uncontended lock.
    Take,
    /// Its release.
    GiveBack,
    /// The acquire of a lock that is held all the time.
    First,
    /// A renewal of its lease.
    Renew,
    /// A request for a contended lock, to join the queue or as a poll.
    Wait,
    /// Its release.
    HandOver,
    /// The claim of its next holder.
    Claim,
    /// Any other script.
    Other,
    /// A script that is sent with its text.
    Text,
    /// A dial, of either kind.
    Dial,
    /// The first command on a connection for commands.
    Time,
    /// `CLUSTER SLOTS`.
    Map,
    /// `SSUBSCRIBE` and `SUNSUBSCRIBE`, and the one query of each connection for subscriptions.
    Subscribe,
    /// Confirmations and messages of subscriptions.
    Notice,
    Moved,
    Ask,
    NoScript,
    /// Any other error.
    Error,
}

const KINDS: usize = Sent::Error as usize + 1;

/// The counts of one server, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts([u64; KINDS]);

/// The counts of each server.
#[derive(Clone, Debug)]
pub struct Counted {
    servers: Vec<Counts>,
}

impl Counted {
    pub fn all(&self, sent: Sent) -> u64 {
        self.servers.iter().map(|server| server[sent]).sum()
    }

    /// The highest count of one server.
    pub fn most(&self, sent: Sent) -> u64 {
        self.servers.iter().map(|server| server[sent]).max().unwrap_or(0)
    }

    pub fn at(&self, server: usize, sent: Sent) -> u64 {
        self.servers[server][sent]
    }
}

impl Index<Sent> for Counts {
    type Output = u64;

    fn index(&self, sent: Sent) -> &u64 {
        &self.0[sent as usize]
    }
}

impl IndexMut<Sent> for Counts {
    fn index_mut(&mut self, sent: Sent) -> &mut u64 {
        &mut self.0[sent as usize]
    }
}

/// Clones share the counts.
#[derive(Clone)]
pub struct Counter {
    counts: Arc<Mutex<Vec<Counts>>>,
    /// The names of the scripts, by digest.
    names: Arc<HashMap<Vec<u8>, &'static str>>,
}

impl Counter {
    pub fn new(servers: usize) -> Counter {
        let names = rwlease::scripts().map(|it| (it.digest().as_bytes().to_vec(), it.name()));
        Counter {
            counts: Arc::new(Mutex::new(vec![Counts::default(); servers])),
            names: Arc::new(names.collect()),
        }
    }

    pub fn take(&self) -> Counted {
        let mut counts = self.counts.lock().unwrap();
        let none = vec![Counts::default(); counts.len()];
        Counted { servers: std::mem::replace(&mut counts, none) }
    }

    fn count(&self, server: usize, sent: Sent) {
        self.counts.lock().unwrap()[server][sent].add_assign(1);
    }

    fn script(&self, digest: &[u8], key: &[u8]) -> Sent {
        let name = self.names.get(digest).copied().unwrap_or_default();
        match (key.get(PREFIX.len()..).and_then(|name| name.first()), name) {
            (Some(b's'), "acquire_write") => Sent::Take,
            (Some(b's'), "release") => Sent::GiveBack,
            (Some(b'h'), "acquire_write") => Sent::First,
            (Some(b'h'), "renew") => Sent::Renew,
            (Some(b'c'), "acquire_write") => Sent::Wait,
            (Some(b'c'), "release") => Sent::HandOver,
            (Some(b'c'), "renew") => Sent::Claim,
            _ => Sent::Other,
        }
    }
}

/// The prefix of the keys of locks.
pub const PREFIX: &str = "rwlease:";

impl Watcher for Counter {
    fn served(&mut self, served: &Served<'_>) {
        let server = served.server();
        let reply = served.reply();
        if let Some(error) = reply.first().and_then(|word| word.strip_prefix('-')) {
            let sent = match error.split(' ').next() {
                Some("MOVED") => Sent::Moved,
                Some("ASK") => Sent::Ask,
                Some("NOSCRIPT") => Sent::NoScript,
                _ => Sent::Error,
            };
            return self.count(server, sent);
        }
        match served.words() {
            [b"EVALSHA", digest, _, key, ..] => self.count(server, self.script(digest, key)),
            [b"EVAL", ..] => self.count(server, Sent::Text),
            [b"TIME"] => self.count(server, Sent::Time),
            [b"CLUSTER", b"SLOTS"] => self.count(server, Sent::Map),
            _ => {}
        }
    }
}

/// A network in which every message has the same delay, and none is lost.
pub struct Wire(pub Counter);

impl Weather for Wire {
    fn sent(&self, message: &Message<'_>) -> Fate {
        match message.kind {
            Kind::Dial => self.0.count(message.server, Sent::Dial),
            Kind::Subscribe => self.0.count(message.server, Sent::Subscribe),
            Kind::Notice => self.0.count(message.server, Sent::Notice),
            _ => {}
        }
        Fate { there: LATENCY, back: LATENCY, ..Fate::default() }
    }
}
