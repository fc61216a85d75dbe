//! Stops and restarts servers, and promotes replicas.

use std::sync::Arc;

use crate::cluster_state::ClusterWorld;
use crate::keyspace::Keyspace;
use crate::replication::ReplicaProgress;
use crate::server::{EmbeddedServer, ProcessState, ServerRole};
use crate::slots::SlotTable;

impl ClusterWorld {
    /// Lets a replica replace a master, without the master's last writes. Returns the number of the
    /// new master.
    pub(crate) fn promote(&mut self, master: usize, lose: usize) -> Option<usize> {
        if self.servers.get(master)?.role != ServerRole::Master
            || self.servers[master].successor.is_some()
        {
            return None;
        }
        let replicas: Vec<_> = self.replicas_of(master).collect();
        if replicas.is_empty() {
            self.restart_as_successor(master, lose);
            return Some(master);
        }
        let can_win = |replica: &usize| self.servers[*replica].learns_topology();
        let replica = replicas.into_iter().find(can_win)?;
        self.promote_replica(master, replica, lose);
        Some(replica)
    }

    fn promote_replica(&mut self, old: usize, new: usize, lose: usize) {
        let store = self.promotion_data(new, old, lose);
        let offset = store.offset();
        let (migrating, importing) = (
            std::mem::take(&mut self.servers[old].migrating),
            std::mem::take(&mut self.servers[old].importing),
        );
        let server = &mut self.servers[new];
        server.role = ServerRole::Master;
        server.store = store;
        server.scripts.clear();
        server.migrating = migrating;
        server.importing = importing;
        self.servers[old].successor = Some(new);
        for server in &mut self.servers {
            let open = server.migrating.values_mut().chain(server.importing.values_mut());
            open.filter(|other| **other == old).for_each(|other| *other = new);
            if server.role == ServerRole::ReplicaOf(old) {
                server.role = ServerRole::ReplicaOf(new);
                server.follow_another(offset);
            }
        }
        // The isolation of the old master is none from the new one.
        for replica in self.replicas_of(new).collect::<Vec<_>>() {
            self.resume_replication(replica);
        }
        Arc::make_mut(&mut self.slots).replace(old, new);
        self.propagate_topology();
    }

    fn restart_as_successor(&mut self, master: usize, lose: usize) {
        let server = &mut self.servers[master];
        server.store.undo(lose);
        server.store.commit();
        server.renew_process();
        server.health = ProcessState::Up;
        self.propagate_topology();
    }

    /// Kills a server: its connections break. It keeps its data for its next start.
    pub(crate) fn stop(&mut self, server: usize) {
        self.servers[server].health = ProcessState::Down;
        self.servers[server].break_connections();
    }

    /// Starts a stopped server as a new process.
    pub(crate) fn start(&mut self, server: usize) {
        self.servers[server].renew_process();
        self.servers[server].health = ProcessState::Up;
        self.propagate_topology();
    }

    /// Returns true if a slot has no living master, and so the cluster serves no slot.
    pub(crate) fn lacks_coverage(&self) -> bool {
        let is_dead = |server: &EmbeddedServer| server.health == ProcessState::Down;
        self.requires_coverage
            && self.servers.iter().any(|server| {
                is_dead(server) && self.slots.ranges().any(|(_, master)| master == server.index)
            })
    }

    /// Tells all reachable servers who serves which slot.
    pub(crate) fn propagate_topology(&mut self) {
        for server in self.servers.iter_mut().filter(|server| server.learns_topology()) {
            server.adopt_topology(&self.slots);
        }
    }
}

impl EmbeddedServer {
    /// Returns true if the server learns at once about changes elsewhere.
    pub(crate) fn learns_topology(&self) -> bool {
        self.health == ProcessState::Up && !self.is_isolated
    }

    /// A master that learns that another server has replaced it becomes a replica of that one. The
    /// subscriptions in its slots end.
    fn adopt_topology(&mut self, slots: &Arc<SlotTable>) {
        self.slots = slots.clone();
        if let Some(successor) = self.successor.take() {
            self.role = ServerRole::ReplicaOf(successor);
            self.store = Keyspace::default();
            self.replica_progress = ReplicaProgress::default();
        }
        self.subscribers.unsubscribe_slots(|slot| slots.master_of(slot) == self.index);
    }
}
