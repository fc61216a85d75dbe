//! One command or pipeline, and the wait for its reply.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{self, Either};
use rwlease_core::resp::{Address, Command, EncodedScriptCall, ProtocolError, RespValue};
use rwlease_core::time::LocalInstant;

use crate::backend::{ConnectionError, ResponseFuture};
use crate::router::connections::limits::TimeLimit;
use crate::router::connections::reply_timeout::reply_timeout;
use crate::router::connections::send_permit::{PermitPool, SendPermit};
use crate::router::connections::server_connection::ServerConnection;

/// A wait without a limit.
const NO_DEADLINE: LocalInstant = LocalInstant::from_duration(Duration::MAX);

/// When a connection last brought anything. A server answers in order, so any answer shows that it
/// is working on the earlier calls.
///
/// One word: microseconds, and in the lowest bit whether something was sent since.
#[derive(Debug, Default)]
pub(crate) struct LastActivity(AtomicU64);

impl LastActivity {
    /// Something is sent. If everything was answered before, the quiet time begins now.
    pub(crate) fn on_send(&self, now: LocalInstant) {
        let last = self.0.load(Ordering::Relaxed);
        if last & 1 == 0 {
            let asked = now.as_micros() << 1 | 1;
            let _ = self.0.compare_exchange(last, asked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// An answer came, to any command.
    pub(crate) fn on_receive(&self, now: LocalInstant) {
        self.0.store(now.as_micros() << 1, Ordering::Relaxed);
    }

    /// Since when nothing has come, for a call that was sent at `sent` and has no answer.
    pub(crate) fn idle_since(&self, sent: LocalInstant) -> LocalInstant {
        sent.max(self.last())
    }

    /// When the last answer came, or when the first command after it was sent.
    pub(crate) fn last(&self) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_micros(self.0.load(Ordering::Relaxed) >> 1))
    }
}

/// An answer, with the times when its command was sent and when the answer came.
#[derive(Debug)]
pub(crate) struct TimedReply<T> {
    pub(crate) value: T,
    pub(crate) sent_at: LocalInstant,
    pub(crate) received_at: LocalInstant,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum ExchangeError {
    /// The time was up. What was sent may still arrive.
    NoReply,
    /// The connection brought nothing at all for too long, and is retired. What was sent may still
    /// arrive.
    Quiet,
    Connection(ConnectionError),
}

impl<T> TimedReply<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> TimedReply<U> {
        let TimedReply { value, sent_at, received_at } = self;
        TimedReply { value: change(value), sent_at, received_at }
    }
}

impl TimedReply<Vec<RespValue>> {
    /// Returns the replies of a pipeline one after the other. There is one to each command.
    pub(crate) fn into_each(self) -> impl FnMut() -> TimedReply<RespValue> {
        let TimedReply { value, sent_at, received_at } = self;
        let mut replies = value.into_iter();
        move || {
            let value = replies.next().unwrap_or(RespValue::Nil);
            TimedReply { value, sent_at, received_at }
        }
    }
}

impl ServerConnection {
    /// Sends a command and waits for its reply until `deadline`. A permit is held until the reply.
    pub(crate) async fn call(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        command: Command,
        deadline: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        self.single(|| self.node.call(command), permit, deadline).await
    }

    pub(crate) async fn call_script(
        self: &Arc<Self>,
        permit: SendPermit<'_>,
        call: &EncodedScriptCall<'_>,
        deadline: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        self.single(|| self.node.call_script(call), Some(permit), deadline).await
    }

    async fn single(
        self: &Arc<Self>,
        send: impl FnOnce() -> ResponseFuture<RespValue>,
        permit: Option<SendPermit<'_>>,
        deadline: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        let _in_flight = self.load.in_flight(1);
        let exchange = self.exchange(send, permit, deadline, self.response_timeout).await?;
        self.check_auth_errors(std::slice::from_ref(&exchange.value))?;
        Ok(exchange)
    }

    /// Sends a pipeline and waits for its replies until `deadline`. There is an answer to each
    /// command.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        commands: &[Command],
        deadline: LocalInstant,
    ) -> Result<TimedReply<Vec<RespValue>>, ExchangeError> {
        self.pipeline_within(permit, commands, deadline, self.response_timeout).await
    }

    /// Queries the server about itself or its cluster, and waits for the replies that long, even if
    /// `response_timeout` is shorter.
    pub(crate) async fn query(
        self: &Arc<Self>,
        address: &Address,
        commands: &[Command],
        limit: TimeLimit,
    ) -> Result<Vec<RespValue>, ConnectionError> {
        let deadline = self.clock.now().saturating_add(limit.length);
        match self.pipeline_within(None, commands, deadline, limit.length).await {
            Ok(exchange) => Ok(exchange.value),
            Err(ExchangeError::Connection(failure)) => {
                Err(ConnectionError { maybe_sent: false, ..failure })
            }
            Err(ExchangeError::NoReply | ExchangeError::Quiet) => Err(limit.no_reply(address)),
        }
    }

    async fn pipeline_within(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        commands: &[Command],
        deadline: LocalInstant,
        max_silence: Duration,
    ) -> Result<TimedReply<Vec<RespValue>>, ExchangeError> {
        let _in_flight = self.load.in_flight(commands.len());
        let exchange =
            self.exchange(|| self.node.pipeline(commands), permit, deadline, max_silence).await?;
        if exchange.value.len() == commands.len() {
            self.check_auth_errors(&exchange.value)?;
            return Ok(exchange);
        }
        // The replies on this connection may be out of step with its commands.
        self.retire_untrusted();
        let message =
            format!("unexpected replies: {} to {} commands", exchange.value.len(), commands.len());
        let failure = ConnectionError::from(ProtocolError(message.into()));
        Err(ExchangeError::Connection(ConnectionError { maybe_sent: true, ..failure }))
    }

    /// Sends, and waits for the reply. Without a reply, retires a connection that brought nothing
    /// for `max_silence`: the network may have dropped it without any sign.
    async fn exchange<T: Send + 'static>(
        self: &Arc<Self>,
        send: impl FnOnce() -> ResponseFuture<T>,
        permit: Option<SendPermit<'_>>,
        deadline: LocalInstant,
        max_silence: Duration,
    ) -> Result<TimedReply<T>, ExchangeError> {
        let outcome = self.send_and_wait(send, permit, deadline, max_silence).await;
        if let Err(ExchangeError::NoReply) = outcome
            && self.clock.now() >= self.activity.0.last().saturating_add(max_silence)
        {
            self.retire();
        }
        outcome
    }

    async fn send_and_wait<T: Send + 'static>(
        self: &Arc<Self>,
        send: impl FnOnce() -> ResponseFuture<T>,
        permit: Option<SendPermit<'_>>,
        deadline: LocalInstant,
        max_silence: Duration,
    ) -> Result<TimedReply<T>, ExchangeError> {
        // Read before anything is sent: a lease counts from here.
        let sent = self.clock.now();
        self.activity.0.on_send(sent);
        let mut in_flight =
            InFlightCommand { connection: self, response: Some(send()), permit, sent, deadline };
        let Some(response) = &mut in_flight.response else {
            return Err(ExchangeError::NoReply);
        };
        let outcome = self.await_reply(response, sent, deadline, max_silence).await;
        if in_flight.permit.as_ref().is_some_and(SendPermit::is_for_call) {
            self.adapt_call_limit(&outcome, sent);
        }
        let outcome = match outcome {
            // Its effect may be lost, or may have reached the new master.
            Ok(_) if self.is_superseded() => Err(ExchangeError::NoReply),
            outcome => outcome,
        };
        if !matches!(outcome, Err(ExchangeError::NoReply)) {
            in_flight.response = None;
        }
        outcome
    }

    fn adapt_call_limit<T>(
        &self,
        outcome: &Result<TimedReply<T>, ExchangeError>,
        sent: LocalInstant,
    ) {
        let limit = &self.call_limit.0;
        match outcome {
            Ok(_) => limit.on_reply(),
            Err(ExchangeError::NoReply) => limit.on_timeout(sent, self.clock.now()),
            Err(ExchangeError::Quiet | ExchangeError::Connection(_)) => {}
        }
    }

    /// Waits for a reply until `deadline`, unless the connection brings nothing at all for
    /// `max_silence` before. While anything arrives, the server is working on earlier calls, and a
    /// second copy would only queue behind the first.
    async fn await_reply<T>(
        &self,
        response: &mut ResponseFuture<T>,
        sent: LocalInstant,
        deadline: LocalInstant,
        max_silence: Duration,
    ) -> Result<TimedReply<T>, ExchangeError> {
        let mut now = sent;
        loop {
            let silence_deadline = self.activity.0.idle_since(sent).saturating_add(max_silence);
            let limit = pin!(self.wait_until(silence_deadline.min(deadline), now));
            match future::select(&mut *response, limit).await {
                Either::Left((Ok(value), _)) => {
                    let received = self.clock.now();
                    self.activity.0.on_receive(received);
                    let round_trip = received.saturating_duration_since(sent);
                    self.call_limit.0.observe_round_trip(round_trip);
                    if !self.proven.load(Ordering::Relaxed) && !self.retired.load(Ordering::Relaxed)
                    {
                        self.proven.store(true, Ordering::Relaxed);
                    }
                    return Ok(TimedReply { value, sent_at: sent, received_at: received });
                }
                Either::Left((Err(failure), _)) => {
                    match failure.is_protocol_error {
                        true => self.retire_untrusted(),
                        false => self.retire(),
                    }
                    return Err(ExchangeError::Connection(failure));
                }
                Either::Right((is_time_up, _)) => {
                    now = self.clock.now();
                    // A late beat finds the time up, but says nothing about the server.
                    if !is_time_up {
                        continue;
                    }
                }
            }
            if now >= self.activity.0.idle_since(sent).saturating_add(max_silence) {
                self.retire();
                return Err(ExchangeError::Quiet);
            }
            if now >= deadline {
                return Err(ExchangeError::NoReply);
            }
        }
    }

    /// Waits until `deadline` and returns true, or returns false when it is time to compute the
    /// wait again.
    async fn wait_until(&self, deadline: LocalInstant, now: LocalInstant) -> bool {
        let is_early = self.shared_timer.ticks_before(deadline.saturating_duration_since(now));
        match is_early {
            true => self.shared_timer.next_tick().await,
            false => Box::pin(reply_timeout(&*self.clock, deadline)).await,
        }
        !is_early
    }
}

/// A command under way. If the future is dropped before the reply, a background task waits for the
/// reply. The reply shows that the server works, and until then the command keeps its permit.
struct InFlightCommand<'a, T: Send + 'static> {
    connection: &'a Arc<ServerConnection>,
    response: Option<ResponseFuture<T>>,
    permit: Option<SendPermit<'a>>,
    sent: LocalInstant,
    deadline: LocalInstant,
}

impl<T: Send + 'static> Drop for InFlightCommand<'_, T> {
    fn drop(&mut self) {
        let Some(mut response) = self.response.take().filter(|_| self.connection.is_usable())
        else {
            return;
        };
        let (connection, sent, deadline) = (self.connection.clone(), self.sent, self.deadline);
        let permit = self.permit.take().map(SendPermit::take);
        self.connection.runtime.spawn("late answer", async move {
            let max_silence = connection.response_timeout;
            let reply = connection.await_reply(&mut response, sent, NO_DEADLINE, max_silence).await;
            if let (Ok(reply), Some(PermitPool::Calls)) = (reply, permit) {
                match reply.received_at < deadline {
                    true => connection.call_limit.0.on_reply(), // the caller did not wait so long
                    false => connection.call_limit.0.on_late_reply(sent, reply.received_at),
                }
            }
            if let Some(pool) = permit {
                connection.return_permit(pool);
            }
        });
    }
}

#[cfg(test)]
mod tests;
