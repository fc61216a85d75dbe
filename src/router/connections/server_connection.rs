//! A connection to one server, and the facts about that server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use futures::future::{self, Either};
use rwlease_core::resp::{Address, Command, ReplyShape, RespValue, server_ms};
use rwlease_core::slot::Slot;
use rwlease_core::time::{ClockBounds, LocalInstant};
use tokio::sync::Semaphore;

use crate::backend::{CommandConnection, ConnectionError, Connector};
use crate::clock::Clock;
use crate::locks::lock;
use crate::router::connections::call_limit::CallLimit;
use crate::router::connections::connect_error::{connect_error, no_handshake};
use crate::router::connections::error_reply::invalidates_connection;
use crate::router::connections::exchange::{ExchangeError, LastActivity};
use crate::router::connections::limits::ConnectionLimits;
use crate::router::connections::server_info::{
    ServerIdentity, ServerProcess, auth_error, check_kind, parse_server_name, parse_time,
    supports_delifeq,
};
use crate::router::connections::shared_timer::SharedTimer;
use crate::router::runtime::RuntimeHandle;
use crate::router::telemetry::ServerLoad;

/// The most commands of batches under way at once: four full pipelines. More would only wait at the
/// server and time out there.
pub(super) const MAX_PIPELINED: usize = 512;

/// How often, within `response_timeout`, calls that wait for an answer check whether their time is
/// up soon.
const TIMER_CHECKS: u32 = 8;

/// The name of a server that does not report its run id.
const UNKNOWN_SERVER: &str = "-";

/// A connection that carries commands.
pub(crate) struct ServerConnection {
    /// The name of the process: the first characters of its run id. `None` if the server does not
    /// report that.
    pub(crate) process_name: Option<Box<str>>,
    /// What the server reported about itself when the connection was opened.
    pub(crate) identity: ServerIdentity,
    /// Its map has shown that it belongs to the known cluster.
    map_verified: AtomicBool,
    /// The server has `DELIFEQ`, and has not refused it.
    has_delifeq: AtomicBool,
    pub(super) node: Arc<dyn CommandConnection>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long the connection may be quiet while something is under way on it.
    pub(crate) response_timeout: Duration,
    pub(super) shared_timer: Arc<SharedTimer>,
    pub(super) runtime: RuntimeHandle,
    clock_bounds: CachePadded<Mutex<ClockBounds>>,
    opened: LocalInstant,
    /// A call has found it broken or silent, or it was given up for another reason.
    pub(crate) retired: AtomicBool,
    /// Whether another server has become the master that sentinels name, or another process has
    /// replaced this one without a cluster.
    term_ended: OnceLock<Arc<AtomicBool>>,
    /// The next connection may have other credentials.
    rotates_credentials: bool,
    /// It has answered, and the last answer was no reason to retire it. Outlives the connection.
    pub(crate) proven: Arc<AtomicBool>,
    /// Permits for calls under way; closed when the connection is retired.
    pub(super) call_limit: CachePadded<CallLimit>,
    /// Permits for the commands in pipelines of batches; closed likewise.
    pub(super) pipeline_permits: Semaphore,
    /// Permits for the commands in pipelines of renewals. Renewals do not wait for other pipelines.
    pub(super) renewal_permits: Semaphore,
    pub(super) load: ServerLoad,
    pub(super) activity: CachePadded<LastActivity>,
}

/// Separates what every call writes from what every call reads. A core that writes takes the whole
/// cache line (two, on some) from the others.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CachePadded<T>(pub(super) T);

impl ServerConnection {
    /// Connects, and queries the server for its time, its name and its id. With `resolved_addr`,
    /// dials that address, to which the host name was resolved before.
    pub(crate) async fn open(
        connector: &dyn Connector,
        clock: Arc<dyn Clock>,
        address: &Address,
        resolved_addr: Option<&str>,
        limits: ConnectionLimits,
    ) -> Result<ServerConnection, ConnectionError> {
        let limit = limits.of_opening();
        let connects_with_tls = AtomicBool::new(connector.uses_tls());
        let opening = Box::pin(async {
            let node = connector.connect(address, resolved_addr).await?;
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
        let deadline = clock.now().saturating_add(limit.length);
        let (node, sent, received, replies) =
            match future::select(opening, clock.sleep_until(deadline)).await {
                Either::Left((opened, _)) => opened.map_err(at)?,
                Either::Right(_) => {
                    return Err(match connects_with_tls.load(Ordering::Relaxed) {
                        true => no_handshake(address, limit),
                        false => limit.no_reply(address),
                    });
                }
            };
        let rotates_credentials = connector.rotates_credentials();
        if let Some(failure) = auth_error(&replies).filter(|_| rotates_credentials) {
            return Err(at(failure));
        }
        check_kind(&replies).map_err(at)?;
        let mut replies = replies.into_iter();
        let mut clock_bounds = ClockBounds::default();
        clock_bounds.observe(sent, received, parse_time(replies.next()).map_err(at)?);
        let info = replies.next();
        let has_delifeq = info.as_ref().is_some_and(supports_delifeq);
        let process_name = parse_server_name(info);
        let identity = ServerIdentity::from_reply(replies.next()).map_err(at)?;
        let runtime = RuntimeHandle::current(connector.health());
        let shared_timer = SharedTimer::new(
            clock.clone(),
            limits.response_timeout / TIMER_CHECKS,
            runtime.clone(),
        );
        Ok(ServerConnection {
            process_name,
            identity,
            map_verified: AtomicBool::new(false),
            has_delifeq: AtomicBool::new(has_delifeq),
            node,
            clock,
            response_timeout: limits.response_timeout,
            shared_timer,
            runtime,
            clock_bounds: CachePadded(Mutex::new(clock_bounds)),
            opened: received,
            retired: AtomicBool::new(false),
            term_ended: OnceLock::new(),
            rotates_credentials,
            proven: Arc::default(),
            call_limit: CachePadded(CallLimit::new(
                limits.max_in_flight,
                received.saturating_duration_since(sent),
                limits.response_timeout,
            )),
            pipeline_permits: Semaphore::new(MAX_PIPELINED),
            renewal_permits: Semaphore::new(MAX_PIPELINED),
            load: ServerLoad::of(address),
            activity: CachePadded(LastActivity::default()),
        })
    }

    /// The name of the server in calls.
    pub(crate) fn name(&self) -> &str {
        self.process_name.as_deref().unwrap_or(UNKNOWN_SERVER)
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

    /// Returns the process, and the address at which it was found.
    pub(crate) fn observed_process(&self) -> Option<ServerProcess> {
        let name = self.process_name.clone()?;
        Some(ServerProcess { name, resolved_addr: self.resolved_addr() })
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

    /// Limits the replies of this connection to the term of its server, which ends when the flag is
    /// set.
    pub(crate) fn bind_to_term(&self, has_ended: Arc<AtomicBool>) {
        let _ = self.term_ended.set(has_ended); // the first one stays
    }

    /// Returns true if another server is the master by now, or another process has replaced this
    /// one.
    pub(crate) fn is_superseded(&self) -> bool {
        self.term_ended.get().is_some_and(|has_ended| has_ended.load(Ordering::Acquire))
    }

    /// Returns true if a command that was sent at `sent` may have been sent on it.
    pub(crate) fn was_open_at(&self, sent: LocalInstant) -> bool {
        self.opened <= sent
    }

    /// How much of the time that it has left a call without a permit keeps for its reply.
    pub(crate) fn min_reply_time(&self, left: Duration) -> Duration {
        self.call_limit.0.min_reply_time(left)
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
            None if invalidates_connection(reply, slot) => self.retire_untrusted(),
            None => {}
        }
    }

    /// A server that no longer recognises this user may accept the credentials of the next
    /// connection, if those can differ.
    pub(super) fn check_auth_errors(&self, replies: &[RespValue]) -> Result<(), ExchangeError> {
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
        self.call_limit.0.permits().close();
        self.pipeline_permits.close();
        self.renewal_permits.close();
    }

    /// As `retire`, because of an answer: the next connection must answer well before it is
    /// trusted.
    pub(crate) fn retire_untrusted(&self) {
        self.proven.store(false, Ordering::Relaxed);
        self.retire();
    }
}

#[cfg(test)]
mod tests;
