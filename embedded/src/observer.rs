//! Reports an engine's work, for checks that look at every step.

use std::fmt;

use rwlease_core::resp::RespValue;

use crate::cluster_state::ClusterWorld;
use crate::keyspace::Fields;

/// Sees every command that a server has served.
///
/// It is called within the step, so it must not use the engine itself.
pub trait CommandObserver: Send + 'static {
    /// Called after a server has served this command.
    fn on_command(&mut self, served: &ServedCommand<'_>);
}

impl<F: FnMut(&ServedCommand<'_>) + Send + 'static> CommandObserver for F {
    fn on_command(&mut self, served: &ServedCommand<'_>) {
        self(served);
    }
}

/// The watcher, if there is one.
#[derive(Default)]
pub(crate) struct ObserverSlot(pub(crate) Option<Box<dyn CommandObserver>>);

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObserverSlot").field(&self.0.is_some()).finish()
    }
}

/// A command that was served, and the state after it.
pub struct ServedCommand<'a> {
    server: usize,
    now: u64,
    words: &'a [&'a [u8]],
    reply: &'a RespValue,
    hash: Option<&'a Fields>,
    expires: Option<u64>,
    calls: u32,
}

impl<'a> ServedCommand<'a> {
    pub(crate) fn new(
        world: &'a mut ClusterWorld,
        server: usize,
        words: &'a [&'a [u8]],
        reply: &'a RespValue,
    ) -> Self {
        let (now, calls) = (world.now(server), world.tally.last);
        let key = match words {
            [command, _, _, key, ..] if command.starts_with(b"EVAL") => Some(key),
            _ => None,
        };
        let store = &mut world.servers[server].store;
        let expires = key.and_then(|key| store.entry(key)?.expires_at);
        let hash = key.and_then(|key| store.hash(key).ok().flatten());
        ServedCommand { server, now, words, reply, hash, expires, calls }
    }

    /// Returns the number of the server.
    pub fn server(&self) -> usize {
        self.server
    }

    /// Returns the server's time, in microseconds since 1970.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the words of the command.
    pub fn words(&self) -> &[&[u8]] {
        self.words
    }

    /// Returns the number of calls that the script made, if the command was a script and it ran.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Returns when the first key of a script expires, in the server's ms, if it does.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Returns the reply as words: the elements of a list, or one word for anything else. An error
    /// is one word that begins with `-`.
    pub fn reply(&self) -> Vec<String> {
        reply_words(self.reply)
    }

    /// Returns the fields of the first key of a script, if it is a hash.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.hash.into_iter().flatten();
        fields.map(|(field, value)| (field.as_slice(), value.as_slice()))
    }
}

pub(crate) fn reply_words(reply: &RespValue) -> Vec<String> {
    match reply {
        RespValue::Array(elements) => elements.iter().map(word).collect(),
        other => vec![word(other)],
    }
}

fn word(reply: &RespValue) -> String {
    match reply {
        RespValue::Nil => String::new(),
        RespValue::Int(number) => number.to_string(),
        RespValue::String(text) => String::from_utf8_lossy(text).into_owned(),
        RespValue::Array(_) => "[..]".into(),
        RespValue::Error(error) => format!("-{error}"),
    }
}

impl fmt::Debug for ServedCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        f.debug_struct("ServedCommand")
            .field("server", &self.server)
            .field("words", &words)
            .field("reply", &self.reply())
            .finish_non_exhaustive()
    }
}
