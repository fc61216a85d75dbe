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
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use ::redis::{Cmd, RedisError, Value};
use futures::future::{self, Either};
use futures::stream::{FuturesUnordered, StreamExt};
use rwlease_core::protocol::{Call, CallError, CallErrorKind, CallReply, Confirmation, Doubt};
use rwlease_core::resp::{Address, Command, RespValue, ServerError, server_ms};
use rwlease_core::slot::Slot;
use rwlease_core::time::{ClockBounds, LocalInstant};

use crate::backend::ConnectionError;
use crate::backend::redis::{connect_error, from_value, to_cmd};
use crate::clock::Clock;
use crate::health::ClientHealth;
use crate::locks::lock;
use crate::router::address_translation::AddressTranslator;
use crate::router::calls::in_flight::{MAX_PROTOCOL_ERRORS, script_call};
use crate::router::calls::reply_action::{ReplyAction, action_for_reply};
use crate::router::calls::send_gate::SendGate;
use crate::router::calls::{ATTEMPT_BACKOFF, call_error, unconnected};
use crate::router::connections::reply_timeout::reply_timeout;
use crate::router::connections::send_permit::Priority;
use crate::router::connections::server_info::parse_time;
use crate::router::runtime::RuntimeHandle;
use crate::router::telemetry::{self, ServerLoad};
use crate::scripts::Scripts;

/// The connection itself repeats a command, in some cases after 1.28 s or more, if its overall
/// timeout allows it. One attempt here must be long enough for that.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends calls over a connection that the application uses as well.
pub(crate) struct ClusterAdapter {
    pub(super) runtime: RuntimeHandle,
    connection: ClusterConnection,
    clock: Arc<dyn Clock>,
    /// The limit for one attempt.
    response_timeout: Duration,
    /// Bounds for the clock of each slot's server.
    bounds: Mutex<HashMap<Slot, ClockBounds>>,
    load: ServerLoad,
    closed: AtomicBool,
}

/// A call under way and the history of its attempts.
#[derive(Default)]
struct AdapterCall {
    sends_source: bool,
    failure_count: u32,
    protocol_errors: u32,
    in_doubt: Doubt,
    last_error: Option<ServerError>,
    last_failure: Option<ConnectionError>,
}

impl ClusterAdapter {
    pub(crate) fn new(
        connection: ClusterConnection,
        clock: Arc<dyn Clock>,
        response_timeout: Duration,
    ) -> Self {
        ClusterAdapter {
            runtime: RuntimeHandle::current(ClientHealth::default()),
            connection,
            clock,
            response_timeout: response_timeout.max(MIN_ATTEMPT_TIMEOUT),
            bounds: Mutex::default(),
            load: ServerLoad::of(&placeholder_address()),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection does not tell when it sends, so the gate is passed at once.
    ///
    /// `WAIT` counts the writes of its own connection, and blocks it. On a shared connection the
    /// count would be wrong, and the block would stop the other users.
    pub(crate) async fn call_with(
        &self,
        call: &Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
        gate: Option<&SendGate>,
    ) -> Result<CallReply, CallError> {
        let mut state = AdapterCall::default();
        if gate.is_some_and(|gate| !gate.pass()) {
            return Err(state.failed(CallErrorKind::Closed));
        }
        if !confirmation.is_empty() {
            return Err(unsupported("`min_replicas` and `fsync` are not supported"));
        }
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(state.failed(self.runtime.closed()));
            }
            if self.clock.now() >= deadline {
                let last = state.last_error.take();
                return Err(state.failed(CallErrorKind::TimedOut(last)));
            }
            if let Some(answer) = self.attempt(call, deadline, &mut state).await? {
                return Ok(answer);
            }
        }
    }

    /// One placeholder, because the connection does not say which servers there are.
    /// [`Self::query`] refuses it.
    pub(crate) fn masters(&self) -> Vec<Address> {
        vec![placeholder_address()]
    }

    pub(crate) async fn query(
        &self,
        _: &Address,
        _: &Command,
        _: LocalInstant,
    ) -> Result<RespValue, CallError> {
        Err(unsupported("queries of single servers are not supported"))
    }

    /// Reports each reply when it arrives. Calls wait for no permits, so priority has no effect.
    pub(crate) async fn call_each(
        &self,
        calls: &[Call],
        deadline: LocalInstant,
        _: Priority,
        on_reply: impl Fn(usize, Result<CallReply, CallError>) + Send + Sync,
    ) {
        let mut under_way: FuturesUnordered<_> = calls
            .iter()
            .enumerate()
            .map(|(at, call)| async move {
                (at, self.call_with(call, Confirmation::default(), deadline, None).await)
            })
            .collect();
        while let Some((at, outcome)) = under_way.next().await {
            on_reply(at, outcome);
        }
    }

    /// Makes later calls fail as `Closed`. The connection stays open: it is the application's.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Makes one attempt: the answer, an error, or `None` for another attempt.
    async fn attempt(
        &self,
        call: &Call,
        deadline: LocalInstant,
        state: &mut AdapterCall,
    ) -> Result<Option<CallReply>, CallError> {
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
        let script = Scripts::embedded().get(call.script);
        let command =
            script_call(script.words(state.sends_source), call, "-", not_after).to_command();
        let (shape, command) = (command.shape(), to_cmd(&command));
        let sent = self.clock.now();
        let in_flight = self.load.in_flight(1);
        let outcome = self.send(command, None, deadline).await;
        drop(in_flight);
        let tell = |outcome| telemetry::record_attempt(call.slot, &placeholder_address(), outcome);
        let Some(outcome) = outcome else {
            tell("no_reply");
            state.note_in_doubt(Doubt::of_attempt(not_after));
            return Ok(None);
        };
        let received = self.clock.now();
        let checked = |reply| shape.check(&reply).map(|()| reply).map_err(ConnectionError::from);
        let reply = match outcome.and_then(checked) {
            Ok(reply) => reply,
            Err(failure) => {
                state.note_in_doubt(Doubt::of_attempt(not_after));
                // Not the reply to this call. The connection cannot be replaced: it is the
                // application's.
                if failure.is_protocol_error {
                    tell("malformed");
                    state.protocol_errors += 1;
                    if state.protocol_errors == MAX_PROTOCOL_ERRORS {
                        let reason = failure.chain().to_string();
                        return Err(state.failed(CallErrorKind::MalformedReply(reason)));
                    }
                } else {
                    tell("connection_lost");
                }
                state.last_failure = Some(failure);
                self.pause(state, deadline).await;
                return Ok(None);
            }
        };
        if let Some(server_ms) = server_ms(&reply).filter(|server_ms| *server_ms > 0) {
            self.observe(call.slot, sent, received, server_ms);
        }
        let decision = action_for_reply(
            reply,
            call.slot,
            &placeholder_address(),
            &AddressTranslator::default(),
        );
        tell(decision.label());
        match decision {
            ReplyAction::Done(reply) => Ok(Some(CallReply {
                value: reply,
                sent_at: sent,
                received_at: received,
                server: placeholder_address(),
                confirmed: Ok(()),
                in_doubt: state.in_doubt,
            })),
            ReplyAction::NoScript if state.sends_source => Err(state.failed(
                CallErrorKind::MalformedReply("unexpected reply to EVAL: NOSCRIPT".into()),
            )),
            ReplyAction::NoScript => {
                state.sends_source = true;
                Ok(None)
            }
            // The connection repeats calls and follows redirects up to its own limit. It may have
            // sent the call before, and lost that answer.
            ReplyAction::Moved(_) | ReplyAction::Ask(_) => {
                state.note_in_doubt(Doubt::of_attempt(not_after));
                self.pause(state, deadline).await;
                Ok(None)
            }
            ReplyAction::RetryLater { error, .. } => {
                // A call that may arrive at any time is one that may be repeated.
                if not_after > 0 {
                    state.note_in_doubt(Doubt::of_attempt(not_after));
                }
                state.last_error = Some(error);
                self.pause(state, deadline).await;
                Ok(None)
            }
            ReplyAction::Rejected(error) => {
                state.note_in_doubt(Doubt::of_attempt(not_after));
                Err(state.failed(CallErrorKind::Rejected(error)))
            }
            ReplyAction::Malformed(reason) => {
                state.note_in_doubt(Doubt::Unbounded);
                Err(state.failed(CallErrorKind::MalformedReply(reason)))
            }
        }
    }

    /// Sends a command. `None` if there was no answer in time.
    async fn send(
        &self,
        command: Cmd,
        slot: Option<Slot>,
        deadline: LocalInstant,
    ) -> Option<Result<RespValue, ConnectionError>> {
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
        let until = self.clock.now().saturating_add(self.response_timeout).min(deadline);
        match future::select(request, pin!(reply_timeout(&*self.clock, until))).await {
            Either::Left((outcome, _)) => Some(outcome.map(from_value).or_else(reply_of_error)),
            Either::Right(_) => None,
        }
    }

    /// An upper bound for the reading of the slot's server's clock at a moment. Queries the
    /// server's time on first use. `None` without a reply; the next attempt may succeed.
    async fn server_ms(
        &self,
        slot: Slot,
        moment: LocalInstant,
        deadline: LocalInstant,
        state: &mut AdapterCall,
    ) -> Result<Option<u64>, CallError> {
        let known = self.known_server_ms(slot, moment);
        if known.is_some() {
            return Ok(known);
        }
        let sent = self.clock.now();
        let mut time = Cmd::new();
        time.arg("TIME");
        let told = match self.send(time, Some(slot), deadline).await {
            Some(outcome) => outcome.and_then(|reply| parse_time(Some(reply))),
            None => return Ok(None),
        };
        match told {
            Ok(server_ms) => self.observe(slot, sent, self.clock.now(), server_ms),
            Err(failure) => {
                if failure.is_permanent {
                    return Err(CallError { in_doubt: state.in_doubt, ..unconnected(failure) });
                }
                state.last_failure = Some(failure);
            }
        }
        Ok(self.known_server_ms(slot, moment))
    }

    fn known_server_ms(&self, slot: Slot, moment: LocalInstant) -> Option<u64> {
        lock(&self.bounds).get(&slot)?.max_server_ms(moment)
    }

    fn observe(&self, slot: Slot, sent: LocalInstant, received: LocalInstant, server_ms: u64) {
        let mut bounds = lock(&self.bounds);
        let bound = bounds.entry(slot).or_default();
        bound.observe(sent, received, server_ms);
        if !bound.is_consistent() {
            // Another server has the slot now, with another clock.
            *bound = ClockBounds::default();
            bound.observe(sent, received, server_ms);
        }
    }

    async fn pause(&self, state: &mut AdapterCall, deadline: LocalInstant) {
        let pause = ATTEMPT_BACKOFF.delay(state.failure_count);
        state.failure_count += 1;
        let until = self.clock.now().saturating_add(pause).min(deadline);
        self.clock.sleep_until(until).await;
    }
}

impl AdapterCall {
    fn note_in_doubt(&mut self, attempt: Doubt) {
        self.in_doubt = self.in_doubt.max(attempt);
    }

    fn failed(&mut self, reason: CallErrorKind) -> CallError {
        call_error(reason, self.in_doubt, self.last_failure.take())
    }
}

/// An error that a server answered is an answer.
fn reply_of_error(error: RedisError) -> Result<RespValue, ConnectionError> {
    match error.code() {
        Some(code) => {
            Ok(RespValue::Error(ServerError::new(code, error.detail().unwrap_or_default())))
        }
        None => Err(ConnectionError { maybe_sent: true, ..connect_error(error) }),
    }
}

/// The error for a call that needs connections of this library's own.
fn unsupported(what: &str) -> CallError {
    AdapterCall::default().failed(CallErrorKind::Rejected(ServerError {
        code: "ERR".into(),
        message: format!("{what} over a connection of the application's"),
    }))
}

/// A placeholder address: the connection does not say which server it called.
fn placeholder_address() -> Address {
    Address { host: "cluster".into(), port: 0 }
}
