//! The table of commands: their arguments, where their keys are, and what they do.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::answer::Outcome;
use super::cluster::Kind;
use super::commands::{hash, key, script, server, text};
use super::hashing::SteadyHash;
use super::number;
use super::store::Store;
use super::world::{At, World};

#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// The smallest and the largest number of arguments, without the name.
    pub(super) args: (usize, usize),
    pub(super) keys: Keys,
    pub(super) writes: bool,
    /// It may need more memory, and is refused when memory is full.
    pub(super) grows: bool,
    pub(super) in_scripts: bool,
    pub(super) act: Act,
}

/// Where a command's keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    First,
    All,
    /// After the script and the number of keys.
    Counted,
    /// A shard channel, which has a slot as a key does.
    Channel,
}

/// What a command does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Uses the keys alone.
    Data(fn(&mut Store, &[&[u8]]) -> Outcome),
    /// Uses the whole server.
    Server(fn(&mut World, At, &[&[u8]]) -> Outcome),
    Script(script::Kind),
    Acquiring,
    Wait,
}

/// No limit to the number of arguments.
pub(super) const MANY: usize = usize::MAX;

impl Command {
    /// A command that only reads.
    pub(super) const fn reads(
        name: &'static str,
        args: (usize, usize),
        keys: Keys,
        act: Act,
    ) -> Self {
        Command { name, args, keys, writes: false, grows: false, in_scripts: true, act }
    }

    /// A command that writes, but needs no memory.
    pub(super) const fn writes(
        name: &'static str,
        args: (usize, usize),
        keys: Keys,
        act: fn(&mut Store, &[&[u8]]) -> Outcome,
    ) -> Self {
        let reads = Command::reads(name, args, keys, Act::Data(act));
        Command { writes: true, ..reads }
    }

    /// A command that writes and may need memory.
    pub(super) const fn grows(
        name: &'static str,
        args: (usize, usize),
        act: fn(&mut Store, &[&[u8]]) -> Outcome,
    ) -> Self {
        let writes = Command::writes(name, args, Keys::First, act);
        Command { grows: true, ..writes }
    }

    pub(super) const fn not_in_scripts(self) -> Self {
        Command { in_scripts: false, ..self }
    }

    /// Finds a command by its name, in any case.
    pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
        static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command, SteadyHash>> =
            LazyLock::new(|| {
                let all = [
                    hash::COMMANDS,
                    key::COMMANDS,
                    script::COMMANDS,
                    server::COMMANDS,
                    text::COMMANDS,
                ];
                let all = all.into_iter().flatten();
                all.map(|command| (command.name.as_bytes(), command)).collect()
            });
        if let Some(command) = BY_NAME.get(name) {
            return Some(command);
        }
        BY_NAME.get(name.to_ascii_uppercase().as_slice()).copied()
    }

    pub(super) fn takes(&self, args: usize) -> bool {
        (self.args.0..=self.args.1).contains(&args)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.keys {
            Keys::Channel => Kind::Channel,
            _ => Kind::Key,
        }
    }

    /// The command's keys among its arguments.
    pub(super) fn keys<'a, 'b>(&self, args: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
        match self.keys {
            Keys::None => &[],
            Keys::First | Keys::Channel => args.get(..1).unwrap_or_default(),
            Keys::All => args,
            Keys::Counted => {
                let count = args.get(1).and_then(|count| number::parse(count)).unwrap_or(0);
                let count = usize::try_from(count).unwrap_or(0);
                let keys = args.get(2..).unwrap_or_default();
                keys.get(..count).unwrap_or_default()
            }
        }
    }
}
