//! All servers of an engine, and what they share: the time and the true slot map.

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;

use crate::command_spec::{CommandHandler, CommandSpec};
use crate::manual_clock::ManualClock;
use crate::reply::{Blob, CommandResult, ErrorReply, RedisReply};
use crate::routing::{KeyKind, SlotRedirect};
use crate::server::{EmbeddedServer, ServerRole};
use crate::session::WaitSemantics;
use crate::slots::SlotTable;

#[derive(Debug)]
pub(crate) struct ClusterWorld {
    pub(crate) clock: Arc<ManualClock>,
    /// What the servers' clocks read at the clock's origin, since 1970.
    pub(crate) epoch: Duration,
    /// False for a single server without cluster mode.
    pub(crate) is_cluster: bool,
    /// No server serves any slot while one slot has no living master.
    pub(crate) requires_coverage: bool,
    pub(crate) servers: Vec<EmbeddedServer>,
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) wait_covers: WaitSemantics,
    pub(crate) running: Option<RunningScript>,
    pub(crate) tally: ScriptStats,
    pub(crate) next_connection: u64,
}

/// Where and when a command runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandSite {
    pub(crate) server: usize,
    /// The server's time in microseconds.
    pub(crate) now: u64,
}

/// The script that runs.
#[derive(Debug)]
pub(crate) struct RunningScript {
    at: CommandSite,
    /// It followed `ASKING`.
    after_asking: bool,
    /// It has made a write that was not refused for lack of memory. Its later writes are not
    /// refused either.
    wrote: bool,
    calls: u32,
    /// Its first key with that key's slot, so that the slot is not computed for each call.
    first_key: Option<(Blob, Slot)>,
}

/// How much work scripts have caused: the calls of `redis.call` and `redis.pcall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStats {
    /// Scripts that ran.
    pub scripts: u64,
    /// Calls of all scripts.
    pub calls: u64,
    /// Calls of the last script.
    pub last: u32,
    /// Calls of the script that made the most.
    pub most: u32,
}

impl ClusterWorld {
    /// The time since 1970, on the clock of a server that is not off.
    pub(crate) fn time(&self) -> Duration {
        self.epoch + self.clock.now().as_duration()
    }

    /// A server's time, in microseconds since 1970.
    pub(crate) fn now(&self, server: usize) -> u64 {
        (self.time().as_micros() as u64).saturating_add_signed(self.servers[server].clock_offset)
    }

    pub(crate) fn at(&self, server: usize) -> CommandSite {
        CommandSite { server, now: self.now(server) }
    }

    pub(crate) fn find(&self, address: &Address) -> Option<usize> {
        self.servers.iter().position(|server| server.address == *address)
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = usize> {
        let servers = self.servers.iter().enumerate();
        servers.filter_map(|(index, server)| (server.role == ServerRole::Master).then_some(index))
    }

    pub(crate) fn replicas_of(&self, master: usize) -> impl Iterator<Item = usize> {
        let replicas = self.servers.iter().enumerate();
        replicas.filter_map(move |(index, server)| {
            (server.role == ServerRole::ReplicaOf(master)).then_some(index)
        })
    }

    /// Finds a client's command, and admits or refuses it.
    pub(crate) fn check_command(
        &mut self,
        at: CommandSite,
        name: &[u8],
        args: &[&[u8]],
        asked: bool,
    ) -> Result<&'static CommandSpec, ErrorReply> {
        let command = CommandSpec::find(name).ok_or_else(|| unknown(name, args))?;
        if !command.accepts_arity(args.len()) {
            let name = command.name.to_ascii_lowercase();
            return Err(ErrorReply::new(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
        if let Some(refusal) = &self.servers[at.server].refusal {
            return Err(refusal.clone());
        }
        self.servers[at.server].store.begin(at.now / 1000);
        if self.is_cluster {
            let keys = command.keys(args);
            let is_served = keys.is_empty() || command.kind() == KeyKind::Channel;
            if !is_served && !self.servers[at.server].is_isolated && self.lacks_coverage() {
                return Err(self.client_error(SlotRedirect::ClusterDown));
            }
            let routed = self.servers[at.server].route(keys, command.kind(), asked, None);
            routed.map_err(|redirect| self.client_error(redirect))?;
        }
        if command.denies_oom && self.servers[at.server].memory_full {
            return Err(ErrorReply::OUT_OF_MEMORY);
        }
        Ok(command)
    }

    /// Runs an admitted command, of a client or of a script.
    pub(crate) fn run(
        &mut self,
        at: CommandSite,
        act: CommandHandler,
        args: &[&[u8]],
    ) -> CommandResult {
        match act {
            CommandHandler::Store(act) => act(&mut self.servers[at.server].store, args),
            CommandHandler::Server(act) => act(self, at, args),
            CommandHandler::Asking | CommandHandler::Wait | CommandHandler::Script(_) => {
                Err(ErrorReply::NOT_IN_SCRIPTS)
            }
        }
    }

    pub(crate) fn begin_script(&mut self, at: CommandSite, asked: bool, first_key: Option<&[u8]>) {
        self.servers[at.server].store.begin(at.now / 1000);
        self.running = Some(RunningScript {
            at,
            after_asking: asked,
            wrote: false,
            calls: 0,
            first_key: first_key.map(|key| (Blob::from_slice(key), Slot::of(key))),
        });
    }

    pub(crate) fn end_script(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        self.servers[running.at.server].store.end();
        self.tally.scripts += 1;
        self.tally.calls += u64::from(running.calls);
        self.tally.last = running.calls;
        self.tally.most = self.tally.most.max(running.calls);
    }

    /// Runs one `redis.call` of the running script.
    pub(crate) fn call_by_script(&mut self, words: &[&[u8]]) -> CommandResult {
        let Some(running) = &mut self.running else {
            return Err(ErrorReply::from_static("ERR no script is running"));
        };
        running.calls += 1;
        let Some((name, args)) = words.split_first() else {
            return Err(ErrorReply::from_static(
                "ERR Please specify at least one argument for this redis lib call",
            ));
        };
        let command = CommandSpec::find(name)
            .ok_or(ErrorReply::from_static("ERR Unknown Redis command called from script"))?;
        if !command.accepts_arity(args.len()) {
            return Err(ErrorReply::from_static(
                "ERR Wrong number of args calling Redis command from script",
            ));
        }
        if !command.allowed_in_scripts {
            return Err(ErrorReply::NOT_IN_SCRIPTS);
        }
        let at = running.at;
        let server = &mut self.servers[at.server];
        if command.denies_oom && !running.wrote && server.memory_full {
            return Err(ErrorReply::OUT_OF_MEMORY);
        }
        running.wrote |= command.writes;
        if self.is_cluster {
            let home = running.first_key.as_ref().map(|(key, slot)| (key.as_slice(), *slot));
            server
                .route(command.keys(args), command.kind(), running.after_asking, home)
                .map_err(SlotRedirect::script_error)?;
        }
        self.run(at, command.handler, args)
    }
}

fn unknown(name: &[u8], args: &[&[u8]]) -> ErrorReply {
    let quoted = |word: &&[u8]| format!("'{}' ", String::from_utf8_lossy(word));
    let args: String = args.iter().map(quoted).collect();
    let name = String::from_utf8_lossy(name);
    ErrorReply::new(format!("ERR unknown command '{name}', with args beginning with: {args}"))
}

impl RedisReply {
    /// A list of bulk strings.
    pub(crate) fn bulks<B: AsRef<[u8]>>(items: impl IntoIterator<Item = B>) -> RedisReply {
        RedisReply::List(items.into_iter().map(RedisReply::bulk).collect())
    }
}
