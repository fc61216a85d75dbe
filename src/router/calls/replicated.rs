//! Calls that replicas or disks must confirm: `WAIT` or `WAITAOF` in one pipeline with the scripts
//! that it covers.
//!
//! Both block the connection that they are sent on, and count the writes of that connection alone.
//! So these connections carry nothing else, and each server has one for each [`Confirmation`].
//! Calls that arrive while a group is under way form the next group (group commit). The timeout of
//! `WAIT` is short, so that a slow replica does not delay the next group for long.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};

use rwlease_core::protocol::{Call, Confirmation, Fsync};
use rwlease_core::resp::{Address, Command, RespValue};
use rwlease_core::time::LocalInstant;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::locks::lock;
use crate::router::calls::in_flight::{AttemptOutcome, script_call};
use crate::router::calls::reply_action::merge_asking_reply;
use crate::router::calls::send_gate::SendMarker;
use crate::router::cluster::connection_pool::{ConnectionPool, PoolConfig};
use crate::router::connections::exchange::TimedReply;
use crate::router::connections::server_connection::ServerConnection;
use crate::router::runtime::RuntimeHandle;

/// The most calls in one group.
const MAX_GROUP: usize = 128;

/// The most calls in one group that disks must confirm, which can take two seconds.
const MAX_DISK_GROUP: usize = 1_024;

/// The connections for confirmed calls, by what must confirm them: calls that too few replicas can
/// confirm do not delay the others.
pub(crate) struct ReplicatedCallPools {
    config: PoolConfig,
    pools: Mutex<PoolMap>,
}

#[derive(Default)]
struct PoolMap {
    by_confirmation: HashMap<Confirmation, Arc<ReplicaPool>>,
    /// A pool that is made after `close` gets no connections either.
    closed: bool,
}

/// The connections for one kind of confirmation.
struct ReplicaPool {
    confirmation: Confirmation,
    clock: Arc<dyn Clock>,
    runtime: RuntimeHandle,
    connections: Arc<ConnectionPool>,
    server_queues: Mutex<HashMap<Address, ServerQueue>>,
}

/// The next calls for one server.
#[derive(Default)]
struct ServerQueue {
    /// Renewals first: a lease that is held ends if its renewal waits for too long.
    waiting: VecDeque<GroupedCall>,
    /// A task is sending them.
    is_running: bool,
}

struct GroupedCall {
    call: Call,
    asking: bool,
    /// The words that name the script, or bring its text.
    script: &'static Command,
    /// Set when the call is sent, because the caller may give up at any time.
    send_marker: Arc<SendMarker>,
    reply_tx: oneshot::Sender<AttemptOutcome>,
}

impl ReplicatedCallPools {
    pub(crate) fn new(config: PoolConfig) -> Self {
        ReplicatedCallPools { config, pools: Mutex::default() }
    }

    /// Sends a call to that server in the next group. It may still be sent after the future is
    /// dropped.
    pub(crate) async fn send(
        &self,
        address: &Address,
        call: &Call,
        confirmation: Confirmation,
        asking: bool,
        script: &'static Command,
        sent_with: Arc<SendMarker>,
    ) -> AttemptOutcome {
        let (reply_tx, reply_rx) = oneshot::channel();
        let entry =
            GroupedCall { call: call.clone(), asking, script, send_marker: sent_with, reply_tx };
        self.pool(confirmation).push(address, entry);
        reply_rx.await.unwrap_or(AttemptOutcome::NoReply { sent: Some(0) })
    }

    /// Returns true if a call does not have to wait for a connection.
    pub(crate) fn is_ready(&self, address: &Address, confirmation: Confirmation) -> bool {
        self.pool(confirmation).connections.get(address).is_some()
    }

    /// Closes the connections to servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        for pool in lock(&self.pools).by_confirmation.values() {
            pool.connections.retain(&keep);
            lock(&pool.server_queues).retain(|address, lane| lane.is_running || keep(address));
        }
    }

    /// Retires the connections to `address` on which a command was sent at `sent`.
    pub(crate) fn retire_open_at(&self, address: &Address, sent: LocalInstant) {
        for pool in lock(&self.pools).by_confirmation.values() {
            pool.connections.retire_open_at(address, sent);
        }
    }

    /// Drops all connections.
    pub(crate) fn close(&self) {
        let mut pools = lock(&self.pools);
        pools.closed = true;
        for pool in pools.by_confirmation.values() {
            pool.connections.close();
            // The task that would send these calls may be gone.
            let addresses: Vec<Address> = lock(&pool.server_queues).keys().cloned().collect();
            addresses.iter().for_each(|address| pool.reject_waiting(address));
        }
    }

    fn pool(&self, confirmation: Confirmation) -> Arc<ReplicaPool> {
        let mut pools = lock(&self.pools);
        let PoolMap { by_confirmation, closed } = &mut *pools;
        let pool = by_confirmation.entry(confirmation).or_insert_with(|| {
            let mut config = self.config.clone();
            config.limits.response_timeout += confirmation.timeout();
            let connections = ConnectionPool::new(config);
            if *closed {
                connections.close();
            }
            Arc::new(ReplicaPool {
                confirmation,
                clock: self.config.clock.clone(),
                runtime: self.config.runtime.clone(),
                connections,
                server_queues: Mutex::default(),
            })
        });
        pool.clone()
    }
}

impl GroupedCall {
    /// Returns true if the caller still waits for the answer.
    fn is_wanted(&self) -> bool {
        !self.reply_tx.is_closed()
    }
}

impl ReplicaPool {
    fn push(self: Arc<Self>, address: &Address, entry: GroupedCall) {
        let mut lanes = lock(&self.server_queues);
        let lane = lanes.entry(address.clone()).or_default();
        let place = match entry.call.script.is_renewal() {
            true => lane.waiting.partition_point(|other| other.call.script.is_renewal()),
            false => lane.waiting.len(),
        };
        lane.waiting.insert(place, entry);
        if !lane.is_running {
            lane.is_running = true;
            drop(lanes);
            // In a separate task, so that a caller that gives up does not stop it for the others.
            let runtime = self.runtime.clone();
            runtime.spawn("confirmed calls", self.run_queue(address.clone()));
        }
    }

    /// Sends group after group until no call waits. Calls do not wait behind a group without an
    /// answer: they begin anew, and watch for the slot's new master.
    async fn run_queue(self: Arc<Self>, address: Address) {
        while let Some(group) = self.next_group(&address) {
            if !self.send_group(&address, group).await {
                self.reject_waiting(&address);
            }
        }
    }

    fn reject_waiting(&self, address: &Address) {
        let mut lanes = lock(&self.server_queues);
        let waiting = lanes.get_mut(address).map(|lane| mem::take(&mut lane.waiting));
        drop(lanes);
        for entry in waiting.into_iter().flatten() {
            let _ = entry.reply_tx.send(AttemptOutcome::NoReply { sent: None });
        }
    }

    fn next_group(&self, address: &Address) -> Option<Vec<GroupedCall>> {
        let mut lanes = lock(&self.server_queues);
        let lane = lanes.get_mut(address)?;
        lane.waiting.retain(GroupedCall::is_wanted);
        let max_group =
            if self.confirmation.fsync == Fsync::None { MAX_GROUP } else { MAX_DISK_GROUP };
        let most = lane.waiting.len().min(max_group);
        let group: Vec<GroupedCall> = lane.waiting.drain(..most).collect();
        if group.is_empty() {
            lane.is_running = false;
            return None;
        }
        Some(group)
    }

    /// Returns false if the server did not answer.
    async fn send_group(&self, address: &Address, mut group: Vec<GroupedCall>) -> bool {
        let connected = self.connections.connect(address, true).await;
        // A caller that has given up by now has released over another connection, or calls another
        // server.
        group.retain(GroupedCall::is_wanted);
        match connected {
            Ok(connection) if !group.is_empty() => self.exchange(&connection, group).await,
            Ok(_) => true,
            Err(failure) => {
                for entry in group {
                    let _ = entry.reply_tx.send(AttemptOutcome::NotConnected(failure.clone()));
                }
                false
            }
        }
    }

    /// Returns false if there was no answer.
    async fn exchange(&self, connection: &Arc<ServerConnection>, group: Vec<GroupedCall>) -> bool {
        // From here on, a caller that gives up learns that its call may have been sent. Calls whose
        // callers gave up earlier are left out.
        let claimed = group.into_iter().filter_map(|entry| {
            let not_after = connection.server_ms(entry.call.not_after);
            entry.send_marker.try_mark_sent(not_after).then_some((entry, not_after))
        });
        let (group, limits): (Vec<GroupedCall>, Vec<u64>) = claimed.unzip();
        if group.is_empty() {
            return true;
        }
        let commands = self.pipeline(connection, &group, &limits);
        let until = self.clock.now().saturating_add(connection.response_timeout);
        match connection.pipeline(None, &commands, until).await {
            Ok(exchange) => {
                self.send_replies(connection, group, exchange);
                true
            }
            Err(error) => {
                for (entry, not_after) in group.into_iter().zip(limits) {
                    let outcome = AttemptOutcome::without_reply(error.clone(), not_after);
                    let _ = entry.reply_tx.send(outcome);
                }
                false
            }
        }
    }

    fn pipeline(
        &self,
        connection: &ServerConnection,
        group: &[GroupedCall],
        limits: &[u64],
    ) -> Vec<Command> {
        let mut commands = Vec::with_capacity(group.len() + 1);
        for (entry, not_after) in group.iter().zip(limits) {
            if entry.asking {
                commands.push(Command::asking());
            }
            let call = script_call(entry.script, &entry.call, connection.name(), *not_after);
            commands.push(call.to_command());
        }
        commands.extend(self.confirmation.commands());
        commands
    }

    /// Gives each entry its reply, and whether the write is confirmed.
    fn send_replies(
        &self,
        connection: &ServerConnection,
        group: Vec<GroupedCall>,
        mut exchange: TimedReply<Vec<RespValue>>,
    ) {
        let waits = self.confirmation.commands().len();
        let replies = exchange.value.len().saturating_sub(waits);
        let confirmed = self.confirmation.read(&exchange.value.split_off(replies));
        let mut next = exchange.into_each();
        for entry in group {
            let asking = entry.asking.then(|| next().value);
            let exchange = next().map(|reply| match asking {
                Some(asking) => merge_asking_reply(asking, reply),
                None => reply,
            });
            let TimedReply { value, sent_at, received_at } = &exchange;
            connection.observe(entry.call.slot, *sent_at, *received_at, value);
            let _ = entry.reply_tx.send(AttemptOutcome::Replied(exchange, confirmed.clone()));
        }
    }
}
