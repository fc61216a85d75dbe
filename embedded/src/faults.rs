//! Faults of servers, for tests and simulations.
//!
//! Using an [`EmbeddedCluster`](crate::EmbeddedCluster) requires nothing from this file, and
//! nothing here has a counterpart for real servers.

use std::sync::Arc;

use rwlease_core::slot::Slot;

use crate::cluster::EmbeddedState;
use crate::cluster_state::ClusterWorld;
use crate::locks::lock;
use crate::reply::ErrorReply;
use crate::server::{EmbeddedServer, ProcessState};

/// The faults of one engine's servers.
///
/// Servers have numbers: the masters come first, from 0, then the first replica of each, then the
/// second replicas. A call with a number that no server has does nothing. All of it is
/// deterministic.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    shared: Arc<EmbeddedState>,
}

/// Slot moves.
impl FaultInjector {
    /// Begins to move a slot to another master. From now on, the source redirects commands for a
    /// key that it does not have to the target, and the target serves commands that follow such a
    /// redirect. Returns false if the slot cannot move there, or is already moving. (Here and in
    /// the next two methods, both masters must be up and not isolated.)
    pub fn begin_move(&self, slot: Slot, to: usize) -> bool {
        self.change(|world| world.begin_move(slot, to))
    }

    /// Moves the next key of a moving slot. Returns false if none is left.
    pub fn move_key(&self, slot: Slot) -> bool {
        self.change(|world| world.move_key(slot))
    }

    /// Moves the remaining keys of a slot, and makes the target its master. The source ends the
    /// subscriptions in the slot, and tells the subscribers. Returns false if the slot is not
    /// moving.
    pub fn finish_move(&self, slot: Slot) -> bool {
        self.change(|world| world.finish_move(slot))
    }

    /// Returns the master of a slot.
    pub fn master_of(&self, slot: Slot) -> usize {
        self.change(|world| world.slots.master_of(slot))
    }

    /// Makes one server believe that another one owns a slot, until it next learns the truth. Two
    /// masters that name each other never stop redirecting.
    pub fn set_wrong_owner(&self, server: usize, slot: Slot, master: usize) {
        if master < self.change(|world| world.servers.len()) {
            self.with_server(server, |server| {
                Arc::make_mut(&mut server.slots).assign(slot, master)
            });
        }
    }
}

/// Servers that die, pause, or are cut off.
impl FaultInjector {
    /// Lets a replica replace a master. It lacks the last `lose` writes (a script is one write),
    /// but has everything that it has acknowledged to a `WAIT`. A replica that
    /// [lags](FaultInjector::lag_replica) has what it had when that began. So has a replica of an
    /// [isolated](FaultInjector::isolate) master. The new master knows no scripts and has no
    /// subscribers.
    ///
    /// The old master becomes a replica at once, unless it is isolated, paused or stopped: then it
    /// learns of the promotion later, and until then serves as before. A master without replicas is
    /// replaced by a new process at its address.
    ///
    /// Returns the number of the new master. `None` if `master` is not a master, or if all its
    /// replicas are stopped, paused or isolated.
    pub fn promote(&self, master: usize, lose: usize) -> Option<usize> {
        self.change(|world| world.promote(master, lose))
    }

    /// Kills a server. Its connections break, and new ones cannot be made.
    pub fn stop(&self, server: usize) {
        self.with_number(server, ClusterWorld::stop);
    }

    /// Starts a killed server (or restarts a running one) with its data, as a new process: it knows
    /// no scripts.
    pub fn start(&self, server: usize) {
        self.with_number(server, ClusterWorld::start);
    }

    /// Pauses a server, as `SIGSTOP` does. Commands wait until it resumes. A replica
    /// [lags](FaultInjector::lag_replica) until it resumes.
    pub fn pause(&self, server: usize) {
        self.change(|world| {
            if world.servers.get(server).is_some_and(|it| it.health == ProcessState::Up) {
                world.servers[server].health = ProcessState::Paused;
                world.lag(server);
            }
        });
    }

    /// Resumes a paused server. The server first serves the commands that arrived during the pause,
    /// and then learns of changes to the cluster.
    pub fn resume(&self, server: usize) {
        let mut host = lock(&self.shared.host);
        let is_paused = |world: &ClusterWorld| {
            world.servers.get(server).is_some_and(|it| it.health == ProcessState::Paused)
        };
        if !is_paused(&lock(&self.shared.world)) {
            return;
        }
        lock(&self.shared.world).servers[server].health = ProcessState::Up;
        lock(&self.shared.world).catch_up(server);
        self.shared.serve_paused_input(&mut host, server);
        lock(&self.shared.world).propagate_topology();
    }

    /// Cuts a server off from the other servers, but not from its clients: it learns of no changes,
    /// and replication stops. The replicas of an isolated master have what it had then, and count
    /// for none of its `WAIT`s. An isolated replica likewise, and it is not promoted.
    pub fn isolate(&self, server: usize) {
        self.with_number(server, ClusterWorld::isolate);
    }

    /// Reconnects an isolated server with the others. Its replicas catch up, unless they
    /// [lag](FaultInjector::lag_replica). A master that was replaced becomes a replica.
    pub fn rejoin(&self, server: usize) {
        self.with_number(server, ClusterWorld::rejoin);
    }

    /// Breaks all connections to a server, with their subscriptions. New ones can be made.
    pub fn kill_connections(&self, server: usize) {
        self.with_server(server, EmbeddedServer::break_connections);
    }
}

/// Replicas that lag.
impl FaultInjector {
    /// Returns the replicas of a master.
    pub fn replicas(&self, master: usize) -> Vec<usize> {
        self.change(|world| world.replicas_of(master).collect())
    }

    /// Stops the replication to a replica. `WAIT` counts the replica only for writes that it has
    /// received. It can still be promoted.
    pub fn lag_replica(&self, replica: usize) {
        self.with_number(replica, ClusterWorld::lag);
    }

    /// Gives a lagging replica everything that it lacks; it no longer lags.
    pub fn sync_replica(&self, replica: usize) {
        self.with_number(replica, ClusterWorld::catch_up);
    }
}

/// Servers that answer differently.
impl FaultInjector {
    /// Sets a server's clock: ahead of the engine's time by this many milliseconds, or behind it.
    pub fn set_clock(&self, server: usize, ahead_ms: i64) {
        self.with_server(server, |server| server.clock_offset = ahead_ms.saturating_mul(1000));
    }

    /// Steps a server's clock by this many milliseconds, forward or back.
    pub fn step_clock(&self, server: usize, by_ms: i64) {
        let step = by_ms.saturating_mul(1000);
        self.with_server(server, |server| {
            server.clock_offset = server.clock_offset.saturating_add(step)
        });
    }

    /// Makes a server forget its scripts.
    pub fn flush_scripts(&self, server: usize) {
        self.with_server(server, |server| server.scripts.clear());
    }

    /// Makes a server forget its data.
    pub fn flush_data(&self, server: usize) {
        self.with_server(server, |server| server.store.empty());
    }

    /// Makes a server's memory full, or not. When it is full, a script is refused at its first
    /// write, if that write may need memory.
    pub fn set_out_of_memory(&self, server: usize, is_full: bool) {
        self.with_server(server, |server| server.memory_full = is_full);
    }

    /// Makes a server report that the cluster is down, or not.
    pub fn set_cluster_down(&self, server: usize, is_down: bool) {
        self.with_server(server, |server| server.cluster_down = is_down);
    }

    /// Makes a server answer every command with an error line, such as `LOADING Redis is loading
    /// the dataset in memory`. `None` ends that.
    pub fn reply_with_error(&self, server: usize, error: Option<&str>) {
        self.with_server(server, |server| server.refusal = error.map(ErrorReply::new));
    }

    /// Sets the `maxmemory-policy` that a server reports. Nothing is evicted.
    pub fn set_eviction_policy(&self, server: usize, policy: &str) {
        self.with_server(server, |server| server.eviction_policy = policy.into());
    }
}

impl FaultInjector {
    pub(crate) fn new(shared: Arc<EmbeddedState>) -> Self {
        FaultInjector { shared }
    }

    /// Changes the world while no script runs.
    fn change<R>(&self, change: impl FnOnce(&mut ClusterWorld) -> R) -> R {
        let _turn = lock(&self.shared.host);
        change(&mut lock(&self.shared.world))
    }

    fn with_number(&self, server: usize, change: impl FnOnce(&mut ClusterWorld, usize)) {
        self.change(|world| {
            if server < world.servers.len() {
                change(world, server);
            }
        });
    }

    fn with_server(&self, server: usize, change: impl FnOnce(&mut EmbeddedServer)) {
        self.change(|world| {
            if let Some(server) = world.servers.get_mut(server) {
                change(server);
            }
        });
    }
}
