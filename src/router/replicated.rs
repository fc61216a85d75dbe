//! Calls that replicas must confirm: `WAIT` in one pipeline with the scripts that it covers.
//!
//! `WAIT` blocks the connection that it is sent on, and counts the writes of that connection alone.
//! So these connections carry nothing else, and each server has one for each number of replicas.
//! Calls that arrive while a group is under way form the next group (group commit). The timeout of
//! `WAIT` is short, so that a slow replica does not delay the next group for long.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{Address, Command, Connector, ReplyShape, RespValue};
use crate::clock::{Clock, LocalInstant};
use crate::router::call::Call;
use crate::router::connection::{ConnectionLimits, ExchangeError, ServerConnection, TimedReply};
use crate::router::connection_pool::ConnectionPool;
use crate::router::in_flight::{AttemptOutcome, to_command};
use crate::router::lock;
use crate::router::membership::Membership;
use crate::router::reply_action::merge_asking_reply;
use crate::router::runtime::RuntimeHandle;
use crate::router::send_marker::SendMarker;

/// The most calls in one group.
const MAX_GROUP: usize = 128;

/// How long `WAIT` waits for replicas.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_millis(250);

/// The connections for confirmed calls, by the number of replicas: calls that too few replicas can
/// confirm do not delay the others.
pub(crate) struct ReplicatedCallPools {
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    membership: Arc<Membership>,
    limits: ConnectionLimits,
    runtime: RuntimeHandle,
    pools: Mutex<PoolMap>,
}

#[derive(Default)]
struct PoolMap {
    by_replicas: HashMap<u32, Arc<ReplicaPool>>,
    /// A pool that is made after `close` gets no connections either.
    closed: bool,
}

/// The connections for one number of replicas.
struct ReplicaPool {
    replicas: u32,
    clock: Arc<dyn Clock>,
    runtime: RuntimeHandle,
    connections: Arc<ConnectionPool>,
    server_queues: Mutex<HashMap<Address, ServerQueue>>,
}

/// The next calls for one server.
#[derive(Default)]
struct ServerQueue {
    waiting: VecDeque<GroupedCall>,
    /// A task is sending them.
    is_running: bool,
}

struct GroupedCall {
    call: Call,
    asking: bool,
    sends_source: bool,
    /// Set when the call is sent, because the caller may give up at any time.
    send_marker: Arc<SendMarker>,
    reply_tx: oneshot::Sender<AttemptOutcome>,
}

impl ReplicatedCallPools {
    pub(crate) fn new(
        runtime: RuntimeHandle,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        membership: Arc<Membership>,
        limits: ConnectionLimits,
    ) -> Self {
        ReplicatedCallPools {
            connector,
            clock,
            membership,
            limits: ConnectionLimits {
                response_timeout: limits.response_timeout + WAIT_TIMEOUT,
                ..limits
            },
            runtime,
            pools: Mutex::default(),
        }
    }

    /// Sends a call to that server in the next group. It may still be sent after the future is
    /// dropped.
    pub(crate) async fn send(
        &self,
        address: &Address,
        call: &Call,
        replicas: u32,
        asking: bool,
        text: bool,
        sent_with: Arc<SendMarker>,
    ) -> AttemptOutcome {
        let (tell, told) = oneshot::channel();
        let entry = GroupedCall {
            call: call.clone(),
            asking,
            sends_source: text,
            send_marker: sent_with,
            reply_tx: tell,
        };
        self.pool(replicas).push(address, entry);
        told.await.unwrap_or(AttemptOutcome::NoReply { sent: Some(0) })
    }

    /// Returns true if a call does not have to wait for a connection.
    pub(crate) fn is_ready(&self, address: &Address, replicas: u32) -> bool {
        self.pool(replicas).connections.get(address).is_some()
    }

    /// Closes the connections to servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        for pool in lock(&self.pools).by_replicas.values() {
            pool.connections.retain(&keep);
            lock(&pool.server_queues).retain(|address, lane| lane.is_running || keep(address));
        }
    }

    /// Retires the connections to `address` on which a command was sent at `sent`.
    pub(crate) fn retire_open_at(&self, address: &Address, sent: LocalInstant) {
        for pool in lock(&self.pools).by_replicas.values() {
            pool.connections.retire_open_at(address, sent);
        }
    }

    /// Drops all connections.
    pub(crate) fn close(&self) {
        let mut pools = lock(&self.pools);
        pools.closed = true;
        for pool in pools.by_replicas.values() {
            pool.connections.close();
            // The task that would send these calls may be gone.
            let addresses: Vec<Address> = lock(&pool.server_queues).keys().cloned().collect();
            addresses.iter().for_each(|address| pool.reject_waiting(address));
        }
    }

    fn pool(&self, replicas: u32) -> Arc<ReplicaPool> {
        let mut pools = lock(&self.pools);
        let PoolMap { by_replicas, closed } = &mut *pools;
        let pool = by_replicas.entry(replicas).or_insert_with(|| {
            let connections = ConnectionPool::new(
                self.runtime.clone(),
                self.connector.clone(),
                self.clock.clone(),
                self.membership.clone(),
                self.limits,
            );
            if *closed {
                connections.close();
            }
            Arc::new(ReplicaPool {
                replicas,
                clock: self.clock.clone(),
                runtime: self.runtime.clone(),
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

impl fmt::Debug for ReplicatedCallPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedCalls").finish_non_exhaustive()
    }
}

impl ReplicaPool {
    fn push(self: Arc<Self>, address: &Address, entry: GroupedCall) {
        let mut lanes = lock(&self.server_queues);
        let lane = lanes.entry(address.clone()).or_default();
        lane.waiting.push_back(entry);
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
        let most = lane.waiting.len().min(MAX_GROUP);
        let group: Vec<GroupedCall> =
            lane.waiting.drain(..most).filter(GroupedCall::is_wanted).collect();
        if group.is_empty() && lane.waiting.is_empty() {
            lane.is_running = false;
            return None;
        }
        Some(group)
    }

    /// Returns false if the server did not answer.
    async fn send_group(&self, address: &Address, mut group: Vec<GroupedCall>) -> bool {
        if group.is_empty() {
            return true;
        }
        let connected = self.connections.connect_or_wait(address).await;
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
        let clock = &*self.clock;
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
        let response_timeout = connection.response_timeout();
        let until = clock.now().saturating_add(response_timeout);
        let tell = |attempt: &dyn Fn(u64) -> AttemptOutcome, group: Vec<GroupedCall>| {
            for (entry, not_after) in group.into_iter().zip(&limits) {
                let _ = entry.reply_tx.send(attempt(*not_after));
            }
        };
        match connection.pipeline(clock, &commands, until).await {
            Ok(exchange) => {
                send_replies(connection, group, exchange);
                return true;
            }
            Err(ExchangeError::NoReply) => {
                connection.on_caller_timeout(clock.now(), response_timeout);
                tell(&|not_after| AttemptOutcome::NoReply { sent: Some(not_after) }, group);
            }
            Err(ExchangeError::Quiet) => {
                tell(&|not_after| AttemptOutcome::Quiet { not_after }, group)
            }
            Err(ExchangeError::Connection(failure)) => {
                let broken = |not_after| AttemptOutcome::ConnectionLost {
                    failure: failure.clone(),
                    not_after,
                };
                tell(&broken, group);
            }
        }
        false
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
            commands.push(to_command(
                &entry.call,
                entry.sends_source,
                connection.name(),
                *not_after,
            ));
        }
        let wait = Command::new().arg("WAIT").expecting(ReplyShape::Integer);
        let wait = wait.arg_u64(u64::from(self.replicas));
        commands.push(wait.arg_u64(WAIT_TIMEOUT.as_millis() as u64));
        commands
    }
}

/// Gives each entry its reply and the number of replicas. An error in place of the number confirms
/// nothing.
fn send_replies(
    connection: &ServerConnection,
    group: Vec<GroupedCall>,
    exchange: TimedReply<Vec<RespValue>>,
) {
    let TimedReply { mut value, sent_at: sent, received_at: received } = exchange;
    let confirmed = match value.pop() {
        Some(RespValue::Int(replicas)) => u32::try_from(replicas).unwrap_or(0),
        _ => 0,
    };
    let mut replies = value.into_iter();
    for entry in group {
        let mut next = || replies.next().unwrap_or(RespValue::Nil);
        let value = match entry.asking {
            true => merge_asking_reply(next(), next()),
            false => next(),
        };
        connection.observe(entry.call.slot, sent, received, &value);
        let exchange = TimedReply { value, sent_at: sent, received_at: received };
        let _ = entry.reply_tx.send(AttemptOutcome::Confirmed(exchange, confirmed));
    }
}
