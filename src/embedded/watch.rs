//! Reports an engine's work, for checks that look at every step.

use std::fmt;

use super::store::Fields;
use super::world::World;
use crate::node::Reply;

/// Sees every command that a server has served.
///
/// It is called within the step, so it must not use the engine itself.
pub trait Watcher: Send + 'static {
    /// Called after a server has served this command.
    fn served(&mut self, served: &Served<'_>);
}

impl<F: FnMut(&Served<'_>) + Send + 'static> Watcher for F {
    fn served(&mut self, served: &Served<'_>) {
        self(served);
    }
}

/// The watcher, if there is one.
#[derive(Default)]
pub(super) struct Watching(pub(super) Option<Box<dyn Watcher>>);

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watching").field(&self.0.is_some()).finish()
    }
}

/// A command that was served, and the state after it.
pub struct Served<'a> {
    server: usize,
    now: u64,
    words: &'a [&'a [u8]],
    reply: &'a Reply,
    hash: Option<&'a Fields>,
    expires: Option<u64>,
    calls: u32,
}

impl<'a> Served<'a> {
    pub(super) fn new(
        world: &'a mut World,
        server: usize,
        words: &'a [&'a [u8]],
        reply: &'a Reply,
    ) -> Self {
        let (now, calls) = (world.now(server), world.tally.last);
        let key = match words {
            [command, _, _, key, ..] if command.starts_with(b"EVAL") => Some(key),
            _ => None,
        };
        let store = &mut world.servers[server].store;
        let expires = key.and_then(|key| store.entry(key)?.expires);
        let hash = key.and_then(|key| store.hash(key).ok().flatten());
        Served { server, now, words, reply, hash, expires, calls }
    }

    /// The number of the server.
    pub fn server(&self) -> usize {
        self.server
    }

    /// The server's time, in microseconds since 1970.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The words of the command.
    pub fn words(&self) -> &[&[u8]] {
        self.words
    }

    /// The number of calls that the script made, if the command was a script and it ran.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// When the first key of a script expires, in the server's ms, if it does.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// The reply as words: the elements of a list, or one word for anything else. An error is one
    /// word that begins with `-`.
    pub fn reply(&self) -> Vec<String> {
        words_of(self.reply)
    }

    /// The fields of the first key of a script, if it is a hash.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.hash.into_iter().flatten();
        fields.map(|(field, value)| (field.as_slice(), value.as_slice()))
    }
}

pub(super) fn words_of(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::List(elements) => elements.iter().map(word).collect(),
        other => vec![word(other)],
    }
}

fn word(reply: &Reply) -> String {
    match reply {
        Reply::Nil => String::new(),
        Reply::Int(number) => number.to_string(),
        Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::List(_) => "[..]".into(),
        Reply::Error(error) => format!("-{error}"),
    }
}

impl fmt::Debug for Served<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        f.debug_struct("Served")
            .field("server", &self.server)
            .field("words", &words)
            .field("reply", &self.reply())
            .finish_non_exhaustive()
    }
}
