//! Counts the messages on the wire, and the servers' answers.

use std::collections::HashMap;
use std::ops::{AddAssign, Index, IndexMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::{
    CommandObserver, Delivery, MessageKind, NetworkMessage, NetworkModel, ServedCommand,
};

/// The one-way delay of a message.
pub const LATENCY: Duration = Duration::from_micros(250);

/// The kinds of messages that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedMessage {
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

const KINDS: usize = CountedMessage::Error as usize + 1;

/// The counts of one server, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts([u64; KINDS]);

/// The counts of each server.
#[derive(Clone, Debug)]
pub struct ServerCounts {
    servers: Vec<Counts>,
}

impl ServerCounts {
    pub fn all(&self, sent: CountedMessage) -> u64 {
        self.servers.iter().map(|server| server[sent]).sum()
    }

    /// The highest count of one server.
    pub fn most(&self, sent: CountedMessage) -> u64 {
        self.servers.iter().map(|server| server[sent]).max().unwrap_or(0)
    }

    pub fn at(&self, server: usize, sent: CountedMessage) -> u64 {
        self.servers[server][sent]
    }
}

impl Index<CountedMessage> for Counts {
    type Output = u64;

    fn index(&self, sent: CountedMessage) -> &u64 {
        &self.0[sent as usize]
    }
}

impl IndexMut<CountedMessage> for Counts {
    fn index_mut(&mut self, sent: CountedMessage) -> &mut u64 {
        &mut self.0[sent as usize]
    }
}

/// Clones share the counts.
#[derive(Clone)]
pub struct MessageCounter {
    counts: Arc<Mutex<Vec<Counts>>>,
    /// The names of the scripts, by digest.
    names: Arc<HashMap<Vec<u8>, &'static str>>,
}

impl MessageCounter {
    pub fn new(servers: usize) -> MessageCounter {
        let names = rwlease::scripts().map(|it| (it.digest().as_bytes().to_vec(), it.name()));
        MessageCounter {
            counts: Arc::new(Mutex::new(vec![Counts::default(); servers])),
            names: Arc::new(names.collect()),
        }
    }

    pub fn take(&self) -> ServerCounts {
        let mut counts = self.counts.lock().unwrap();
        let none = vec![Counts::default(); counts.len()];
        ServerCounts { servers: std::mem::replace(&mut counts, none) }
    }

    fn count(&self, server: usize, sent: CountedMessage) {
        self.counts.lock().unwrap()[server][sent].add_assign(1);
    }

    fn script(&self, digest: &[u8], key: &[u8]) -> CountedMessage {
        let name = self.names.get(digest).copied().unwrap_or_default();
        match (key.get(PREFIX.len()..).and_then(|name| name.first()), name) {
            (Some(b's'), "acquire_write") => CountedMessage::Take,
            (Some(b's'), "release") => CountedMessage::GiveBack,
            (Some(b'h'), "acquire_write") => CountedMessage::First,
            (Some(b'h'), "renew") => CountedMessage::Renew,
            (Some(b'c'), "acquire_write") => CountedMessage::Wait,
            (Some(b'c'), "release") => CountedMessage::HandOver,
            (Some(b'c'), "renew") => CountedMessage::Claim,
            _ => CountedMessage::Other,
        }
    }
}

/// The prefix of the keys of locks.
pub const PREFIX: &str = "rwlease:";

impl CommandObserver for MessageCounter {
    fn on_command(&mut self, served: &ServedCommand<'_>) {
        let server = served.server();
        let reply = served.reply();
        if let Some(error) = reply.first().and_then(|word| word.strip_prefix('-')) {
            let sent = match error.split(' ').next() {
                Some("MOVED") => CountedMessage::Moved,
                Some("ASK") => CountedMessage::Ask,
                Some("NOSCRIPT") => CountedMessage::NoScript,
                _ => CountedMessage::Error,
            };
            return self.count(server, sent);
        }
        match served.words() {
            [b"EVALSHA", digest, _, key, ..] => self.count(server, self.script(digest, key)),
            [b"EVAL", ..] => self.count(server, CountedMessage::Text),
            [b"TIME"] => self.count(server, CountedMessage::Time),
            [b"CLUSTER", b"SLOTS"] => self.count(server, CountedMessage::Map),
            _ => {}
        }
    }
}

/// A network in which every message has the same delay, and none is lost.
pub struct FixedLatency(pub MessageCounter);

impl NetworkModel for FixedLatency {
    fn deliver(&self, message: &NetworkMessage<'_>) -> Delivery {
        match message.kind {
            MessageKind::Dial => self.0.count(message.server, CountedMessage::Dial),
            MessageKind::Subscribe => self.0.count(message.server, CountedMessage::Subscribe),
            MessageKind::Push => self.0.count(message.server, CountedMessage::Notice),
            _ => {}
        }
        Delivery { request_delay: LATENCY, reply_delay: LATENCY, ..Delivery::default() }
    }
}
