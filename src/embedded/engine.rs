//! The handle of an engine, and its builder.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;

use super::answer::{Failure, OK};
use super::command::Act;
use super::commands::script::Stage;
use super::connection::EmbeddedConnector;
use super::faults::Faults;
use super::lock;
use super::script_host::ScriptHost;
use super::server::{Role, Server};
use super::session::{Session, WaitCovers};
use super::slots::Slots;
use super::watch::{self, Served, Watcher, Watching};
use super::world::{Tally, World};
use crate::clock::{Clock, ManualClock};
use crate::health::ClientHealth;
use crate::node::{Address, Command, Connector, Reply};

/// The servers' clocks start at 1 January 2025.
const EPOCH: Duration = Duration::from_secs(1_735_689_600);

/// A cluster of servers in this process, which runs the same scripts as a real one.
///
/// Use it under [`Locks`](crate::Locks) in demos and unit tests: it starts no servers, sends
/// nothing over a network, and its time can be moved by hand. A clone is another handle of the same
/// engine. [`faults`](Engine::faults) is for tests of failures and for simulations.
///
/// ```
/// use std::time::Duration;
/// use rwlease::embedded::Engine;
///
/// let engine = Engine::new();
/// let before = engine.now();
/// engine.advance(Duration::from_secs(30));
/// assert!(engine.now() >= before + Duration::from_secs(30));
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
}

/// Builds an [`Engine`].
#[derive(Clone, Debug)]
#[must_use = "it builds nothing until `build` is called"]
pub struct Builder {
    masters: usize,
    replicas: usize,
    is_cluster: bool,
    has_manual_time: bool,
    epoch: Duration,
    wait_covers: WaitCovers,
    beside: Option<Engine>,
}

/// What all handles and connections share. Lock order: the host first. No script runs while another
/// thread holds the host.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Mutex<ScriptHost>,
    pub(super) world: Arc<Mutex<World>>,
    pub(super) watcher: Mutex<Watching>,
}

impl Engine {
    /// A cluster of three masters with one replica each. Its time follows tokio's.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder, for an engine of another size or with time that is moved by hand.
    pub fn builder() -> Builder {
        Builder {
            masters: 3,
            replicas: 1,
            is_cluster: true,
            has_manual_time: false,
            epoch: EPOCH,
            wait_covers: WaitCovers::default(),
            beside: None,
        }
    }

    /// Moves time forward, for the servers and for the clients, and wakes everything that sleeps
    /// until then.
    pub fn advance(&self, by: Duration) {
        let clock = lock(&self.shared.world).clock.clone();
        clock.advance(by);
    }

    /// The time of the servers' clocks, since 1970.
    pub fn now(&self) -> Duration {
        lock(&self.shared.world).time()
    }

    /// The number of keys on all masters.
    pub fn keys(&self) -> usize {
        let _turn = lock(&self.shared.host);
        let mut world = lock(&self.shared.world);
        let masters: Vec<_> = world.masters().collect();
        let keys = masters.into_iter().map(|master| {
            let now = world.now(master) / 1000;
            let store = &mut world.servers[master].store;
            store.begin(now);
            store.len()
        });
        keys.sum()
    }

    /// How long until the next sleeper on the engine's clock wakes, or `None` if nothing sleeps.
    /// For simulations, which move time there when nothing else can happen.
    pub fn until_next_wake(&self) -> Option<Duration> {
        let clock = lock(&self.shared.world).clock.clone();
        let next = clock.next_wake()?;
        Some(next.since(clock.now()))
    }

    /// Sends one command directly to a server, without a network, and returns the reply in the form
    /// of [`Served::reply`]. For tests.
    #[doc(hidden)]
    pub fn say(&self, server: usize, words: &[&[u8]]) -> Vec<String> {
        let command = words.iter().fold(Command::new(), |command, word| command.word(word));
        watch::words_of(&self.query(server, &command))
    }

    /// Sets the watcher that sees every command that a server has served. It replaces the one
    /// before.
    pub fn watch(&self, watcher: impl Watcher) {
        lock(&self.shared.watcher).0 = Some(Box::new(watcher));
    }

    /// The faults of the servers, for tests.
    pub fn faults(&self) -> Faults {
        Faults::new(self.shared.clone())
    }

    /// How many calls scripts have made since the last [`reset_tally`](Engine::reset_tally).
    pub fn tally(&self) -> Tally {
        lock(&self.shared.world).tally
    }

    /// Resets the [`tally`](Engine::tally) to zero.
    pub fn reset_tally(&self) {
        lock(&self.shared.world).tally = Tally::default();
    }

    /// Connects to the servers.
    pub(crate) fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(EmbeddedConnector(self.shared.clone(), ClientHealth::default()))
    }

    /// The number of the server at an address.
    pub(super) fn find(&self, address: &Address) -> Option<usize> {
        lock(&self.shared.world).find(address)
    }

    /// The clients' clock.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        lock(&self.shared.world).clock.clone()
    }

    /// The addresses of the servers, by number: the masters first.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let world = lock(&self.shared.world);
        world.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// Sends a command to a server, as over a connection of its own.
    pub(crate) fn query(&self, server: usize, command: &Command) -> Reply {
        let mut host = lock(&self.shared.host);
        self.shared.serve(&mut host, server, &Session::default(), command)
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("servers", &self.addresses().len()).finish_non_exhaustive()
    }
}

impl Builder {
    /// The number of masters, from 1 to 1,000. Default: 3.
    pub fn masters(mut self, masters: u16) -> Self {
        self.masters = usize::from(masters).clamp(1, 1000);
        self
    }

    /// The number of replicas of each master, at most ten. Default: 1. A master without a replica
    /// can still fail over: its successor then has its address.
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = usize::from(replicas).min(10);
        self
    }

    /// Makes a single server, without cluster mode and without replicas.
    pub fn standalone(mut self) -> Self {
        self.is_cluster = false;
        self
    }

    /// Makes time stand still except for [`Engine::advance`]: two runs that do the same are the
    /// same.
    pub fn manual_time(mut self) -> Self {
        self.has_manual_time = true;
        self
    }

    /// The initial time of the servers' clocks, since 1970. Default: the beginning of 2025.
    pub fn starts_at(mut self, epoch: Duration) -> Self {
        self.epoch = epoch;
        self
    }

    /// Which writes `WAIT` covers; server versions differ. Default: as up to Redis 7.0.
    pub fn wait_covers(mut self, covers: WaitCovers) -> Self {
        self.wait_covers = covers;
        self
    }

    /// Makes servers at the same addresses as those of `engine`, with other node ids and with its
    /// time. For simulations in which [an address passes to another
    /// server](super::Network::lead_to).
    pub fn beside(mut self, engine: &Engine) -> Self {
        self.beside = Some(engine.clone());
        self
    }

    /// Builds the engine.
    pub fn build(mut self) -> Engine {
        if !self.is_cluster {
            (self.masters, self.replicas) = (1, 0);
        }
        let clock = match (&self.beside, self.has_manual_time) {
            (Some(engine), _) => lock(&engine.shared.world).clock.clone(),
            (None, true) => Arc::new(ManualClock::still()),
            (None, false) => Arc::new(ManualClock::running()),
        };
        let whose = if self.beside.is_some() { "another's " } else { "" };
        let slots = Arc::new(Slots::shared_out(self.masters));
        let servers = self.roles().enumerate().map(|(index, role)| {
            let address = Address { host: "embedded".into(), port: FIRST_PORT + index as u16 };
            Server::new(index, address, whose, role, slots.clone())
        });
        let world = World {
            clock,
            epoch: self.epoch,
            is_cluster: self.is_cluster,
            servers: servers.collect(),
            slots: slots.clone(),
            wait_covers: self.wait_covers,
            running: None,
            tally: Tally::default(),
            next_connection: 0,
        };
        let world = Arc::new(Mutex::new(world));
        let host = Mutex::new(ScriptHost::new(world.clone()));
        Engine { shared: Arc::new(Shared { host, world, watcher: Mutex::default() }) }
    }

    /// The masters first, then the first replica of each, and so on.
    fn roles(&self) -> impl Iterator<Item = Role> {
        let masters = std::iter::repeat_n(Role::Master, self.masters);
        let replicas = (0..self.masters).map(Role::ReplicaOf).cycle();
        masters.chain(replicas.take(self.masters * self.replicas))
    }
}

const FIRST_PORT: u16 = 7000;

impl Shared {
    /// Serves one command of a client.
    pub(super) fn serve(
        &self,
        host: &mut ScriptHost,
        server: usize,
        session: &Session,
        command: &Command,
    ) -> Reply {
        let words: SmallVec<[&[u8]; 16]> = command.iter().collect();
        let before = lock(&self.world).servers[server].store.offset();
        let reply = self.answer(host, server, session, &words);
        {
            let world = lock(&self.world);
            session.end_command(world.wait_covers, before, world.servers[server].store.offset());
        }
        if let Some(watcher) = &mut lock(&self.watcher).0 {
            let mut world = lock(&self.world);
            let served = Served::new(&mut world, server, &words, &reply);
            watcher.served(&served);
        }
        reply
    }

    fn answer(
        &self,
        host: &mut ScriptHost,
        server: usize,
        session: &Session,
        words: &[&[u8]],
    ) -> Reply {
        let Some((name, args)) = words.split_first() else {
            return Failure::of("ERR empty command").into();
        };
        let asked = session.take_asking();
        let mut world = lock(&self.world);
        let at = world.at(server);
        let command = match world.admit(at, name, args, asked) {
            Ok(command) => command,
            Err(failure) => {
                world.servers[server].store.end();
                return failure.into();
            }
        };
        if let Act::Script(kind) = command.act {
            drop(world);
            let mut stage = Stage { host, world: &self.world, at, asked };
            return stage.run(kind, args).unwrap_or_else(Reply::from);
        }
        let outcome = match command.act {
            Act::Acquiring if !world.is_cluster => Err(Failure::NO_CLUSTER),
            Act::Acquiring => {
                session.set_asking();
                Ok(OK)
            }
            Act::Wait => world.wait(at, args, session.covered()),
            act => world.run(at, act, args),
        };
        world.servers[server].store.end();
        outcome.into()
    }
}
