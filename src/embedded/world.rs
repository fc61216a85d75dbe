//! All servers of an engine, and what they share: the time and the true slot map.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Blob, Failure, Outcome};
use super::cluster::Redirect;
use super::command::{Act, Command};
use super::server::{Role, Server};
use super::session::WaitCovers;
use super::slots::Slots;
use crate::clock::{Clock, ManualClock};
use crate::node::Address;
use crate::slot::Slot;

#[derive(Debug)]
pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    /// What the servers' clocks read at the clock's origin, since 1970.
    pub(super) epoch: Duration,
    /// False for a single server without cluster mode.
    pub(super) is_cluster: bool,
    pub(super) servers: Vec<Server>,
    pub(super) slots: Arc<Slots>,
    pub(super) wait_covers: WaitCovers,
    pub(super) running: Option<Running>,
    pub(super) tally: Tally,
    pub(super) next_connection: u64,
}

/// Where and when a command runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) server: usize,
    /// The server's time in microseconds.
    pub(super) now: u64,
}

/// The script that runs.
#[derive(Debug)]
pub(super) struct Running {
    at: At,
    /// It followed `ASKING`.
    asked: bool,
    /// It has made a write that was not refused for lack of memory. Its later writes are not
    /// refused either.
    wrote: bool,
    calls: u32,
    /// Its first key with that key's slot, so that the slot is not computed for each call.
    home: Option<(Blob, Slot)>,
}

/// How much work scripts have caused: the calls of `redis.call` and `redis.pcall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Scripts that ran.
    pub scripts: u64,
    /// Calls of all scripts.
    pub calls: u64,
    /// Calls of the last script.
    pub last: u32,
    /// Calls of the script that made the most.
    pub most: u32,
}

impl World {
    /// The time since 1970, on the clock of a server that is not off.
    pub(super) fn time(&self) -> Duration {
        self.epoch + self.clock.now().since_origin()
    }

    /// A server's time, in microseconds since 1970.
    pub(super) fn now(&self, server: usize) -> u64 {
        (self.time().as_micros() as u64).saturating_add_signed(self.servers[server].clock_offset)
    }

    pub(super) fn at(&self, server: usize) -> At {
        At { server, now: self.now(server) }
    }

    pub(super) fn find(&self, address: &Address) -> Option<usize> {
        self.servers.iter().position(|server| server.address == *address)
    }

    pub(super) fn masters(&self) -> impl Iterator<Item = usize> {
        let servers = self.servers.iter().enumerate();
        servers.filter_map(|(index, server)| (server.role == Role::Master).then_some(index))
    }

    pub(super) fn replicas_of(&self, master: usize) -> impl Iterator<Item = usize> {
        let replicas = self.servers.iter().enumerate();
        replicas.filter_map(move |(index, server)| {
            (server.role == Role::ReplicaOf(master)).then_some(index)
        })
    }

    /// Finds a client's command, and admits or refuses it.
    pub(super) fn admit(
        &mut self,
        at: At,
        name: &[u8],
        args: &[&[u8]],
        asked: bool,
    ) -> Result<&'static Command, Failure> {
        let command = Command::find(name).ok_or_else(|| unknown(name, args))?;
        if !command.takes(args.len()) {
            let name = command.name.to_ascii_lowercase();
            return Err(Failure::new(format!(
                "ERR wrong number of arguments for '{name}' command"
            )));
        }
        if let Some(refusal) = &self.servers[at.server].refusal {
            return Err(refusal.clone());
        }
        self.servers[at.server].store.begin(at.now / 1000);
        if self.is_cluster {
            let routed =
                self.servers[at.server].route(command.keys(args), command.kind(), asked, None);
            routed.map_err(|redirect| self.tell_client(redirect))?;
        }
        if command.grows && self.servers[at.server].memory_full {
            return Err(Failure::FULL);
        }
        Ok(command)
    }

    /// Runs an admitted command, of a client or of a script.
    pub(super) fn run(&mut self, at: At, act: Act, args: &[&[u8]]) -> Outcome {
        match act {
            Act::Data(act) => act(&mut self.servers[at.server].store, args),
            Act::Server(act) => act(self, at, args),
            Act::Acquiring | Act::Wait | Act::Script(_) => Err(Failure::NOT_IN_SCRIPTS),
        }
    }

    pub(super) fn begin_script(&mut self, at: At, asked: bool, first_key: Option<&[u8]>) {
        self.servers[at.server].store.begin(at.now / 1000);
        self.running = Some(Running {
            at,
            asked,
            wrote: false,
            calls: 0,
            home: first_key.map(|key| (Blob::from_slice(key), Slot::of(key))),
        });
    }

    pub(super) fn end_script(&mut self) {
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
    pub(super) fn call_by_script(&mut self, words: &[&[u8]]) -> Outcome {
        let Some(running) = &mut self.running else {
            return Err(Failure::of("ERR no script runs"));
        };
        running.calls += 1;
        let Some((name, args)) = words.split_first() else {
            return Err(Failure::of(
                "ERR Please specify at least one argument for this redis lib call",
            ));
        };
        let command = Command::find(name)
            .ok_or(Failure::of("ERR Unknown Redis command called from script"))?;
        if !command.takes(args.len()) {
            return Err(Failure::of("ERR Wrong number of args calling Redis command from script"));
        }
        if !command.in_scripts {
            return Err(Failure::NOT_IN_SCRIPTS);
        }
        let at = running.at;
        let server = &mut self.servers[at.server];
        if command.grows && !running.wrote && server.memory_full {
            return Err(Failure::FULL);
        }
        running.wrote |= command.writes;
        if self.is_cluster {
            let home = running.home.as_ref().map(|(key, slot)| (key.as_slice(), *slot));
            server
                .route(command.keys(args), command.kind(), running.asked, home)
                .map_err(Redirect::tell_script)?;
        }
        self.run(at, command.act, args)
    }
}

fn unknown(name: &[u8], args: &[&[u8]]) -> Failure {
    let quoted = |word: &&[u8]| format!("'{}' ", String::from_utf8_lossy(word));
    let args: String = args.iter().map(quoted).collect();
    let name = String::from_utf8_lossy(name);
    Failure::new(format!("ERR unknown command '{name}', with args beginning with: {args}"))
}

impl Answer {
    /// A list of bulk strings.
    pub(super) fn bulks<B: AsRef<[u8]>>(items: impl IntoIterator<Item = B>) -> Answer {
        Answer::List(items.into_iter().map(Answer::bulk).collect())
    }
}
