//! What replicas have of their master's writes, and what `WAIT` reports of it.
//!
//! A replica that keeps up is not stored: its data are its master's, without the last writes if it
//! is promoted. A replica that is held back has its own data. A replica is held back while a fault
//! makes it lag, and while the replica or its master is isolated.

use crate::cluster_state::{ClusterWorld, CommandSite};
use crate::keyspace::Keyspace;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::server::{EmbeddedServer, ProcessState, ServerRole};

/// What a replica has of its master's writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplicaProgress {
    /// The offset of the last write of its master that a replica has which is held back. `None` if
    /// it is not.
    lag_offset: Option<u64>,
    /// A fault makes it lag.
    is_lagging: bool,
    /// Its master has changed since it was held back, and it has received nothing from the new one.
    from_other_master: bool,
    /// The offset that it has acknowledged to its master.
    acknowledged: u64,
}

impl ClusterWorld {
    /// `WAIT`, for a connection that has written up to this offset. Answers at once, whatever
    /// number of replicas the command names.
    pub(crate) fn wait(&mut self, at: CommandSite, args: &[&[u8]], covered: u64) -> CommandResult {
        number::parse_argument(args[0])?;
        let timeout = number::parse_argument(args[1]).map_err(|_| {
            ErrorReply::from_static("ERR timeout is not an integer or out of range")
        })?;
        if timeout < 0 {
            return Err(ErrorReply::from_static("ERR timeout is negative"));
        }
        if self.servers[at.server].role != ServerRole::Master {
            return Err(ErrorReply::from_static("ERR WAIT cannot be used with replica instances."));
        }
        let offset = self.servers[at.server].store.offset();
        let replicas: Vec<usize> = self.replicas_of(at.server).collect();
        let counted = replicas.into_iter().filter(|replica| {
            let is_connected = !self.is_cut_off(*replica);
            let acknowledged = self.servers[*replica].acknowledge(offset);
            acknowledged
                .filter(|_| is_connected)
                .is_some_and(|acknowledged| acknowledged >= covered)
        });
        Ok(RedisReply::count(counted.count()))
    }

    /// From now on a replica receives none of its master's writes.
    pub(crate) fn lag(&mut self, replica: usize) {
        self.hold_back(replica);
        self.servers[replica].replica_progress.is_lagging = true;
    }

    /// Cuts a server off from the other servers.
    pub(crate) fn isolate(&mut self, server: usize) {
        self.servers[server].is_isolated = true;
        for replica in self.replication_links(server) {
            self.hold_back(replica);
        }
    }

    /// Connects an isolated server with the other servers.
    pub(crate) fn rejoin(&mut self, server: usize) {
        self.servers[server].is_isolated = false;
        for replica in self.replication_links(server) {
            self.resume_replication(replica);
        }
        self.propagate_topology();
    }

    /// The server itself if it is a replica, or its replicas.
    fn replication_links(&self, server: usize) -> Vec<usize> {
        match self.servers[server].role {
            ServerRole::ReplicaOf(_) => vec![server],
            ServerRole::Master => self.replicas_of(server).collect(),
        }
    }

    /// Returns true if no message passes between the replica and its master.
    fn is_cut_off(&self, replica: usize) -> bool {
        let is_isolated = |server: usize| self.servers[server].is_isolated;
        match self.servers[replica].role {
            ServerRole::ReplicaOf(master) => is_isolated(replica) || is_isolated(master),
            ServerRole::Master => false,
        }
    }

    fn hold_back(&mut self, replica: usize) {
        let ServerRole::ReplicaOf(master) = self.servers[replica].role else {
            return;
        };
        if self.servers[replica].replica_progress.lag_offset.is_none() {
            let mut store = self.servers[master].store.clone();
            store.commit();
            let server = &mut self.servers[replica];
            server.replica_progress.lag_offset = Some(store.offset());
            server.store = store;
        }
    }

    /// Gives a replica all that it lacks, and from now on all that its master writes. While the two
    /// are cut off from each other, the replica still receives nothing.
    pub(crate) fn catch_up(&mut self, replica: usize) {
        self.servers[replica].replica_progress.is_lagging = false;
        self.resume_replication(replica);
    }

    /// The same, unless a fault still makes the replica lag.
    pub(crate) fn resume_replication(&mut self, replica: usize) {
        let progress = self.servers[replica].replica_progress;
        if progress.lag_offset.is_none() || progress.is_lagging || self.is_cut_off(replica) {
            return;
        }
        let acknowledged = match self.servers[replica].role {
            ServerRole::ReplicaOf(master) => self.servers[master].store.offset(),
            ServerRole::Master => 0,
        };
        let server = &mut self.servers[replica];
        server.store = Keyspace::default();
        server.replica_progress = ReplicaProgress { acknowledged, ..ReplicaProgress::default() };
    }

    /// The data of a replica that is promoted: everything that it has acknowledged, and the rest
    /// without the last `lose` writes. A replica that was held back has what it had then.
    pub(crate) fn promotion_data(
        &mut self,
        replica: usize,
        master: usize,
        lose: usize,
    ) -> Keyspace {
        let received = std::mem::take(&mut self.servers[replica].replica_progress);
        if received.lag_offset.is_some() {
            return std::mem::take(&mut self.servers[replica].store);
        }
        let mut store = self.servers[master].store.clone();
        let unknown = store.offset().saturating_sub(received.acknowledged);
        store.undo(lose.min(usize::try_from(unknown).unwrap_or(usize::MAX)));
        store.commit();
        store
    }
}

impl EmbeddedServer {
    /// Follows another master from now on, which is at this offset.
    pub(crate) fn follow_another(&mut self, offset: u64) {
        match self.replica_progress.lag_offset {
            Some(_) => self.replica_progress.from_other_master = true,
            None => self.replica_progress.acknowledged = offset,
        }
    }

    /// The offset that it acknowledges to its master, which is at `offset`. `None` if the two are
    /// not connected.
    fn acknowledge(&mut self, offset: u64) -> Option<u64> {
        if self.health == ProcessState::Down || self.replica_progress.from_other_master {
            return None;
        }
        self.replica_progress.acknowledged = self.replica_progress.lag_offset.unwrap_or(offset);
        Some(self.replica_progress.acknowledged)
    }
}
