//! A connection to one server, and what is known about that server.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use futures::future::{self, Either};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, TryAcquireError};

use crate::backend::{
    Address, Command, CommandConnection, ConnectionError, Connector, EncodedScriptCall,
    ProtocolError, ReplyShape, RespValue, ResponseFuture, server_ms,
};
use crate::clock::{Clock, LocalInstant};
use crate::router::activity::LastActivity;
use crate::router::belief::{ServerIdentity, ServerProcess};
use crate::router::clock_bounds::ClockBounds;
use crate::router::connect_error::{connect_error, no_handshake};
use crate::router::master_term::MasterTerm;
use crate::router::reply_timeout::reply_timeout;
use crate::router::runtime::RuntimeHandle;
use crate::router::server_info::{auth_error, check_kind, parse_server_name, parse_time};
use crate::router::shared_timer::SharedTimer;
use crate::router::telemetry::ServerLoad;
use crate::router::time_limit::TimeLimit;
use crate::router::{delifeq, lock, reply_action};
use crate::slot::Slot;

/// The most pipelines of batches under way at once. More would only wait at the server and time out
/// there.
const MAX_PIPELINES: usize = 4;

/// How often, within `response_timeout`, calls that wait for an answer check whether their time is
/// up soon.
const TIMER_CHECKS: u32 = 8;

/// The name of a server that does not report its run id.
const UNKNOWN_SERVER: &str = "-";

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The limit for opening a connection, its first answers included.
    pub(crate) connect_timeout: Duration,
    /// How long a connection may be quiet while something is under way on it.
    pub(crate) response_timeout: Duration,
    /// The most calls under way at once.
    pub(crate) max_in_flight: usize,
}

impl ConnectionLimits {
    pub(crate) fn of_opening(&self) -> TimeLimit {
        TimeLimit { length: self.connect_timeout, setting: "connect_timeout" }
    }

    pub(crate) fn of_replies(&self) -> TimeLimit {
        TimeLimit { length: self.response_timeout, setting: "response_timeout" }
    }
}

/// A connection that carries commands.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    name: Box<str>,
    identity: ServerIdentity,
    /// Its map has shown that it belongs to the known cluster.
    map_verified: AtomicBool,
    /// The server has `DELIFEQ`, and has not refused it.
    has_delifeq: AtomicBool,
    node: Arc<dyn CommandConnection>,
    clock: Arc<dyn Clock>,
    response_timeout: Duration,
    shared_timer: Arc<SharedTimer>,
    runtime: RuntimeHandle,
    clock_bounds: CachePadded<Mutex<ClockBounds>>,
    opened: LocalInstant,
    retired: AtomicBool,
    /// Set where sentinels name the master: ends when another server becomes the master.
    master_term: OnceLock<Arc<MasterTerm>>,
    /// The next connection may have other credentials.
    rotates_credentials: bool,
    /// It has answered, and the last answer was no reason to retire it.
    proven: Arc<AtomicBool>,
    /// Permits for calls under way; closed when the connection is retired.
    call_permits: CachePadded<Semaphore>,
    /// Permits for pipelines of batches; closed likewise.
    pipeline_permits: Semaphore,
    /// Those for pipelines of renewals, which do not wait behind others.
    renewals: Semaphore,
    load: ServerLoad,
    activity: CachePadded<LastActivity>,
}

/// Separates what every call writes from what every call reads. A core that writes takes the whole
/// cache line (two, on some) from the others.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// An answer, with the times when its command was sent and when the answer came.
#[derive(Debug)]
pub(crate) struct TimedReply<T> {
    pub(crate) value: T,
    pub(crate) sent_at: LocalInstant,
    pub(crate) received_at: LocalInstant,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The time was up. What was sent may still arrive.
    NoReply,
    /// The connection brought nothing at all for too long, and is retired. What was sent may still
    /// arrive.
    Quiet,
    Connection(ConnectionError),
}

/// Permission to send one more call or pipeline.
#[derive(Debug)]
pub(crate) struct SendPermit<'a> {
    permit: SemaphorePermit<'a>,
    pool: PermitPool,
}

#[derive(Clone, Copy, Debug)]
enum PermitPool {
    Calls,
    Pipelines(Priority),
}

/// Which pipelines of batches wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Renewals of leases. They do not wait for others, of which there can be any number.
    Renewals,
    Normal,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PermitError {
    /// The server did not finish earlier calls in time.
    DeadlineExceeded,
    /// The connection is retired: make another one.
    ConnectionRetired,
}

impl ServerConnection {
    /// Connects, and queries the server for its time, its name and its id. With `place`, dials that
    /// address, to which the host name was resolved before.
    pub(crate) async fn open(
        connector: &dyn Connector,
        clock: Arc<dyn Clock>,
        address: &Address,
        place: Option<&str>,
        limits: ConnectionLimits,
    ) -> Result<ServerConnection, ConnectionError> {
        let limit = limits.of_opening();
        let connects_with_tls = AtomicBool::new(connector.uses_tls());
        let opening = Box::pin(async {
            let node = match place {
                None => connector.connect(address).await?,
                Some(place) => connector.connect_to_addr(address, place).await?,
            };
            connects_with_tls.store(false, Ordering::Relaxed);
            let sent = clock.now();
            let replies = node
                .pipeline(&[
                    Command::new().arg("TIME").expecting(ReplyShape::List),
                    Command::new().arg("INFO").arg("server").expecting(ReplyShape::Text),
                    Command::new().arg("CLUSTER").arg("MYID").expecting(ReplyShape::Text),
                ])
                .await?;
            Ok((node, sent, clock.now(), replies))
        });
        let at = |failure| connect_error(failure, address, connector.uses_tls());
        let until = clock.now().saturating_add(limit.length);
        let (node, sent, received, replies) =
            match future::select(opening, clock.sleep_until(until)).await {
                Either::Left((opened, _)) => opened.map_err(at)?,
                Either::Right(_) => {
                    return Err(match connects_with_tls.load(Ordering::Relaxed) {
                        true => no_handshake(address, limit),
                        false => limit.no_reply(address),
                    });
                }
            };
        let renews = connector.rotates_credentials();
        if let Some(failure) = auth_error(&replies).filter(|_| renews) {
            return Err(at(failure));
        }
        check_kind(&replies).map_err(at)?;
        let mut replies = replies.into_iter();
        let mut bound = ClockBounds::default();
        bound.observe(sent, received, parse_time(replies.next()).map_err(at)?);
        let info = replies.next();
        let deletes_if_equal = info.as_ref().is_some_and(delifeq::is_supported);
        let name = parse_server_name(info).unwrap_or_else(|| UNKNOWN_SERVER.into());
        let identity = ServerIdentity::from_reply(replies.next()).map_err(at)?;
        let runtime = RuntimeHandle::current(connector.health());
        let pulse = SharedTimer::new(
            clock.clone(),
            limits.response_timeout / TIMER_CHECKS,
            runtime.clone(),
        );
        Ok(ServerConnection {
            name,
            identity,
            map_verified: AtomicBool::new(false),
            has_delifeq: AtomicBool::new(deletes_if_equal),
            node,
            clock,
            response_timeout: limits.response_timeout,
            shared_timer: pulse,
            runtime,
            clock_bounds: CachePadded(Mutex::new(bound)),
            opened: received,
            retired: AtomicBool::new(false),
            master_term: OnceLock::new(),
            rotates_credentials: renews,
            proven: Arc::default(),
            call_permits: CachePadded(Semaphore::new(limits.max_in_flight)),
            pipeline_permits: Semaphore::new(MAX_PIPELINES),
            renewals: Semaphore::new(MAX_PIPELINES),
            load: ServerLoad::of(address),
            activity: CachePadded(LastActivity::default()),
        })
    }

    /// The server's name: the first characters of its run id.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// False for a server that does not report its run id.
    pub(crate) fn has_name(&self) -> bool {
        &*self.name != UNKNOWN_SERVER
    }

    /// What the server said about itself when the connection was opened.
    pub(crate) fn identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// Notes that the server's map has shown that it belongs to the known cluster.
    pub(crate) fn mark_map_verified(&self) {
        self.map_verified.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_map_verified(&self) -> bool {
        self.map_verified.load(Ordering::Relaxed)
    }

    pub(crate) fn has_delifeq(&self) -> bool {
        self.has_delifeq.load(Ordering::Relaxed)
    }

    /// Notes that the server refused `DELIFEQ`.
    pub(crate) fn disable_delifeq(&self) {
        self.has_delifeq.store(false, Ordering::Relaxed);
    }

    /// The name of the process, if the server reports it.
    pub(crate) fn process_name(&self) -> Option<&str> {
        self.has_name().then_some(&*self.name)
    }

    /// The process, and the address at which it was found.
    pub(crate) fn observed_process(&self) -> Option<ServerProcess> {
        let name = self.process_name()?.into();
        let place = self.resolved_addr();
        Some(ServerProcess { name, resolved_addr: place })
    }

    /// The address to which the host name was resolved, if that is known.
    pub(crate) fn resolved_addr(&self) -> Option<Arc<str>> {
        self.node.resolved_addr()
    }

    pub(crate) fn clock_bounds(&self) -> ClockBounds {
        *lock(&self.clock_bounds.0)
    }

    /// The most that this server's clock can read at a moment, or 0 for none.
    pub(crate) fn server_ms(&self, moment: Option<LocalInstant>) -> u64 {
        moment.and_then(|moment| lock(&self.clock_bounds.0).max_server_ms(moment)).unwrap_or(0)
    }

    /// False once a new connection should replace this one.
    pub(crate) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.is_superseded() && self.node.is_usable()
    }

    /// True if a call has found it broken or silent, or it was given up for another reason.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Limits this connection's answers to that tenure.
    pub(crate) fn bind_to_term(&self, tenure: Arc<MasterTerm>) {
        let _ = self.master_term.set(tenure); // the first one stays
    }

    /// Returns true if another server is the master by now.
    pub(crate) fn is_superseded(&self) -> bool {
        self.master_term.get().is_some_and(|tenure| tenure.has_ended())
    }

    /// Returns true if a command that was sent at `sent` may have been sent on it.
    pub(crate) fn was_open_at(&self, sent: LocalInstant) -> bool {
        self.opened <= sent
    }

    /// True once it has answered, unless the answer was a reason to retire it.
    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// The flag behind `is_proven`, which outlives the connection.
    pub(crate) fn proven_flag(&self) -> Arc<AtomicBool> {
        self.proven.clone()
    }

    /// How long the connection may be quiet while something is under way on it.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A permit to send a call, if one is free.
    pub(crate) fn try_permit(&self) -> Result<Option<SendPermit<'_>>, PermitError> {
        match self.call_permits.0.try_acquire() {
            Ok(permit) => Ok(Some(SendPermit::new(permit, PermitPool::Calls))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(PermitError::ConnectionRetired),
        }
    }

    /// Waits for a permit to send a call, first come, first served.
    pub(crate) async fn permit(&self, until: LocalInstant) -> Result<SendPermit<'_>, PermitError> {
        self.queue(PermitPool::Calls, 1, until).await
    }

    /// Waits for a permit to send a pipeline of a batch with that many commands.
    pub(crate) async fn pipeline_permit(
        &self,
        priority: Priority,
        commands: usize,
        until: LocalInstant,
    ) -> Result<SendPermit<'_>, PermitError> {
        self.queue(PermitPool::Pipelines(priority), commands, until).await
    }

    /// Sends a command and waits for its answer until `until`.
    pub(crate) async fn call(
        self: &Arc<Self>,
        _: &dyn Clock,
        command: Command,
        until: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        self.call_with(None, command, until).await
    }

    /// As `call`, with a permit, which is held until the answer.
    pub(crate) async fn call_with(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        command: Command,
        until: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        self.single(|| self.node.call(command), permit, until).await
    }

    /// As `call_with`, for a call of a script.
    pub(crate) async fn call_script_with(
        self: &Arc<Self>,
        permit: SendPermit<'_>,
        call: &EncodedScriptCall<'_>,
        until: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        self.single(|| self.node.call_script(call), Some(permit), until).await
    }

    async fn single(
        self: &Arc<Self>,
        ask: impl FnOnce() -> ResponseFuture<RespValue>,
        permit: Option<SendPermit<'_>>,
        until: LocalInstant,
    ) -> Result<TimedReply<RespValue>, ExchangeError> {
        let _in_flight = self.load.in_flight(1);
        let exchange = self.exchange(ask, permit, until, self.response_timeout).await?;
        self.check_auth_errors(std::slice::from_ref(&exchange.value))?;
        Ok(exchange)
    }

    /// Sends a pipeline and waits for its answers until `until`. There is an answer to each
    /// command.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        _: &dyn Clock,
        commands: &[Command],
        until: LocalInstant,
    ) -> Result<TimedReply<Vec<RespValue>>, ExchangeError> {
        self.pipeline_with(None, commands, until).await
    }

    /// As `pipeline`, with a permit.
    pub(crate) async fn pipeline_with(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        commands: &[Command],
        until: LocalInstant,
    ) -> Result<TimedReply<Vec<RespValue>>, ExchangeError> {
        self.pipeline_within(permit, commands, until, self.response_timeout).await
    }

    /// Queries the server about itself or its cluster, and waits for the replies that long, even if
    /// `response_timeout` is shorter.
    pub(crate) async fn query(
        self: &Arc<Self>,
        address: &Address,
        commands: &[Command],
        limit: TimeLimit,
    ) -> Result<Vec<RespValue>, ConnectionError> {
        let until = self.clock.now().saturating_add(limit.length);
        match self.pipeline_within(None, commands, until, limit.length).await {
            Ok(exchange) => Ok(exchange.value),
            Err(ExchangeError::Connection(failure)) => {
                Err(ConnectionError { maybe_sent: false, ..failure })
            }
            Err(ExchangeError::NoReply | ExchangeError::Quiet) => {
                self.on_caller_timeout(self.clock.now(), limit.length);
                Err(limit.no_reply(address))
            }
        }
    }

    async fn pipeline_within(
        self: &Arc<Self>,
        permit: Option<SendPermit<'_>>,
        commands: &[Command],
        until: LocalInstant,
        quiet: Duration,
    ) -> Result<TimedReply<Vec<RespValue>>, ExchangeError> {
        let _in_flight = self.load.in_flight(commands.len());
        let exchange = self.exchange(|| self.node.pipeline(commands), permit, until, quiet).await?;
        if exchange.value.len() == commands.len() {
            self.check_auth_errors(&exchange.value)?;
            return Ok(exchange);
        }
        // The replies on this connection may be out of step with its commands.
        self.retire_untrusted();
        let message = format!("{} answers to {} commands", exchange.value.len(), commands.len());
        let failure = ConnectionError::from(ProtocolError(message.into()));
        Err(ExchangeError::Connection(ConnectionError { maybe_sent: true, ..failure }))
    }

    /// Learns from the reply to a script on a key of this slot: the server's time, or that the
    /// connection must be replaced.
    pub(crate) fn observe(
        &self,
        slot: Slot,
        sent: LocalInstant,
        received: LocalInstant,
        reply: &RespValue,
    ) {
        match server_ms(reply) {
            Some(0) => {}
            Some(server_ms) => lock(&self.clock_bounds.0).observe(sent, received, server_ms),
            None if reply_action::invalidates_connection(reply, slot) => self.retire_untrusted(),
            None => {}
        }
    }

    /// Notes that a caller gave up waiting. A connection that brought nothing at all for
    /// `response_timeout` is replaced: the network may have dropped it without any sign.
    pub(crate) fn on_caller_timeout(&self, now: LocalInstant, response_timeout: Duration) {
        if now.saturating_duration_since(self.activity.0.last()) >= response_timeout {
            self.retire();
        }
    }

    /// A server that no longer recognises this user may accept the credentials of the next
    /// connection, if those can differ.
    fn check_auth_errors(&self, replies: &[RespValue]) -> Result<(), ExchangeError> {
        if !self.rotates_credentials {
            return Ok(());
        }
        match auth_error(replies) {
            Some(failure) => {
                self.retire_untrusted();
                Err(ExchangeError::Connection(failure))
            }
            None => Ok(()),
        }
    }

    /// Refuses new calls on this connection.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.call_permits.0.close();
        self.pipeline_permits.close();
        self.renewals.close();
    }

    /// As `retire`, because of an answer: the next connection must answer well before it is
    /// trusted.
    fn retire_untrusted(&self) {
        self.proven.store(false, Ordering::Relaxed);
        self.retire();
    }

    async fn queue(
        &self,
        of: PermitPool,
        commands: usize,
        until: LocalInstant,
    ) -> Result<SendPermit<'_>, PermitError> {
        let _queued = self.load.queued(commands);
        let turn = std::pin::pin!(self.semaphore(of).acquire());
        match future::select(turn, self.clock.sleep_until(until)).await {
            Either::Left((Ok(permit), _)) => Ok(SendPermit::new(permit, of)),
            Either::Left((Err(AcquireError { .. }), _)) => Err(PermitError::ConnectionRetired),
            Either::Right(_) => Err(PermitError::DeadlineExceeded),
        }
    }

    fn semaphore(&self, of: PermitPool) -> &Semaphore {
        match of {
            PermitPool::Calls => &self.call_permits.0,
            PermitPool::Pipelines(Priority::Normal) => &self.pipeline_permits,
            PermitPool::Pipelines(Priority::Renewals) => &self.renewals,
        }
    }

    async fn exchange<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce() -> ResponseFuture<T>,
        permit: Option<SendPermit<'_>>,
        until: LocalInstant,
        quiet: Duration,
    ) -> Result<TimedReply<T>, ExchangeError> {
        // Read before anything is sent: a lease counts from here.
        let sent = self.clock.now();
        self.activity.0.on_send(sent);
        let mut question = InFlightCommand { connection: self, answer: Some(ask()), permit, sent };
        let Some(answer) = &mut question.answer else {
            return Err(ExchangeError::NoReply);
        };
        let outcome = match self.await_reply(answer, sent, until, quiet).await {
            // Its effect may be lost, or may have reached the new master.
            Ok(_) if self.is_superseded() => Err(ExchangeError::NoReply),
            outcome => outcome,
        };
        if !matches!(outcome, Err(ExchangeError::NoReply)) {
            question.answer = None;
        }
        outcome
    }

    /// Waits for an answer until `until`, unless the connection brings nothing at all for `quiet`
    /// before. While anything arrives, the server is working on earlier calls, and a second copy
    /// would only queue behind the first.
    async fn await_reply<T>(
        &self,
        answer: &mut ResponseFuture<T>,
        sent: LocalInstant,
        until: LocalInstant,
        quiet: Duration,
    ) -> Result<TimedReply<T>, ExchangeError> {
        let mut now = sent;
        loop {
            let quiet_until = self.activity.0.idle_since(sent).saturating_add(quiet);
            let limit = pin!(self.wait_until(quiet_until.min(until), now));
            match future::select(&mut *answer, limit).await {
                Either::Left((Ok(value), _)) => {
                    let received = self.clock.now();
                    self.activity.0.on_receive(received);
                    if !self.is_proven() && !self.retired.load(Ordering::Relaxed) {
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
            if now >= self.activity.0.idle_since(sent).saturating_add(quiet) {
                self.retire();
                return Err(ExchangeError::Quiet);
            }
            if now >= until {
                return Err(ExchangeError::NoReply);
            }
        }
    }

    /// Waits until `until` and returns true, or returns false when it is time to compute the wait
    /// again.
    async fn wait_until(&self, until: LocalInstant, now: LocalInstant) -> bool {
        let is_early = self.shared_timer.ticks_before(until.saturating_duration_since(now));
        match is_early {
            true => self.shared_timer.next_tick().await,
            false => Box::pin(reply_timeout(&*self.clock, until)).await,
        }
        !is_early
    }
}

impl<'a> SendPermit<'a> {
    fn new(permit: SemaphorePermit<'a>, of: PermitPool) -> Self {
        SendPermit { permit, pool: of }
    }
}

/// A command under way. If it is dropped before its answer has come, a background task goes on
/// waiting: the answer shows that the server is working, and until then the command keeps its
/// permit.
struct InFlightCommand<'a, T: Send + 'static> {
    connection: &'a Arc<ServerConnection>,
    answer: Option<ResponseFuture<T>>,
    permit: Option<SendPermit<'a>>,
    sent: LocalInstant,
}

impl<T: Send + 'static> Drop for InFlightCommand<'_, T> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take().filter(|_| self.connection.is_usable()) else {
            return;
        };
        let (connection, sent) = (self.connection.clone(), self.sent);
        let permits = self.permit.take().map(|permit| {
            permit.permit.forget();
            permit.pool
        });
        self.connection.runtime.spawn("late answer", async move {
            let quiet = connection.response_timeout;
            let _ = connection.await_reply(&mut answer, sent, NO_DEADLINE, quiet).await;
            if let Some(of) = permits {
                connection.semaphore(of).add_permits(1);
            }
        });
    }
}

/// A wait without a limit.
const NO_DEADLINE: LocalInstant = LocalInstant::from_duration(Duration::MAX);
