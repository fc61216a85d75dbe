//! Moves a slot from one master to another, key by key.

use std::sync::Arc;

use rwlease_core::slot::Slot;

use crate::cluster_state::ClusterWorld;
use crate::keyspace::StoredKey;
use crate::server::ServerRole;

impl ClusterWorld {
    /// Opens a slot at its master and at the target. Returns false if it cannot move there.
    pub(crate) fn begin_move(&mut self, slot: Slot, to: usize) -> bool {
        let from = self.slots.master_of(slot);
        let is_open = self.servers[from].migrating.contains_key(&slot);
        if from == to || is_open || !self.is_available(from) || !self.is_available(to) {
            return false;
        }
        // Deletes what an earlier master may have left there.
        for key in self.servers[to].store.keys_in(slot) {
            self.servers[to].store.set(&key, None);
            self.servers[to].store.end();
        }
        self.servers[from].migrating.insert(slot, to);
        self.servers[to].importing.insert(slot, from);
        true
    }

    /// Moves the next key of an open slot. Returns false if none is left.
    pub(crate) fn move_key(&mut self, slot: Slot) -> bool {
        let Some((from, to)) = self.migration_of(slot) else {
            return false;
        };
        for server in [from, to] {
            let now = self.now(server) / 1000;
            self.servers[server].store.begin(now);
        }
        let Some(key) = self.servers[from].store.keys_in(slot).into_iter().next() else {
            return false;
        };
        let (left, started) = (self.servers[from].store.now(), self.servers[to].store.now());
        let entry = self.servers[from].store.entry(&key).cloned();
        // The remaining time is moved, not the moment: the two clocks may differ.
        let entry = entry.map(|entry| StoredKey {
            expires_at: entry.expires_at.map(|expires| started + (expires - left)),
            ..entry
        });
        self.servers[to].store.set(&key, entry);
        self.servers[from].store.set(&key, None);
        self.servers[to].store.end();
        self.servers[from].store.end();
        true
    }

    /// Moves the rest of an open slot, and makes the target its master. Returns false if it is not
    /// open.
    pub(crate) fn finish_move(&mut self, slot: Slot) -> bool {
        let Some((from, to)) = self.migration_of(slot) else {
            return false;
        };
        while self.move_key(slot) {}
        self.servers[from].migrating.remove(&slot);
        self.servers[to].importing.remove(&slot);
        Arc::make_mut(&mut self.slots).assign(slot, to);
        self.propagate_topology();
        true
    }

    /// The source and target of an open slot, if both are available.
    fn migration_of(&self, slot: Slot) -> Option<(usize, usize)> {
        let from = self.slots.master_of(slot);
        let to = *self.servers[from].migrating.get(&slot)?;
        (self.is_available(from) && self.is_available(to)).then_some((from, to))
    }

    fn is_available(&self, server: usize) -> bool {
        let server = self.servers.get(server);
        server.is_some_and(|server| server.role == ServerRole::Master && server.learns_topology())
    }
}
