//! The handle of an engine, and its builder.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease_core::resp::{Address, Command, RespValue};
use smallvec::SmallVec;

use crate::cluster_state::{ClusterWorld, ScriptStats};
use crate::command_spec::CommandHandler;
use crate::commands::script::ScriptRunner;
use crate::faults::FaultInjector;
use crate::locks::lock;
use crate::lua_host::LuaHost;
use crate::manual_clock::ManualClock;
use crate::observer::{self, CommandObserver, ObserverSlot, ServedCommand};
use crate::reply::{ErrorReply, OK, to_resp};
use crate::server::{EmbeddedServer, ServerRole};
use crate::session::{Session, WaitSemantics};
use crate::slots::SlotTable;

/// The servers' clocks start at 1 January 2025.
const DEFAULT_START_TIME: Duration = Duration::from_secs(1_735_689_600);

/// A cluster of servers in this process, which runs the same scripts as a real one.
///
/// Use it under `Client` in demos and unit tests: it starts no servers, sends
/// nothing over a network, and its time can be moved by hand. A clone is another handle of the same
/// engine. [`faults`](EmbeddedCluster::faults) is for tests of failures and for simulations.
///
/// ```
/// use std::time::Duration;
/// use rwlease::embedded::EmbeddedCluster;
///
/// let engine = EmbeddedCluster::new();
/// let before = engine.now();
/// engine.advance(Duration::from_secs(30));
/// assert!(engine.now() >= before + Duration::from_secs(30));
/// ```
#[derive(Clone)]
pub struct EmbeddedCluster {
    pub(crate) shared: Arc<EmbeddedState>,
}

/// Builds an [`EmbeddedCluster`].
#[derive(Clone, Debug)]
#[must_use = "it builds nothing until `build` is called"]
pub struct EmbeddedClusterBuilder {
    masters: usize,
    replicas: usize,
    is_cluster: bool,
    requires_coverage: bool,
    has_manual_time: bool,
    epoch: Duration,
    wait_semantics: WaitSemantics,
    address_twin: Option<EmbeddedCluster>,
}

/// What all handles and connections share. Lock order: the host first. No script runs while another
/// thread holds the host.
#[derive(Debug)]
pub(crate) struct EmbeddedState {
    pub(crate) host: Mutex<LuaHost>,
    pub(crate) world: Arc<Mutex<ClusterWorld>>,
    pub(crate) observer: Mutex<ObserverSlot>,
}

impl EmbeddedCluster {
    /// Returns a cluster of three masters with one replica each. Its time follows tokio's.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder, for an engine of another size or with time that is moved by hand.
    pub fn builder() -> EmbeddedClusterBuilder {
        EmbeddedClusterBuilder {
            masters: 3,
            replicas: 1,
            is_cluster: true,
            requires_coverage: false,
            has_manual_time: false,
            epoch: DEFAULT_START_TIME,
            wait_semantics: WaitSemantics::default(),
            address_twin: None,
        }
    }

    /// Moves time forward, for the servers and for the clients, and wakes everything that sleeps
    /// until then.
    pub fn advance(&self, by: Duration) {
        let clock = lock(&self.shared.world).clock.clone();
        clock.advance(by);
    }

    /// Returns the time of the servers' clocks, since 1970.
    pub fn now(&self) -> Duration {
        lock(&self.shared.world).time()
    }

    /// Returns the number of keys on all masters.
    pub fn key_count(&self) -> usize {
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

    /// Returns how long until the next sleeper on the engine's clock wakes, or `None` if nothing
    /// sleeps. For simulations, which move time there when nothing else can happen.
    pub fn time_to_next_wake(&self) -> Option<Duration> {
        let clock = lock(&self.shared.world).clock.clone();
        let next = clock.next_wake()?;
        Some(next.saturating_duration_since(clock.now()))
    }

    /// Sends one command directly to a server, without a network, and returns the reply in the form
    /// of [`ServedCommand::reply`]. For tests.
    #[doc(hidden)]
    pub fn execute(&self, server: usize, words: &[&[u8]]) -> Vec<String> {
        let command = Command::from_words(words);
        observer::reply_words(&self.query(server, &command))
    }

    /// Sets the watcher that sees every command that a server has served. It replaces the one
    /// before.
    pub fn set_observer(&self, watcher: impl CommandObserver) {
        lock(&self.shared.observer).0 = Some(Box::new(watcher));
    }

    /// Returns the faults of the servers, for tests.
    pub fn faults(&self) -> FaultInjector {
        FaultInjector::new(self.shared.clone())
    }

    /// Returns how many calls scripts have made since the last
    /// [`reset_script_stats`](EmbeddedCluster::reset_script_stats).
    pub fn script_stats(&self) -> ScriptStats {
        lock(&self.shared.world).tally
    }

    /// Resets the [`tally`](EmbeddedCluster::script_stats) to zero.
    pub fn reset_script_stats(&self) {
        lock(&self.shared.world).tally = ScriptStats::default();
    }

    /// The number of the server at an address.
    #[doc(hidden)]
    pub fn find(&self, address: &Address) -> Option<usize> {
        lock(&self.shared.world).find(address)
    }

    /// The clients' clock.
    #[doc(hidden)]
    pub fn clock(&self) -> Arc<ManualClock> {
        lock(&self.shared.world).clock.clone()
    }

    /// The addresses of the servers, by number: the masters first.
    #[doc(hidden)]
    pub fn addresses(&self) -> Vec<Address> {
        let world = lock(&self.shared.world);
        world.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// Sends a command to a server, as over a connection of its own.
    #[doc(hidden)]
    pub fn query(&self, server: usize, command: &Command) -> RespValue {
        let mut host = lock(&self.shared.host);
        self.shared.serve(&mut host, server, &Session::default(), command)
    }
}

impl Default for EmbeddedCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.addresses().len();
        f.debug_struct("EmbeddedCluster").field("servers", &servers).finish_non_exhaustive()
    }
}

impl EmbeddedClusterBuilder {
    /// Sets the number of masters, from 1 to 1,000. Default: 3.
    pub fn masters(mut self, masters: u16) -> Self {
        self.masters = usize::from(masters).clamp(1, 1000);
        self
    }

    /// Sets the number of replicas of each master, at most ten. Default: 1. A master without a
    /// replica can still fail over: its successor then has its address.
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = usize::from(replicas).min(10);
        self
    }

    /// Makes a single server, without cluster mode and without replicas.
    pub fn standalone(mut self) -> Self {
        self.is_cluster = false;
        self
    }

    /// Makes every server reply `CLUSTERDOWN` to commands with keys while the master of any slot is
    /// [stopped](crate::FaultInjector::stop) and not replaced. Real servers do so by default
    /// (`cluster-require-full-coverage yes`). Default: the other slots are served.
    ///
    /// Real servers do so after `cluster-node-timeout`, these at once. An
    /// [isolated](crate::FaultInjector::isolate) server does not learn of it and serves its slots.
    pub fn require_full_coverage(mut self) -> Self {
        self.requires_coverage = true;
        self
    }

    /// Stops time, which only [`EmbeddedCluster::advance`] moves. Two runs with the same calls
    /// behave the same.
    pub fn manual_time(mut self) -> Self {
        self.has_manual_time = true;
        self
    }

    /// Sets the initial time of the servers' clocks, since 1970. Default: the beginning of 2025.
    pub fn start_time(mut self, epoch: Duration) -> Self {
        self.epoch = epoch;
        self
    }

    /// Sets which writes `WAIT` covers. Default: as up to Redis 7.0. Server versions differ.
    pub fn wait_semantics(mut self, covers: WaitSemantics) -> Self {
        self.wait_semantics = covers;
        self
    }

    /// Makes servers at the same addresses as those of `engine`, with other node ids and with its
    /// time. For simulations in which an address passes to another server.
    pub fn same_addresses_as(mut self, engine: &EmbeddedCluster) -> Self {
        self.address_twin = Some(engine.clone());
        self
    }

    /// Builds the engine.
    pub fn build(mut self) -> EmbeddedCluster {
        if !self.is_cluster {
            (self.masters, self.replicas) = (1, 0);
        }
        let clock = match (&self.address_twin, self.has_manual_time) {
            (Some(engine), _) => lock(&engine.shared.world).clock.clone(),
            (None, true) => Arc::new(ManualClock::frozen()),
            (None, false) => Arc::new(ManualClock::following_tokio()),
        };
        let whose = if self.address_twin.is_some() { "another's " } else { "" };
        let slots = Arc::new(SlotTable::distribute(self.masters));
        let servers = self.roles().enumerate().map(|(index, role)| {
            let address = Address { host: "embedded".into(), port: FIRST_PORT + index as u16 };
            EmbeddedServer::new(index, address, whose, role, slots.clone())
        });
        let world = ClusterWorld {
            clock,
            epoch: self.epoch,
            is_cluster: self.is_cluster,
            requires_coverage: self.requires_coverage,
            servers: servers.collect(),
            slots: slots.clone(),
            wait_covers: self.wait_semantics,
            running: None,
            tally: ScriptStats::default(),
            next_connection: 0,
        };
        let world = Arc::new(Mutex::new(world));
        let host = Mutex::new(LuaHost::new(world.clone()));
        EmbeddedCluster {
            shared: Arc::new(EmbeddedState { host, world, observer: Mutex::default() }),
        }
    }

    /// The masters first, then the first replica of each, and so on.
    fn roles(&self) -> impl Iterator<Item = ServerRole> {
        let masters = std::iter::repeat_n(ServerRole::Master, self.masters);
        let replicas = (0..self.masters).map(ServerRole::ReplicaOf).cycle();
        masters.chain(replicas.take(self.masters * self.replicas))
    }
}

const FIRST_PORT: u16 = 7000;

impl EmbeddedState {
    /// Serves one command of a client.
    pub(crate) fn serve(
        &self,
        host: &mut LuaHost,
        server: usize,
        session: &Session,
        command: &Command,
    ) -> RespValue {
        let words: SmallVec<[&[u8]; 16]> = command.iter().collect();
        let before = lock(&self.world).servers[server].store.offset();
        let reply = self.answer(host, server, session, &words);
        {
            let world = lock(&self.world);
            session.end_command(world.wait_covers, before, world.servers[server].store.offset());
        }
        if let Some(watcher) = &mut lock(&self.observer).0 {
            let mut world = lock(&self.world);
            let served = ServedCommand::new(&mut world, server, &words, &reply);
            watcher.on_command(&served);
        }
        reply
    }

    fn answer(
        &self,
        host: &mut LuaHost,
        server: usize,
        session: &Session,
        words: &[&[u8]],
    ) -> RespValue {
        let Some((name, args)) = words.split_first() else {
            return ErrorReply::from_static("ERR empty command").into();
        };
        let asked = session.take_asking();
        let mut world = lock(&self.world);
        let at = world.at(server);
        let command = match world.check_command(at, name, args, asked) {
            Ok(command) => command,
            Err(failure) => {
                world.servers[server].store.end();
                return failure.into();
            }
        };
        if let CommandHandler::Script(kind) = command.handler {
            drop(world);
            let mut stage = ScriptRunner { host, world: &self.world, at, after_asking: asked };
            return stage.run(kind, args).unwrap_or_else(RespValue::from);
        }
        let outcome = match command.handler {
            CommandHandler::Asking if !world.is_cluster => Err(ErrorReply::NO_CLUSTER),
            CommandHandler::Asking => {
                session.set_asking();
                Ok(OK)
            }
            CommandHandler::Wait => world.wait(at, args, session.wait_offset()),
            act => world.run(at, act, args),
        };
        world.servers[server].store.end();
        to_resp(outcome)
    }
}
