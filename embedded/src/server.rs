//! One server: its data, its view of the cluster, and its state.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use sha1_smol::Sha1;

use crate::keyspace::Keyspace;
use crate::link::PausedInput;
use crate::replication::ReplicaProgress;
use crate::reply::ErrorReply;
use crate::slots::SlotTable;
use crate::subscribers::Subscribers;

/// The SHA-1 digest of a script's text, as 40 hexadecimal digits.
pub(crate) type Digest = [u8; 40];

#[derive(Debug)]
pub(crate) struct EmbeddedServer {
    pub(crate) index: usize,
    pub(crate) address: Address,
    pub(crate) id: String,
    pub(crate) run_id: String,
    /// Tells it apart from other servers with the same address.
    twin_label: &'static str,
    /// How often it was started.
    start_count: u32,
    pub(crate) role: ServerRole,
    pub(crate) health: ProcessState,
    pub(crate) store: Keyspace,
    /// The scripts that it knows.
    pub(crate) scripts: HashSet<Digest>,
    pub(crate) subscribers: Subscribers,
    /// Connections of an earlier generation are broken.
    pub(crate) generation: u64,
    /// What arrived while it was paused.
    pub(crate) paused_input: VecDeque<PausedInput>,

    /// Its view of the cluster.
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) migrating: BTreeMap<Slot, usize>,
    pub(crate) importing: BTreeMap<Slot, usize>,
    /// It learns nothing from the other servers.
    pub(crate) is_isolated: bool,
    /// The server that replaced it. It may not know yet.
    pub(crate) successor: Option<usize>,

    /// How far its clock is ahead, in microseconds.
    pub(crate) clock_offset: i64,
    pub(crate) memory_full: bool,
    pub(crate) cluster_down: bool,
    pub(crate) refusal: Option<ErrorReply>,
    /// The writes of the master that this server has, if it is a replica.
    pub(crate) replica_progress: ReplicaProgress,
    pub(crate) eviction_policy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRole {
    Master,
    ReplicaOf(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Up,
    /// The server is stopped. Commands wait until it resumes.
    Paused,
    Down,
}

impl EmbeddedServer {
    pub(crate) fn new(
        index: usize,
        address: Address,
        whose: &'static str,
        role: ServerRole,
        slots: Arc<SlotTable>,
    ) -> Self {
        let mut server = EmbeddedServer {
            index,
            id: digest(format!("{whose}server {address}").as_bytes()),
            run_id: String::new(),
            twin_label: whose,
            address,
            start_count: 0,
            role,
            health: ProcessState::Up,
            store: Keyspace::default(),
            scripts: HashSet::new(),
            subscribers: Subscribers::default(),
            generation: 0,
            paused_input: VecDeque::new(),
            slots,
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            is_isolated: false,
            successor: None,
            clock_offset: 0,
            memory_full: false,
            cluster_down: false,
            refusal: None,
            replica_progress: ReplicaProgress::default(),
            eviction_policy: "noeviction".into(),
        };
        server.renew_process();
        server
    }

    /// Makes it a new process: it keeps nothing but its data.
    pub(crate) fn renew_process(&mut self) {
        self.start_count += 1;
        let EmbeddedServer { start_count: starts, address, twin_label: whose, .. } = self;
        self.run_id = digest(format!("{whose}run {starts} of {address}").as_bytes());
        self.scripts.clear();
        self.break_connections();
    }

    /// Drops the queue: its senders learn that the connection broke.
    pub(crate) fn break_connections(&mut self) {
        self.generation += 1;
        self.subscribers.disconnect_all();
        self.paused_input.clear();
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha1::from(bytes).digest().to_string()
}
