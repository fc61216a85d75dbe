//! A connection to one server, and what is known about that server.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use futures::future::{self, Either};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, TryAcquireError};

use crate::clock::{Clock, Moment};
use crate::node::{
    Address, Answering, Command, Connector, Node, NodeError, ProtocolError, Reply, ReplyShape,
    ScriptCall, server_ms,
};
use crate::router::about::{check_kind, locked_out, server_name, server_time};
use crate::router::belief::{Identity, Process};
use crate::router::clock_bound::ClockBound;
use crate::router::heard::Heard;
use crate::router::pulse::Pulse;
use crate::router::runtime::Runtime;
use crate::router::telemetry::Load;
use crate::router::tenure::Tenure;
use crate::router::time_limit::TimeLimit;
use crate::router::time_out::time_out;
use crate::router::unopened::{no_handshake, unopened};
use crate::router::{answer, delete_if_equal, lock};
use crate::slot::Slot;

/// The most pipelines of batches under way at once. More would only wait at the server and time out
/// there.
const PIPELINES: usize = 4;

/// How often, within `response_timeout`, calls that wait for an answer check whether their time is
/// up soon.
const BEATS: u32 = 8;

/// The name of a server that does not report its run id.
const NAMELESS: &str = "-";

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The limit for opening a connection, its first answers included.
    pub(crate) connect_timeout: Duration,
    /// How long a connection may be quiet while something is under way on it.
    pub(crate) response_timeout: Duration,
    /// The most calls under way at once.
    pub(crate) in_flight: usize,
}

impl Limits {
    pub(crate) fn of_opening(&self) -> TimeLimit {
        TimeLimit { length: self.connect_timeout, setting: "connect_timeout" }
    }

    pub(crate) fn of_replies(&self) -> TimeLimit {
        TimeLimit { length: self.response_timeout, setting: "response_timeout" }
    }
}

/// A connection that carries commands.
#[derive(Debug)]
pub(crate) struct Connection {
    name: Box<str>,
    identity: Identity,
    /// Its map has shown that it belongs to the known cluster.
    has_shown_map: AtomicBool,
    /// The server has `DELIFEQ`, and has not refused it.
    deletes_if_equal: AtomicBool,
    node: Arc<dyn Node>,
    clock: Arc<dyn Clock>,
    response_timeout: Duration,
    pulse: Arc<Pulse>,
    runtime: Runtime,
    bound: Apart<Mutex<ClockBound>>,
    opened: Moment,
    retired: AtomicBool,
    /// Set where sentinels name the master: ends when another server becomes the master.
    tenure: OnceLock<Arc<Tenure>>,
    /// The next connection may have other credentials.
    renews: bool,
    /// It has answered, and the last answer was no reason to retire it.
    proven: Arc<AtomicBool>,
    /// Permits for calls under way; closed when the connection is retired.
    calls: Apart<Semaphore>,
    /// Permits for pipelines of batches; closed likewise.
    pipelines: Semaphore,
    /// Those for pipelines of renewals, which do not wait behind others.
    renewals: Semaphore,
    load: Load,
    heard: Apart<Heard>,
}

/// Separates what every call writes from what every call reads. A core that writes takes the whole
/// cache line (two, on some) from the others.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// An answer, with the times when its command was sent and when the answer came.
#[derive(Debug)]
pub(crate) struct Exchange<T> {
    pub(crate) value: T,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The time was up. What was sent may still arrive.
    Silent,
    /// The connection brought nothing at all for too long, and is retired. What was sent may still
    /// arrive.
    Quiet,
    Broken(NodeError),
}

/// Permission to send one more call or pipeline.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    permit: SemaphorePermit<'a>,
    of: Permits,
}

#[derive(Clone, Copy, Debug)]
enum Permits {
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
pub(crate) enum NoPermit {
    /// The server did not finish earlier calls in time.
    Late,
    /// The connection is retired: make another one.
    Retired,
}

impl Connection {
    /// Connects, and queries the server for its time, its name and its id. With `place`, dials that
    /// address, to which the host name was resolved before.
    pub(crate) async fn open(
        connector: &dyn Connector,
        clock: Arc<dyn Clock>,
        address: &Address,
        place: Option<&str>,
        limits: Limits,
    ) -> Result<Connection, NodeError> {
        let limit = limits.of_opening();
        let connects_with_tls = AtomicBool::new(connector.uses_tls());
        let opening = Box::pin(async {
            let node = match place {
                None => connector.connect(address).await?,
                Some(place) => connector.connect_at(address, place).await?,
            };
            connects_with_tls.store(false, Ordering::Relaxed);
            let sent = clock.now();
            let replies = node
                .pipeline(&[
                    Command::new().word("TIME").expecting(ReplyShape::List),
                    Command::new().word("INFO").word("server").expecting(ReplyShape::Text),
                    Command::new().word("CLUSTER").word("MYID").expecting(ReplyShape::Text),
                ])
                .await?;
            Ok((node, sent, clock.now(), replies))
        });
        let at = |failure| unopened(failure, address, connector.uses_tls());
        let until = clock.now().after(limit.length);
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
        let renews = connector.renews_credentials();
        if let Some(failure) = locked_out(&replies).filter(|_| renews) {
            return Err(at(failure));
        }
        check_kind(&replies).map_err(at)?;
        let mut replies = replies.into_iter();
        let mut bound = ClockBound::default();
        bound.observe(sent, received, server_time(replies.next()).map_err(at)?);
        let info = replies.next();
        let deletes_if_equal = info.as_ref().is_some_and(delete_if_equal::has_it);
        let name = server_name(info).unwrap_or_else(|| NAMELESS.into());
        let identity = Identity::told(replies.next()).map_err(at)?;
        let runtime = Runtime::current(connector.health());
        let pulse = Pulse::new(clock.clone(), limits.response_timeout / BEATS, runtime.clone());
        Ok(Connection {
            name,
            identity,
            has_shown_map: AtomicBool::new(false),
            deletes_if_equal: AtomicBool::new(deletes_if_equal),
            node,
            clock,
            response_timeout: limits.response_timeout,
            pulse,
            runtime,
            bound: Apart(Mutex::new(bound)),
            opened: received,
            retired: AtomicBool::new(false),
            tenure: OnceLock::new(),
            renews,
            proven: Arc::default(),
            calls: Apart(Semaphore::new(limits.in_flight)),
            pipelines: Semaphore::new(PIPELINES),
            renewals: Semaphore::new(PIPELINES),
            load: Load::of(address),
            heard: Apart(Heard::default()),
        })
    }

    /// The server's name: the first characters of its run id.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// False for a server that does not report its run id.
    pub(crate) fn has_name(&self) -> bool {
        &*self.name != NAMELESS
    }

    /// What the server said about itself when the connection was opened.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Notes that the server's map has shown that it belongs to the known cluster.
    pub(crate) fn note_shown_map(&self) {
        self.has_shown_map.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_shown_map(&self) -> bool {
        self.has_shown_map.load(Ordering::Relaxed)
    }

    pub(crate) fn deletes_if_equal(&self) -> bool {
        self.deletes_if_equal.load(Ordering::Relaxed)
    }

    /// Notes that the server refused `DELIFEQ`.
    pub(crate) fn note_refused_delete(&self) {
        self.deletes_if_equal.store(false, Ordering::Relaxed);
    }

    /// The name of the process, if the server reports it.
    pub(crate) fn process(&self) -> Option<&str> {
        self.has_name().then_some(&*self.name)
    }

    /// The process, and the address at which it was found.
    pub(crate) fn met(&self) -> Option<Process> {
        let name = self.process()?.into();
        let place = self.place();
        Some(Process { name, place })
    }

    /// The address to which the host name was resolved, if that is known.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        self.node.place()
    }

    pub(crate) fn bound(&self) -> ClockBound {
        *lock(&self.bound.0)
    }

    /// The most that this server's clock can read at a moment, or 0 for none.
    pub(crate) fn server_ms(&self, moment: Option<Moment>) -> u64 {
        moment.and_then(|moment| lock(&self.bound.0).server_ms_at_most(moment)).unwrap_or(0)
    }

    /// False once a new connection should replace this one.
    pub(crate) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.is_over() && self.node.is_usable()
    }

    /// True if a call has found it broken or silent, or it was given up for another reason.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Limits this connection's answers to that tenure.
    pub(crate) fn serve_for(&self, tenure: Arc<Tenure>) {
        let _ = self.tenure.set(tenure); // the first one stays
    }

    /// Returns true if another server is the master by now.
    pub(crate) fn is_over(&self) -> bool {
        self.tenure.get().is_some_and(|tenure| tenure.is_over())
    }

    /// Returns true if a command that was sent at `sent` may have been sent on it.
    pub(crate) fn was_open_at(&self, sent: Moment) -> bool {
        self.opened <= sent
    }

    /// True once it has answered, unless the answer was a reason to retire it.
    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// The flag behind `is_proven`, which outlives the connection.
    pub(crate) fn proof(&self) -> Arc<AtomicBool> {
        self.proven.clone()
    }

    /// How long the connection may be quiet while something is under way on it.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A permit to send a call, if one is free.
    pub(crate) fn try_permit(&self) -> Result<Option<Permit<'_>>, NoPermit> {
        match self.calls.0.try_acquire() {
            Ok(permit) => Ok(Some(Permit::new(permit, Permits::Calls))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(NoPermit::Retired),
        }
    }

    /// Waits for a permit to send a call, first come, first served.
    pub(crate) async fn permit(&self, until: Moment) -> Result<Permit<'_>, NoPermit> {
        self.queue(Permits::Calls, 1, until).await
    }

    /// Waits for a permit to send a pipeline of a batch with that many commands.
    pub(crate) async fn turn(
        &self,
        priority: Priority,
        commands: usize,
        until: Moment,
    ) -> Result<Permit<'_>, NoPermit> {
        self.queue(Permits::Pipelines(priority), commands, until).await
    }

    /// Sends a command and waits for its answer until `until`.
    pub(crate) async fn call(
        self: &Arc<Self>,
        _: &dyn Clock,
        command: Command,
        until: Moment,
    ) -> Result<Exchange<Reply>, Failure> {
        self.call_with(None, command, until).await
    }

    /// As `call`, with a permit, which is held until the answer.
    pub(crate) async fn call_with(
        self: &Arc<Self>,
        permit: Option<Permit<'_>>,
        command: Command,
        until: Moment,
    ) -> Result<Exchange<Reply>, Failure> {
        self.single(|| self.node.call(command), permit, until).await
    }

    /// As `call_with`, for a call of a script.
    pub(crate) async fn call_script_with(
        self: &Arc<Self>,
        permit: Permit<'_>,
        call: &ScriptCall<'_>,
        until: Moment,
    ) -> Result<Exchange<Reply>, Failure> {
        self.single(|| self.node.call_script(call), Some(permit), until).await
    }

    async fn single(
        self: &Arc<Self>,
        ask: impl FnOnce() -> Answering<Reply>,
        permit: Option<Permit<'_>>,
        until: Moment,
    ) -> Result<Exchange<Reply>, Failure> {
        let _in_flight = self.load.in_flight(1);
        let exchange = self.exchange(ask, permit, until, self.response_timeout).await?;
        self.check_let_in(std::slice::from_ref(&exchange.value))?;
        Ok(exchange)
    }

    /// Sends a pipeline and waits for its answers until `until`. There is an answer to each
    /// command.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        _: &dyn Clock,
        commands: &[Command],
        until: Moment,
    ) -> Result<Exchange<Vec<Reply>>, Failure> {
        self.pipeline_with(None, commands, until).await
    }

    /// As `pipeline`, with a permit.
    pub(crate) async fn pipeline_with(
        self: &Arc<Self>,
        permit: Option<Permit<'_>>,
        commands: &[Command],
        until: Moment,
    ) -> Result<Exchange<Vec<Reply>>, Failure> {
        self.pipeline_within(permit, commands, until, self.response_timeout).await
    }

    /// Queries the server about itself or its cluster, and waits for the replies that long, even if
    /// `response_timeout` is shorter.
    pub(crate) async fn query(
        self: &Arc<Self>,
        address: &Address,
        commands: &[Command],
        limit: TimeLimit,
    ) -> Result<Vec<Reply>, NodeError> {
        let until = self.clock.now().after(limit.length);
        match self.pipeline_within(None, commands, until, limit.length).await {
            Ok(exchange) => Ok(exchange.value),
            Err(Failure::Broken(failure)) => Err(NodeError { maybe_sent: false, ..failure }),
            Err(Failure::Silent | Failure::Quiet) => {
                self.gave_up(self.clock.now(), limit.length);
                Err(limit.no_reply(address))
            }
        }
    }

    async fn pipeline_within(
        self: &Arc<Self>,
        permit: Option<Permit<'_>>,
        commands: &[Command],
        until: Moment,
        quiet: Duration,
    ) -> Result<Exchange<Vec<Reply>>, Failure> {
        let _in_flight = self.load.in_flight(commands.len());
        let exchange = self.exchange(|| self.node.pipeline(commands), permit, until, quiet).await?;
        if exchange.value.len() == commands.len() {
            self.check_let_in(&exchange.value)?;
            return Ok(exchange);
        }
        // The replies on this connection may be out of step with its commands.
        self.spoil();
        let message = format!("{} answers to {} commands", exchange.value.len(), commands.len());
        let failure = NodeError::from(ProtocolError(message.into()));
        Err(Failure::Broken(NodeError { maybe_sent: true, ..failure }))
    }

    /// Learns from the reply to a script on a key of this slot: the server's time, or that the
    /// connection must be replaced.
    pub(crate) fn observe(&self, slot: Slot, sent: Moment, received: Moment, reply: &Reply) {
        match server_ms(reply) {
            Some(0) => {}
            Some(server_ms) => lock(&self.bound.0).observe(sent, received, server_ms),
            None if answer::spoils(reply, slot) => self.spoil(),
            None => {}
        }
    }

    /// Notes that a caller gave up waiting. A connection that brought nothing at all for
    /// `response_timeout` is replaced: the network may have dropped it without any sign.
    pub(crate) fn gave_up(&self, now: Moment, response_timeout: Duration) {
        if now.since(self.heard.0.last()) >= response_timeout {
            self.retire();
        }
    }

    /// A server that no longer recognises this user may accept the credentials of the next
    /// connection, if those can differ.
    fn check_let_in(&self, replies: &[Reply]) -> Result<(), Failure> {
        if !self.renews {
            return Ok(());
        }
        match locked_out(replies) {
            Some(failure) => {
                self.spoil();
                Err(Failure::Broken(failure))
            }
            None => Ok(()),
        }
    }

    /// Refuses new calls on this connection.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.calls.0.close();
        self.pipelines.close();
        self.renewals.close();
    }

    /// As `retire`, because of an answer: the next connection must answer well before it is
    /// trusted.
    fn spoil(&self) {
        self.proven.store(false, Ordering::Relaxed);
        self.retire();
    }

    async fn queue(
        &self,
        of: Permits,
        commands: usize,
        until: Moment,
    ) -> Result<Permit<'_>, NoPermit> {
        let _queued = self.load.queued(commands);
        let turn = std::pin::pin!(self.semaphore(of).acquire());
        match future::select(turn, self.clock.sleep_until(until)).await {
            Either::Left((Ok(permit), _)) => Ok(Permit::new(permit, of)),
            Either::Left((Err(AcquireError { .. }), _)) => Err(NoPermit::Retired),
            Either::Right(_) => Err(NoPermit::Late),
        }
    }

    fn semaphore(&self, of: Permits) -> &Semaphore {
        match of {
            Permits::Calls => &self.calls.0,
            Permits::Pipelines(Priority::Normal) => &self.pipelines,
            Permits::Pipelines(Priority::Renewals) => &self.renewals,
        }
    }

    async fn exchange<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce() -> Answering<T>,
        permit: Option<Permit<'_>>,
        until: Moment,
        quiet: Duration,
    ) -> Result<Exchange<T>, Failure> {
        // Read before anything is sent: a lease counts from here.
        let sent = self.clock.now();
        self.heard.0.asked(sent);
        let mut question = Question { connection: self, answer: Some(ask()), permit, sent };
        let Some(answer) = &mut question.answer else {
            return Err(Failure::Silent);
        };
        let outcome = match self.hear_out(answer, sent, until, quiet).await {
            // Its effect may be lost, or may have reached the new master.
            Ok(_) if self.is_over() => Err(Failure::Silent),
            outcome => outcome,
        };
        if !matches!(outcome, Err(Failure::Silent)) {
            question.answer = None;
        }
        outcome
    }

    /// Waits for an answer until `until`, unless the connection brings nothing at all for `quiet`
    /// before. While anything arrives, the server is working on earlier calls, and a second copy
    /// would only queue behind the first.
    async fn hear_out<T>(
        &self,
        answer: &mut Answering<T>,
        sent: Moment,
        until: Moment,
        quiet: Duration,
    ) -> Result<Exchange<T>, Failure> {
        let mut now = sent;
        loop {
            let quiet_until = self.heard.0.quiet_since(sent).after(quiet);
            let limit = pin!(self.wait_until(quiet_until.min(until), now));
            match future::select(&mut *answer, limit).await {
                Either::Left((Ok(value), _)) => {
                    let received = self.clock.now();
                    self.heard.0.answered(received);
                    if !self.is_proven() && !self.retired.load(Ordering::Relaxed) {
                        self.proven.store(true, Ordering::Relaxed);
                    }
                    return Ok(Exchange { value, sent, received });
                }
                Either::Left((Err(failure), _)) => {
                    match failure.is_protocol_error {
                        true => self.spoil(),
                        false => self.retire(),
                    }
                    return Err(Failure::Broken(failure));
                }
                Either::Right((is_time_up, _)) => {
                    now = self.clock.now();
                    // A late beat finds the time up, but says nothing about the server.
                    if !is_time_up {
                        continue;
                    }
                }
            }
            if now >= self.heard.0.quiet_since(sent).after(quiet) {
                self.retire();
                return Err(Failure::Quiet);
            }
            if now >= until {
                return Err(Failure::Silent);
            }
        }
    }

    /// Waits until `until` and returns true, or returns false when it is time to compute the wait
    /// again.
    async fn wait_until(&self, until: Moment, now: Moment) -> bool {
        let is_early = self.pulse.is_early_for(until.since(now));
        match is_early {
            true => self.pulse.beat().await,
            false => Box::pin(time_out(&*self.clock, until)).await,
        }
        !is_early
    }
}

impl<'a> Permit<'a> {
    fn new(permit: SemaphorePermit<'a>, of: Permits) -> Self {
        Permit { permit, of }
    }
}

/// A command under way. If it is dropped before its answer has come, a background task goes on
/// waiting: the answer shows that the server is working, and until then the command keeps its
/// permit.
struct Question<'a, T: Send + 'static> {
    connection: &'a Arc<Connection>,
    answer: Option<Answering<T>>,
    permit: Option<Permit<'a>>,
    sent: Moment,
}

impl<T: Send + 'static> Drop for Question<'_, T> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take().filter(|_| self.connection.is_usable()) else {
            return;
        };
        let (connection, sent) = (self.connection.clone(), self.sent);
        let permits = self.permit.take().map(|permit| {
            permit.permit.forget();
            permit.of
        });
        self.connection.runtime.spawn("late answer", async move {
            let quiet = connection.response_timeout;
            let _ = connection.hear_out(&mut answer, sent, FAR, quiet).await;
            if let Some(of) = permits {
                connection.semaphore(of).add_permits(1);
            }
        });
    }
}

/// A wait without a limit.
const FAR: Moment = Moment::from_origin(Duration::MAX);
