//! The table of commands: their arguments, where their keys are, and what they do.

use std::collections::HashMap;
use std::sync::LazyLock;

use rustc_hash::FxBuildHasher;

use crate::cluster_state::{ClusterWorld, CommandSite};
use crate::commands::{hash, key, script, server, string};
use crate::keyspace::Keyspace;
use crate::number;
use crate::reply::CommandResult;
use crate::routing::KeyKind;

#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) name: &'static str,
    /// The smallest and the largest number of arguments, without the name.
    pub(crate) args: (usize, usize),
    pub(crate) keys: KeyPositions,
    pub(crate) writes: bool,
    /// It may need more memory, and is refused when memory is full.
    pub(crate) denies_oom: bool,
    pub(crate) allowed_in_scripts: bool,
    pub(crate) handler: CommandHandler,
}

/// Where a command's keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPositions {
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
pub(crate) enum CommandHandler {
    /// Uses the keys alone.
    Store(StoreCommand),
    /// Uses the whole server.
    Server(ServerCommand),
    Script(script::ScriptCommand),
    Asking,
    Wait,
}

type StoreCommand = fn(&mut Keyspace, &[&[u8]]) -> CommandResult;
type ServerCommand = fn(&mut ClusterWorld, CommandSite, &[&[u8]]) -> CommandResult;

/// No limit to the number of arguments.
pub(crate) const ANY_ARITY: usize = usize::MAX;

impl CommandSpec {
    pub(crate) const fn new(
        name: &'static str,
        args: (usize, usize),
        keys: KeyPositions,
        handler: CommandHandler,
    ) -> Self {
        CommandSpec {
            name,
            args,
            keys,
            writes: false,
            denies_oom: false,
            allowed_in_scripts: true,
            handler,
        }
    }

    /// A command that only reads.
    pub(crate) const fn reads(
        name: &'static str,
        args: (usize, usize),
        keys: KeyPositions,
        act: StoreCommand,
    ) -> Self {
        CommandSpec::new(name, args, keys, CommandHandler::Store(act))
    }

    /// A command that writes, but needs no memory.
    pub(crate) const fn writes(
        name: &'static str,
        args: (usize, usize),
        keys: KeyPositions,
        act: StoreCommand,
    ) -> Self {
        CommandSpec { writes: true, ..CommandSpec::reads(name, args, keys, act) }
    }

    /// A command that writes and may need memory.
    pub(crate) const fn may_grow(
        name: &'static str,
        args: (usize, usize),
        act: StoreCommand,
    ) -> Self {
        let writes = CommandSpec::writes(name, args, KeyPositions::First, act);
        CommandSpec { denies_oom: true, ..writes }
    }

    /// A command without keys, on the server or the cluster.
    pub(crate) const fn of_server(
        name: &'static str,
        args: (usize, usize),
        act: ServerCommand,
    ) -> Self {
        CommandSpec::new(name, args, KeyPositions::None, CommandHandler::Server(act))
    }

    pub(crate) const fn not_in_scripts(self) -> Self {
        CommandSpec { allowed_in_scripts: false, ..self }
    }

    /// Finds a command by its name, in any case.
    pub(crate) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
        static BY_NAME: LazyLock<HashMap<&'static [u8], &'static CommandSpec, FxBuildHasher>> =
            LazyLock::new(|| {
                let all = [
                    hash::COMMANDS,
                    key::COMMANDS,
                    script::COMMANDS,
                    server::COMMANDS,
                    string::COMMANDS,
                ];
                let all = all.into_iter().flatten();
                all.map(|command| (command.name.as_bytes(), command)).collect()
            });
        if let Some(command) = BY_NAME.get(name) {
            return Some(command);
        }
        BY_NAME.get(name.to_ascii_uppercase().as_slice()).copied()
    }

    pub(crate) fn accepts_arity(&self, args: usize) -> bool {
        (self.args.0..=self.args.1).contains(&args)
    }

    pub(crate) fn kind(&self) -> KeyKind {
        match self.keys {
            KeyPositions::Channel => KeyKind::Channel,
            _ => KeyKind::Key,
        }
    }

    /// The command's keys among its arguments.
    pub(crate) fn keys<'a, 'b>(&self, args: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
        match self.keys {
            KeyPositions::None => &[],
            KeyPositions::First | KeyPositions::Channel => args.get(..1).unwrap_or_default(),
            KeyPositions::All => args,
            KeyPositions::Counted => {
                let count = args.get(1).and_then(|count| number::parse(count)).unwrap_or(0);
                let count = usize::try_from(count).unwrap_or(0);
                let keys = args.get(2..).unwrap_or_default();
                keys.get(..count).unwrap_or_default()
            }
        }
    }
}
