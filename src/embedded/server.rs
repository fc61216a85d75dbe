//! One server: its data, its view of the cluster, and its state.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use sha1_smol::Sha1;

use super::answer::Failure;
use super::connection::Queued;
use super::replication::Received;
use super::slots::Slots;
use super::store::Store;
use super::subscribers::Subscribers;
use crate::node::Address;
use crate::slot::Slot;

/// The SHA-1 digest of a script's text, as 40 hexadecimal digits.
pub(super) type Digest = [u8; 40];

#[derive(Debug)]
pub(super) struct Server {
    pub(super) index: usize,
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) run_id: String,
    /// Tells it apart from other servers with the same address.
    whose: &'static str,
    /// How often it was started.
    starts: u32,
    pub(super) role: Role,
    pub(super) health: Health,
    pub(super) store: Store,
    /// The scripts that it knows.
    pub(super) scripts: HashSet<Digest>,
    pub(super) subscribers: Subscribers,
    /// Connections of an earlier generation are broken.
    pub(super) generation: u64,
    /// What arrived while it was paused.
    pub(super) queue: VecDeque<Queued>,

    /// Its view of the cluster.
    pub(super) slots: Arc<Slots>,
    pub(super) migrating: BTreeMap<Slot, usize>,
    pub(super) importing: BTreeMap<Slot, usize>,
    /// It learns nothing from the other servers.
    pub(super) is_isolated: bool,
    /// The server that replaced it. It may not know yet.
    pub(super) successor: Option<usize>,

    /// How far its clock is ahead, in microseconds.
    pub(super) clock_offset: i64,
    pub(super) memory_full: bool,
    pub(super) cluster_down: bool,
    pub(super) refusal: Option<Failure>,
    /// What it has of its master's writes, if it is a replica.
    pub(super) received: Received,
    pub(super) eviction_policy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    ReplicaOf(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// It is stopped: what is sent to it waits.
    Paused,
    Down,
}

impl Server {
    pub(super) fn new(
        index: usize,
        address: Address,
        whose: &'static str,
        role: Role,
        slots: Arc<Slots>,
    ) -> Self {
        let mut server = Server {
            index,
            id: digest(format!("{whose}server {address}").as_bytes()),
            run_id: String::new(),
            whose,
            address,
            starts: 0,
            role,
            health: Health::Up,
            store: Store::default(),
            scripts: HashSet::new(),
            subscribers: Subscribers::default(),
            generation: 0,
            queue: VecDeque::new(),
            slots,
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            is_isolated: false,
            successor: None,
            clock_offset: 0,
            memory_full: false,
            cluster_down: false,
            refusal: None,
            received: Received::default(),
            eviction_policy: "noeviction".into(),
        };
        server.renew_process();
        server
    }

    /// Makes it a new process: it keeps nothing but its data.
    pub(super) fn renew_process(&mut self) {
        self.starts += 1;
        let Server { starts, address, whose, .. } = self;
        self.run_id = digest(format!("{whose}run {starts} of {address}").as_bytes());
        self.scripts.clear();
        self.break_connections();
    }

    /// Drops the queue: its senders learn that the connection broke.
    pub(super) fn break_connections(&mut self) {
        self.generation += 1;
        self.subscribers.disconnect_all();
        self.queue.clear();
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha1::from(bytes).digest().to_string()
}
