//! Stops and restarts servers, and promotes replicas.

use std::sync::Arc;

use super::replication::Received;
use super::server::{Health, Role, Server};
use super::slots::Slots;
use super::store::Store;
use super::world::World;

impl World {
    /// Lets a replica replace a master, without the master's last writes. Returns the number of the
    /// new master.
    pub(super) fn promote(&mut self, master: usize, lose: usize) -> Option<usize> {
        if self.servers.get(master)?.role != Role::Master
            || self.servers[master].successor.is_some()
        {
            return None;
        }
        let replicas: Vec<_> = self.replicas_of(master).collect();
        if replicas.is_empty() {
            self.replace_in_place(master, lose);
            return Some(master);
        }
        let is_up = |replica: &usize| self.servers[*replica].health == Health::Up;
        let replica = replicas.into_iter().find(is_up)?;
        self.take_place(master, replica, lose);
        Some(replica)
    }

    fn take_place(&mut self, old: usize, new: usize, lose: usize) {
        let store = self.data_of(new, old, lose);
        let offset = store.offset();
        let (migrating, importing) = (
            std::mem::take(&mut self.servers[old].migrating),
            std::mem::take(&mut self.servers[old].importing),
        );
        let server = &mut self.servers[new];
        server.role = Role::Master;
        server.store = store;
        server.scripts.clear();
        server.migrating = migrating;
        server.importing = importing;
        self.servers[old].successor = Some(new);
        for server in &mut self.servers {
            let open = server.migrating.values_mut().chain(server.importing.values_mut());
            open.filter(|other| **other == old).for_each(|other| *other = new);
            if server.role == Role::ReplicaOf(old) {
                server.role = Role::ReplicaOf(new);
                server.follow_another(offset);
            }
        }
        Arc::make_mut(&mut self.slots).replace(old, new);
        self.spread_news();
    }

    fn replace_in_place(&mut self, master: usize, lose: usize) {
        let server = &mut self.servers[master];
        server.store.undo(lose);
        server.store.confirm();
        server.renew_process();
        server.health = Health::Up;
        self.spread_news();
    }

    /// Kills a server: its connections break. It keeps its data for its next start.
    pub(super) fn stop(&mut self, server: usize) {
        self.servers[server].health = Health::Down;
        self.servers[server].break_connections();
    }

    /// Starts a stopped server as a new process.
    pub(super) fn start(&mut self, server: usize) {
        self.servers[server].renew_process();
        self.servers[server].health = Health::Up;
        self.spread_news();
    }

    /// Tells all reachable servers who serves which slot.
    pub(super) fn spread_news(&mut self) {
        for server in self.servers.iter_mut().filter(|server| server.hears()) {
            server.learn(&self.slots);
        }
    }
}

impl Server {
    /// Returns true if the server learns at once about changes elsewhere.
    pub(super) fn hears(&self) -> bool {
        self.health == Health::Up && !self.is_isolated
    }

    /// A master that learns that another server has replaced it becomes a replica of that one. The
    /// subscriptions in its slots end.
    fn learn(&mut self, slots: &Arc<Slots>) {
        self.slots = slots.clone();
        if let Some(successor) = self.successor.take() {
            self.role = Role::ReplicaOf(successor);
            self.store = Store::default();
            self.received = Received::default();
        }
        self.subscribers.leave_slots(|slot| slots.master_of(slot) == self.index);
    }
}
