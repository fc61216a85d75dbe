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

use crate::clock::{Clock, Moment};
use crate::node::{Address, Command, Connector, Reply, ReplyShape};
use crate::router::answer::after_asking;
use crate::router::call::Call;
use crate::router::connection::{Connection, Exchange, Failure, Limits};
use crate::router::connections::Connections;
use crate::router::in_flight::{Attempt, command};
use crate::router::lock;
use crate::router::membership::Membership;
use crate::router::runtime::Runtime;
use crate::router::sent_with::SentWith;

/// The most calls in one group.
const GROUP: usize = 128;

/// How long `WAIT` waits for replicas.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_millis(250);

/// The connections for confirmed calls, by the number of replicas: calls that too few replicas can
/// confirm do not delay the others.
pub(crate) struct ReplicatedCalls {
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    membership: Arc<Membership>,
    limits: Limits,
    runtime: Runtime,
    pools: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    by_replicas: HashMap<u32, Arc<Pool>>,
    /// A pool that is made after `close` gets no connections either.
    closed: bool,
}

/// The connections for one number of replicas.
struct Pool {
    replicas: u32,
    clock: Arc<dyn Clock>,
    runtime: Runtime,
    connections: Arc<Connections>,
    lanes: Mutex<HashMap<Address, Lane>>,
}

/// The next calls for one server.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Entry>,
    /// A task is sending them.
    driven: bool,
}

struct Entry {
    call: Call,
    asking: bool,
    text: bool,
    /// Set when the call is sent, because the caller may give up at any time.
    sent_with: Arc<SentWith>,
    tell: oneshot::Sender<Attempt>,
}

impl ReplicatedCalls {
    pub(crate) fn new(
        runtime: Runtime,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        membership: Arc<Membership>,
        limits: Limits,
    ) -> Self {
        ReplicatedCalls {
            connector,
            clock,
            membership,
            limits: Limits {
                response_timeout: limits.response_timeout + CONFIRM_TIMEOUT,
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
        sent_with: Arc<SentWith>,
    ) -> Attempt {
        let (tell, told) = oneshot::channel();
        let entry = Entry { call: call.clone(), asking, text, sent_with, tell };
        self.pool(replicas).push(address, entry);
        told.await.unwrap_or(Attempt::Silent { sent: Some(0) })
    }

    /// Returns true if a call does not have to wait for a connection.
    pub(crate) fn is_ready(&self, address: &Address, replicas: u32) -> bool {
        self.pool(replicas).connections.ready(address).is_some()
    }

    /// Closes the connections to servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        for pool in lock(&self.pools).by_replicas.values() {
            pool.connections.retain(&keep);
            lock(&pool.lanes).retain(|address, lane| lane.driven || keep(address));
        }
    }

    /// Retires the connections to `address` on which a command was sent at `sent`.
    pub(crate) fn retire_open_at(&self, address: &Address, sent: Moment) {
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
            let addresses: Vec<Address> = lock(&pool.lanes).keys().cloned().collect();
            addresses.iter().for_each(|address| pool.turn_back(address));
        }
    }

    fn pool(&self, replicas: u32) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        let Pools { by_replicas, closed } = &mut *pools;
        let pool = by_replicas.entry(replicas).or_insert_with(|| {
            let connections = Connections::new(
                self.runtime.clone(),
                self.connector.clone(),
                self.clock.clone(),
                self.membership.clone(),
                self.limits,
            );
            if *closed {
                connections.close();
            }
            Arc::new(Pool {
                replicas,
                clock: self.clock.clone(),
                runtime: self.runtime.clone(),
                connections,
                lanes: Mutex::default(),
            })
        });
        pool.clone()
    }
}

impl Entry {
    /// Returns true if the caller still waits for the answer.
    fn is_wanted(&self) -> bool {
        !self.tell.is_closed()
    }
}

impl fmt::Debug for ReplicatedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedCalls").finish_non_exhaustive()
    }
}

impl Pool {
    fn push(self: Arc<Self>, address: &Address, entry: Entry) {
        let mut lanes = lock(&self.lanes);
        let lane = lanes.entry(address.clone()).or_default();
        lane.waiting.push_back(entry);
        if !lane.driven {
            lane.driven = true;
            drop(lanes);
            // In a separate task, so that a caller that gives up does not stop it for the others.
            let runtime = self.runtime.clone();
            runtime.spawn("confirmed calls", self.drive(address.clone()));
        }
    }

    /// Sends group after group until no call waits. Calls do not wait behind a group without an
    /// answer: they begin anew, and watch for the slot's new master.
    async fn drive(self: Arc<Self>, address: Address) {
        while let Some(group) = self.next_group(&address) {
            if !self.send_group(&address, group).await {
                self.turn_back(&address);
            }
        }
    }

    fn turn_back(&self, address: &Address) {
        let mut lanes = lock(&self.lanes);
        let waiting = lanes.get_mut(address).map(|lane| mem::take(&mut lane.waiting));
        drop(lanes);
        for entry in waiting.into_iter().flatten() {
            let _ = entry.tell.send(Attempt::Silent { sent: None });
        }
    }

    fn next_group(&self, address: &Address) -> Option<Vec<Entry>> {
        let mut lanes = lock(&self.lanes);
        let lane = lanes.get_mut(address)?;
        let most = lane.waiting.len().min(GROUP);
        let group: Vec<Entry> = lane.waiting.drain(..most).filter(Entry::is_wanted).collect();
        if group.is_empty() && lane.waiting.is_empty() {
            lane.driven = false;
            return None;
        }
        Some(group)
    }

    /// Returns false if the server did not answer.
    async fn send_group(&self, address: &Address, mut group: Vec<Entry>) -> bool {
        if group.is_empty() {
            return true;
        }
        let connected = self.connections.reach(address).await;
        // A caller that has given up by now has released over another connection, or calls another
        // server.
        group.retain(Entry::is_wanted);
        match connected {
            Ok(connection) if !group.is_empty() => self.exchange(&connection, group).await,
            Ok(_) => true,
            Err(failure) => {
                for entry in group {
                    let _ = entry.tell.send(Attempt::Unconnected(failure.clone()));
                }
                false
            }
        }
    }

    /// Returns false if there was no answer.
    async fn exchange(&self, connection: &Arc<Connection>, group: Vec<Entry>) -> bool {
        let clock = &*self.clock;
        // From here on, a caller that gives up learns that its call may have been sent. Calls whose
        // callers gave up earlier are left out.
        let claimed = group.into_iter().filter_map(|entry| {
            let not_after = connection.server_ms(entry.call.not_after);
            entry.sent_with.note(not_after).then_some((entry, not_after))
        });
        let (group, limits): (Vec<Entry>, Vec<u64>) = claimed.unzip();
        if group.is_empty() {
            return true;
        }
        let commands = self.pipeline(connection, &group, &limits);
        let response_timeout = connection.response_timeout();
        let until = clock.now().after(response_timeout);
        let tell = |attempt: &dyn Fn(u64) -> Attempt, group: Vec<Entry>| {
            for (entry, not_after) in group.into_iter().zip(&limits) {
                let _ = entry.tell.send(attempt(*not_after));
            }
        };
        match connection.pipeline(clock, &commands, until).await {
            Ok(exchange) => {
                tell_replies(connection, group, exchange);
                return true;
            }
            Err(Failure::Silent) => {
                connection.gave_up(clock.now(), response_timeout);
                tell(&|not_after| Attempt::Silent { sent: Some(not_after) }, group);
            }
            Err(Failure::Quiet) => tell(&|not_after| Attempt::Quiet { not_after }, group),
            Err(Failure::Broken(failure)) => {
                let broken = |not_after| Attempt::Broken { failure: failure.clone(), not_after };
                tell(&broken, group);
            }
        }
        false
    }

    fn pipeline(&self, connection: &Connection, group: &[Entry], limits: &[u64]) -> Vec<Command> {
        let mut commands = Vec::with_capacity(group.len() + 1);
        for (entry, not_after) in group.iter().zip(limits) {
            if entry.asking {
                commands.push(Command::asking());
            }
            commands.push(command(&entry.call, entry.text, connection.name(), *not_after));
        }
        let wait = Command::new().word("WAIT").expecting(ReplyShape::Integer);
        let wait = wait.number(u64::from(self.replicas));
        commands.push(wait.number(CONFIRM_TIMEOUT.as_millis() as u64));
        commands
    }
}

/// Gives each entry its reply and the number of replicas. An error in place of the number confirms
/// nothing.
fn tell_replies(connection: &Connection, group: Vec<Entry>, exchange: Exchange<Vec<Reply>>) {
    let Exchange { mut value, sent, received } = exchange;
    let confirmed = match value.pop() {
        Some(Reply::Int(replicas)) => u32::try_from(replicas).unwrap_or(0),
        _ => 0,
    };
    let mut replies = value.into_iter();
    for entry in group {
        let mut next = || replies.next().unwrap_or(Reply::Nil);
        let value = match entry.asking {
            true => after_asking(next(), next()),
            false => next(),
        };
        connection.observe(entry.call.slot, sent, received, &value);
        let exchange = Exchange { value, sent, received };
        let _ = entry.tell.send(Attempt::Confirmed(exchange, confirmed));
    }
}
