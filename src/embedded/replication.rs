//! What replicas have of their master's writes, and what `WAIT` reports of it.
//!
//! A replica that keeps up is not stored: its data are its master's, without the last writes if it
//! is promoted. A replica that is held back has its own data.

use super::answer::{Answer, Failure, Outcome};
use super::number;
use super::server::{Health, Role, Server};
use super::store::Store;
use super::world::{At, World};

/// What a replica has of its master's writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// The offset up to which it has its master's writes, if it is held back.
    held_at: Option<u64>,
    /// Its master has changed since it was held back, and it has received nothing from the new one.
    is_of_another: bool,
    /// The offset that it has acknowledged to its master.
    acknowledged: u64,
}

impl World {
    /// `WAIT`, for a connection that has written up to this offset. Answers at once, whatever
    /// number of replicas the command names.
    pub(super) fn wait(&mut self, at: At, args: &[&[u8]], covered: u64) -> Outcome {
        number::argument(args[0])?;
        let timeout = number::argument(args[1])
            .map_err(|_| Failure::of("ERR timeout is not an integer or out of range"))?;
        if timeout < 0 {
            return Err(Failure::of("ERR timeout is negative"));
        }
        if self.servers[at.server].role != Role::Master {
            return Err(Failure::of("ERR WAIT cannot be used with replica instances."));
        }
        let offset = self.servers[at.server].store.offset();
        let replicas: Vec<usize> = self.replicas_of(at.server).collect();
        let counted = replicas.into_iter().filter(|replica| {
            let acknowledged = self.servers[*replica].acknowledge(offset);
            acknowledged.is_some_and(|acknowledged| acknowledged >= covered)
        });
        Ok(Answer::count(counted.count()))
    }

    /// From now on a replica receives none of its master's writes.
    pub(super) fn hold_back(&mut self, replica: usize) {
        let Role::ReplicaOf(master) = self.servers[replica].role else {
            return;
        };
        if self.servers[replica].received.held_at.is_none() {
            let mut store = self.servers[master].store.clone();
            store.confirm();
            let server = &mut self.servers[replica];
            server.received.held_at = Some(store.offset());
            server.store = store;
        }
    }

    /// Gives a replica all that it lacks, and from now on all that its master writes.
    pub(super) fn catch_up(&mut self, replica: usize) {
        if self.servers[replica].received.held_at.is_none() {
            return;
        }
        let acknowledged = match self.servers[replica].role {
            Role::ReplicaOf(master) => self.servers[master].store.offset(),
            Role::Master => 0,
        };
        let server = &mut self.servers[replica];
        server.store = Store::default();
        server.received = Received { acknowledged, ..Received::default() };
    }

    /// The data of a replica that is promoted: everything that it has acknowledged, and the rest
    /// without the last `lose` writes. A replica that was held back has what it had then.
    pub(super) fn data_of(&mut self, replica: usize, master: usize, lose: usize) -> Store {
        let received = std::mem::take(&mut self.servers[replica].received);
        if received.held_at.is_some() {
            return std::mem::take(&mut self.servers[replica].store);
        }
        let mut store = self.servers[master].store.clone();
        let unknown = store.offset().saturating_sub(received.acknowledged);
        store.undo(lose.min(usize::try_from(unknown).unwrap_or(usize::MAX)));
        store.confirm();
        store
    }
}

impl Server {
    /// Follows another master from now on, which is at this offset.
    pub(super) fn follow_another(&mut self, offset: u64) {
        match self.received.held_at {
            Some(_) => self.received.is_of_another = true,
            None => self.received.acknowledged = offset,
        }
    }

    /// The offset that it acknowledges to its master, which is at `offset`. `None` if the two are
    /// not connected.
    fn acknowledge(&mut self, offset: u64) -> Option<u64> {
        if self.health == Health::Down || self.received.is_of_another {
            return None;
        }
        self.received.acknowledged = self.received.held_at.unwrap_or(offset);
        Some(self.received.acknowledged)
    }
}
