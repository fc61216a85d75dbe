//! Sends calls over a cluster connection of the `redis` crate that belongs to the application.
//!
//! That connection follows redirects and repeats commands by its own rules, and does not say which
//! server answered. So this adapter relies on none of that: every script may run twice, an attempt
//! without an answer counts as under way until its `not_after`, and no connection state
//! (subscriptions, `WAIT`) is used. The connection's own faults, such as stalls and timeouts,
//! remain: `docs/backends.md` lists them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use ::redis::{Cmd, RedisError, Value};
use futures::future::{self, Either};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::clock::{Clock, Moment};
use crate::health::ClientHealth;
use crate::node::redis::{connect_failure, packed, reply_of};
use crate::node::{Address, NodeError, Reply, ServerError, server_ms};
use crate::router::about::server_time;
use crate::router::answer::{Decision, decide};
use crate::router::clock_bound::ClockBound;
use crate::router::in_flight::{MAX_PROTOCOL_ERRORS, command};
use crate::router::telemetry::{self, Attempted, Load};
use crate::router::time_out::time_out;
use crate::router::translation::Translation;
use crate::router::{ATTEMPTS, Answer, Call, CallError, Reason, Runtime, closed, lock};
use crate::slot::Slot;

/// The connection itself repeats a command, in some cases after 1.28 s or more, if its overall
/// timeout allows it. One attempt here must be long enough for that.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// Sends calls over a connection that the application uses as well.
pub(crate) struct ClusterAdapter {
    runtime: Runtime,
    connection: ClusterConnection,
    clock: Arc<dyn Clock>,
    /// The limit for one attempt.
    response_timeout: Duration,
    /// Bounds for the clock of each slot's server.
    bounds: Mutex<HashMap<Slot, ClockBound>>,
    load: Load,
    closed: AtomicBool,
}

/// A call under way and the history of its attempts.
#[derive(Default)]
struct InFlightCall {
    text: bool,
    troubles: u32,
    protocol_errors: u32,
    in_doubt: Option<u64>,
    last_error: Option<ServerError>,
    last_failure: Option<NodeError>,
}

impl ClusterAdapter {
    pub(crate) fn new(
        connection: ClusterConnection,
        clock: Arc<dyn Clock>,
        response_timeout: Duration,
    ) -> Self {
        ClusterAdapter {
            runtime: Runtime::current(ClientHealth::default()),
            connection,
            clock,
            response_timeout: response_timeout.max(LEAST_PATIENCE),
            bounds: Mutex::default(),
            load: Load::of(&somewhere()),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) async fn call(&self, call: &Call, deadline: Moment) -> Result<Answer, CallError> {
        let mut state = InFlightCall::default();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(state.failed(closed(self.runtime.health())));
            }
            if self.clock.now() >= deadline {
                let last = state.last_error.take();
                return Err(state.failed(Reason::TimedOut(last)));
            }
            if let Some(answer) = self.attempt(call, deadline, &mut state).await? {
                return Ok(answer);
            }
        }
    }

    /// `WAIT` counts the writes of its own connection, and blocks it. On a shared connection the
    /// count would be wrong, and the block would stop the other users.
    pub(crate) async fn call_replicated(
        &self,
        call: &Call,
        replicas: u32,
        deadline: Moment,
    ) -> Result<Answer, CallError> {
        if replicas == 0 {
            return self.call(call, deadline).await;
        }
        Err(beyond("replicas cannot be waited for"))
    }

    /// One placeholder, because the connection does not say which servers there are.
    /// [`Self::query`] refuses it.
    pub(crate) fn masters(&self) -> Vec<Address> {
        vec![somewhere()]
    }

    pub(crate) async fn query(&self) -> Result<Reply, CallError> {
        Err(beyond("the servers cannot be queried one by one"))
    }

    /// Reports each answer as it comes.
    pub(crate) async fn each(
        &self,
        calls: &[Call],
        deadline: Moment,
        tell: impl Fn(usize, Result<Answer, CallError>) + Send + Sync,
    ) {
        let mut under_way: FuturesUnordered<_> = calls
            .iter()
            .enumerate()
            .map(|(at, call)| async move { (at, self.call(call, deadline).await) })
            .collect();
        while let Some((at, outcome)) = under_way.next().await {
            tell(at, outcome);
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Makes later calls fail as `Closed`. The connection stays open: it is the application's.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Makes one attempt: the answer, an error, or `None` for another attempt.
    async fn attempt(
        &self,
        call: &Call,
        deadline: Moment,
        state: &mut InFlightCall,
    ) -> Result<Option<Answer>, CallError> {
        let not_after = match call.not_after {
            Some(moment) => match self.server_ms(call.slot, moment, deadline, state).await? {
                Some(server_ms) => server_ms,
                // Without a limit, the server could run it at any later time.
                None => {
                    self.pause(state, deadline).await;
                    return Ok(None);
                }
            },
            None => 0,
        };
        let command = command(call, state.text, "-", not_after);
        let (shape, command) = (command.shape(), packed(&command));
        let sent = self.clock.now();
        let in_flight = self.load.in_flight(1);
        let outcome = self.send(command, None, deadline).await;
        drop(in_flight);
        let tell = |outcome| telemetry::attempted(call.slot, &somewhere(), outcome);
        let Some(outcome) = outcome else {
            tell(Attempted::Silent);
            state.note_in_doubt(not_after);
            return Ok(None);
        };
        let received = self.clock.now();
        let checked = |reply| shape.check(&reply).map(|()| reply).map_err(NodeError::from);
        let reply = match outcome.and_then(checked) {
            Ok(reply) => reply,
            // Not the reply to this call. The connection cannot be replaced: it is the
            // application's.
            Err(failure) if failure.is_protocol_error => {
                tell(Attempted::Garbled);
                state.note_in_doubt(not_after);
                state.protocol_errors += 1;
                if state.protocol_errors == MAX_PROTOCOL_ERRORS {
                    return Err(state.failed(Reason::Garbled(failure.message)));
                }
                state.last_failure = Some(failure);
                self.pause(state, deadline).await;
                return Ok(None);
            }
            Err(failure) => {
                tell(Attempted::Broken);
                state.note_in_doubt(not_after);
                state.last_failure = Some(failure);
                self.pause(state, deadline).await;
                return Ok(None);
            }
        };
        if let Some(server_ms) = server_ms(&reply).filter(|server_ms| *server_ms > 0) {
            self.observe(call.slot, sent, received, server_ms);
        }
        let decision = decide(reply, call.slot, &somewhere(), &Translation::default());
        tell(decision.outcome());
        match decision {
            Decision::Done(reply) => Ok(Some(Answer {
                reply,
                sent,
                received,
                address: somewhere(),
                confirmed: 0,
                in_doubt: state.in_doubt,
            })),
            Decision::NoScript if state.text => {
                Err(state.failed(Reason::Garbled("NOSCRIPT in answer to EVAL".into())))
            }
            Decision::NoScript => {
                state.text = true;
                Ok(None)
            }
            // The connection itself follows redirects up to its own limit. It may have sent the
            // call before, and lost that answer.
            Decision::Moved(_) | Decision::Ask(_) => {
                state.note_in_doubt(not_after);
                self.pause(state, deadline).await;
                Ok(None)
            }
            Decision::Backoff { error, .. } => {
                state.last_error = Some(error);
                self.pause(state, deadline).await;
                Ok(None)
            }
            Decision::Refused(error) => {
                // The connection may have sent it before, and lost that answer.
                state.note_in_doubt(not_after);
                Err(state.failed(Reason::Refused(error)))
            }
            Decision::Garbled(what) => {
                state.note_in_doubt(0);
                Err(state.failed(Reason::Garbled(what)))
            }
        }
    }

    /// Sends a command. `None` if there was no answer in time.
    async fn send(
        &self,
        command: Cmd,
        slot: Option<Slot>,
        deadline: Moment,
    ) -> Option<Result<Reply, NodeError>> {
        let mut connection = self.connection.clone();
        let request = Box::pin(async move {
            match slot {
                None => command.query_async::<Value>(&mut connection).await,
                Some(slot) => {
                    let route = Route::new(slot.get(), SlotAddr::Master);
                    let routing =
                        RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                    connection.route_command(command, routing).await
                }
            }
        });
        let until = self.clock.now().after(self.response_timeout).min(deadline);
        match future::select(request, pin!(time_out(&*self.clock, until))).await {
            Either::Left((outcome, _)) => Some(outcome.map(reply_of).or_else(reply_of_error)),
            Either::Right(_) => None,
        }
    }

    /// An upper bound for the reading of the slot's server's clock at a moment. Queries the
    /// server's time on first use. `None` if it did not answer; the next attempt may succeed.
    async fn server_ms(
        &self,
        slot: Slot,
        moment: Moment,
        deadline: Moment,
        state: &mut InFlightCall,
    ) -> Result<Option<u64>, CallError> {
        let known = self.known_server_ms(slot, moment);
        if known.is_some() {
            return Ok(known);
        }
        let sent = self.clock.now();
        let mut time = Cmd::new();
        time.arg("TIME");
        let told = match self.send(time, Some(slot), deadline).await {
            Some(outcome) => outcome.and_then(|reply| server_time(Some(reply))),
            None => return Ok(None),
        };
        match told {
            Ok(server_ms) => self.observe(slot, sent, self.clock.now(), server_ms),
            Err(failure) => {
                let permanent = failure.permanent;
                state.last_failure = Some(failure);
                if permanent {
                    return Err(state.failed(Reason::Permanent));
                }
            }
        }
        Ok(self.known_server_ms(slot, moment))
    }

    fn known_server_ms(&self, slot: Slot, moment: Moment) -> Option<u64> {
        lock(&self.bounds).get(&slot)?.server_ms_at_most(moment)
    }

    fn observe(&self, slot: Slot, sent: Moment, received: Moment, server_ms: u64) {
        let mut bounds = lock(&self.bounds);
        let bound = bounds.entry(slot).or_default();
        bound.observe(sent, received, server_ms);
        if !bound.is_consistent() {
            // Another server has the slot now, with another clock.
            *bound = ClockBound::default();
            bound.observe(sent, received, server_ms);
        }
    }

    async fn pause(&self, state: &mut InFlightCall, deadline: Moment) {
        let pause = ATTEMPTS.pause(state.troubles);
        state.troubles += 1;
        let until = self.clock.now().after(pause).min(deadline);
        self.clock.sleep_until(until).await;
    }
}

impl fmt::Debug for ClusterAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAdapter").finish_non_exhaustive()
    }
}

impl InFlightCall {
    fn note_in_doubt(&mut self, not_after: u64) {
        self.in_doubt = match self.in_doubt {
            Some(0) => Some(0),
            _ if not_after == 0 => Some(0),
            before => before.max(Some(not_after)),
        };
    }

    fn failed(&mut self, reason: Reason) -> CallError {
        CallError { reason, in_doubt: self.in_doubt, last: self.last_failure.take() }
    }
}

/// An error that a server answered is an answer.
fn reply_of_error(error: RedisError) -> Result<Reply, NodeError> {
    match error.code() {
        Some(code) => Ok(Reply::Error(ServerError::new(code, error.detail().unwrap_or_default()))),
        None => Err(NodeError { maybe_sent: true, ..connect_failure(error) }),
    }
}

/// The error for a call that needs connections of this library's own.
fn beyond(what: &str) -> CallError {
    InFlightCall::default().failed(Reason::Refused(ServerError {
        code: "ERR".into(),
        detail: format!("{what} on a connection of the application's"),
    }))
}

/// A placeholder address: the connection does not say which server it called.
fn somewhere() -> Address {
    Address { host: "cluster".into(), port: 0 }
}
