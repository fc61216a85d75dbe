//! What a client shows of itself: `tracing` spans and events, and counters and histograms by the `metrics` facade (feature `metrics`).
//!
//! Everything that is told has its one place here, by its name, so that the rest says it in a line. `docs/observing.md` lists the names and their fields.
//! Durations are in seconds. Metrics have no label with a lock's name: there can be millions of them.

use std::fmt::Display;
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Span, debug, debug_span, error, trace, warn};

#[cfg(feature = "metrics")]
use metrics::Gauge;

use crate::error::ErrorKind;
use crate::losses::Loss;
use crate::node::Address;
use crate::protocol::{Ended, LockKey, Mode};
use crate::router::Slot;

/// Adds one to a counter.
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)*) => {{
        #[cfg(feature = "metrics")]
        ::metrics::counter!($name $(, $label => $value)*).increment(1);
    }};
}

/// Adds one to a counter with one label, whose value is one of these. Each value has a key that is made at compile time: this is for what every call does.
macro_rules! count_each {
    ($name:literal, $label:literal => $value:expr, [$($known:literal),+ $(,)?]) => {{
        #[cfg(feature = "metrics")]
        match $value {
            $($known => ::metrics::counter!($name, $label => $known).increment(1),)+
            other => debug_assert!(false, "{other} is not counted"),
        }
        #[cfg(not(feature = "metrics"))]
        let _ = $value;
    }};
}

/// A gauge of one server.
macro_rules! level {
    ($name:literal, $node:expr) => {{
        #[cfg(feature = "metrics")]
        let gauge = ::metrics::gauge!($name, "node" => $node.to_string());
        #[cfg(not(feature = "metrics"))]
        let gauge = {
            let _ = $node;
            Gauge
        };
        gauge
    }};
}

/// Notes a duration in a histogram.
macro_rules! measure {
    ($name:literal, $time:expr $(, $label:literal => $value:expr)*) => {{
        #[cfg(feature = "metrics")]
        ::metrics::histogram!($name $(, $label => $value)*).record($time.as_secs_f64());
        #[cfg(not(feature = "metrics"))]
        let _ = ($time, $($value),*);
    }};
}

/// What the metrics are, for exporters that tell.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

        describe_histogram!(
            "rwlease_acquire_seconds",
            Unit::Seconds,
            "Requests for a lock, from the call to its outcome"
        );
        describe_histogram!("rwlease_wait_seconds", Unit::Seconds, "Time in a lock's queue");
        describe_counter!("rwlease_handoffs_total", "Grants to those who waited");
        describe_histogram!(
            "rwlease_hold_seconds",
            Unit::Seconds,
            "Holds, from the grant to their end"
        );
        describe_counter!("rwlease_renewals_total", "Renewals of leases");
        describe_histogram!(
            "rwlease_renewal_seconds",
            Unit::Seconds,
            "Renewals that were answered, from sending to answer"
        );
        describe_counter!("rwlease_lost_total", "Leases that were lost");
        // A rate sees only what has been there before.
        for mode in [Mode::Read, Mode::Write].map(word) {
            for outcome in ["taken", "expired"] {
                metrics::counter!("rwlease_lost_total", "mode" => mode, "outcome" => outcome).increment(0);
            }
        }
        metrics::counter!("rwlease_renewals_total", "outcome" => "failed").increment(0);
        describe_counter!("rwlease_releases_total", "Releases");
        describe_counter!("rwlease_redirects_total", "MOVED and ASK that were followed");
        describe_counter!("rwlease_refreshes_total", "Fetches of the slot map");
        metrics::counter!("rwlease_refreshes_total", "outcome" => "failed").increment(0);
        describe_counter!("rwlease_pushes_total", "Grants that came by push");
        describe_histogram!(
            "rwlease_connect_seconds",
            Unit::Seconds,
            "Connections that were opened or could not be, from the dial to its outcome"
        );
        describe_counter!("rwlease_attempts_total", "Attempts to have a call answered by a server");
        describe_gauge!(
            "rwlease_commands_in_flight",
            "Commands that were sent to a server and are waited for"
        );
        describe_gauge!(
            "rwlease_commands_queued",
            "Commands that wait in this process for their turn to be sent to a server"
        );
        describe_counter!(
            "rwlease_subscriptions_total",
            "Subscriptions that were joined, left, lost or refused"
        );
        metrics::counter!("rwlease_subscriptions_total", "outcome" => "lost").increment(0);
    }
}

// Requests.

/// The whole of a request; its outcome is recorded at its end.
pub(crate) fn acquire(lock: &LockKey, mode: Mode) -> Span {
    let mode = word(mode);
    debug_span!("rwlease.acquire", lock = %lock.name, slot = %lock.slot, mode, node = Empty, outcome = Empty, seconds = Empty)
}

/// A server answered the request.
pub(crate) fn answered(span: &Span, node: &Address) {
    span.record("node", display(node));
}

/// The request is over.
pub(crate) fn acquired(span: &Span, mode: Mode, outcome: &'static str, took: Duration) {
    span.record("outcome", outcome);
    span.record("seconds", took.as_secs_f64());
    measure!("rwlease_acquire_seconds", took, "mode" => word(mode), "outcome" => outcome);
}

/// A place in the queue was had.
pub(crate) fn queued(lock: &LockKey, mode: Mode, node: &Address, ahead: u64) {
    let mode = word(mode);
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, %node, ahead, outcome = "queued");
}

/// The wait in the queue is over.
pub(crate) fn waited(lock: &LockKey, mode: Mode, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (word(mode), took.as_secs_f64());
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, outcome, seconds);
    measure!("rwlease_wait_seconds", took, "mode" => mode, "outcome" => outcome);
}

/// How a grant came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Answer,
    Push,
}

/// The lock is held; `waited` if it was waited for.
pub(crate) fn granted(lock: &LockKey, mode: Mode, node: &Address, token: u64, way: Way, took: Duration, waited: bool) {
    let (mode, seconds) = (word(mode), took.as_secs_f64());
    let outcome = match way {
        Way::Answer => "answer",
        Way::Push => "push",
    };
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, token, outcome, seconds);
    if waited {
        count!("rwlease_handoffs_total", "mode" => mode, "way" => outcome);
    }
}

/// The answer took longer than what it grants.
pub(crate) fn granted_late(lock: &LockKey, mode: Mode, node: &Address) {
    let mode = word(mode);
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, outcome = "late");
}

/// A grant for an owner of this client came by push.
pub(crate) fn pushed(lock: &LockKey, node: &Address, token: u64) {
    trace!(name: "rwlease.push", lock = %lock.name, slot = %lock.slot, %node, token);
    count!("rwlease_pushes_total");
}

// Leases.

/// A renewal that was answered.
pub(crate) fn renewed(lock: &LockKey, mode: Mode, node: &Address, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (word(mode), took.as_secs_f64());
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, %node, outcome, seconds);
    count!("rwlease_renewals_total", "outcome" => outcome);
    measure!("rwlease_renewal_seconds", took, "outcome" => outcome);
}

/// A renewal that came to nothing; the lease is good as long as it was.
pub(crate) fn renewal_failed(lock: &LockKey, mode: Mode, why: &str) {
    let mode = word(mode);
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, outcome = "failed", why);
    count!("rwlease_renewals_total", "outcome" => "failed");
}

/// A lease was lost: it has ended, or the server says that it is no more.
pub(crate) fn lost(loss: &Loss, outcome: &'static str) {
    let (mode, seconds) = (word(loss.mode), loss.held.as_secs_f64());
    warn!(name: "rwlease.lost", lock = %loss.lock, slot = %loss.slot, mode, token = loss.token, outcome, seconds);
    count!("rwlease_lost_total", "mode" => mode, "outcome" => outcome);
    held(loss.mode, "lost", loss.held);
}

/// Whoever was to be told of losses panicked.
pub(crate) fn listener_panicked(loss: &Loss) {
    error!(name: "rwlease.lost", lock = %loss.lock, slot = %loss.slot, outcome = "listener panicked");
}

/// A hold has ended.
pub(crate) fn held(mode: Mode, outcome: &'static str, took: Duration) {
    measure!("rwlease_hold_seconds", took, "mode" => word(mode), "outcome" => outcome);
}

/// A release that was answered.
pub(crate) fn released(lock: &LockKey, node: &Address, ended: &Ended, took: Duration) {
    let outcome = match ended {
        Ended::Released => "released",
        Ended::Left => "left",
        Ended::Expired => "expired",
        Ended::Absent => "absent",
        Ended::Writing(_) => "writing",
    };
    let seconds = took.as_secs_f64();
    debug!(name: "rwlease.release", lock = %lock.name, slot = %lock.slot, %node, outcome, seconds);
    count!("rwlease_releases_total", "outcome" => outcome);
}

/// A release that came to nothing, or maybe did not.
pub(crate) fn release_failed(lock: &str, slot: Slot, why: &dyn Display) {
    warn!(name: "rwlease.release", lock, %slot, outcome = "failed", %why);
    count!("rwlease_releases_total", "outcome" => "failed");
}

/// A downgrade or the end of a wait for an upgrade that the server refused.
pub(crate) fn change_refused(lock: &LockKey, why: &dyn Display) {
    warn!(name: "rwlease.change", lock = %lock.name, slot = %lock.slot, outcome = "refused", %why);
}

// Members of a quorum.

/// A token was farther ahead than members take. `outcome` is `ahead` for the member that gave it and was left out, `behind` for one that would not take what
/// a majority has.
pub(crate) fn clocks_differ(
    lock: &LockKey,
    member: usize,
    node: Option<&Address>,
    outcome: &'static str,
    by: Duration,
) {
    let (node, seconds) = (node.map(display), by.as_secs_f64());
    warn!(name: "rwlease.clock", lock = %lock.name, slot = %lock.slot, member, node, outcome, seconds);
}

// Servers.

/// A server sent a call elsewhere.
pub(crate) fn redirected(slot: Slot, kind: &'static str, node: &Address, to: &Address) {
    debug!(name: "rwlease.redirect", %slot, %node, %to, outcome = kind);
    count!("rwlease_redirects_total", "kind" => kind);
}

/// The slot map was fetched.
pub(crate) fn refreshed(node: &Address, changed: bool) {
    let outcome = if changed { "changed" } else { "same" };
    debug!(name: "rwlease.refresh", %node, outcome);
    count!("rwlease_refreshes_total", "outcome" => outcome);
}

/// No node gave a slot map.
pub(crate) fn refresh_failed(why: &dyn Display) {
    debug!(name: "rwlease.refresh", outcome = "failed", %why);
    count!("rwlease_refreshes_total", "outcome" => "failed");
}

/// A node tells of an older epoch than is known, and too few masters do.
pub(crate) fn refresh_outdated(node: &Address) {
    debug!(name: "rwlease.refresh", %node, outcome = "outdated");
    count!("rwlease_refreshes_total", "outcome" => "outdated");
}

/// A server at a known address is not one of the known servers. It is sent nothing.
pub(crate) fn stranger(node: &Address, outcome: &'static str, why: &dyn Display) {
    warn!(name: "rwlease.stranger", %node, outcome, %why);
}

/// Another process answers at an address. Without a cluster, what only the old one knew is lost.
pub(crate) fn restarted(node: &Address, from: &str, to: &str) {
    warn!(name: "rwlease.restart", %node, from, to);
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    Commands,
    Subscriptions,
}

/// A server was dialled, and the connection is open or could not be made.
pub(crate) fn dialled(node: &Address, carries: Carries, took: Duration, failure: Option<&dyn Display>) {
    let kind = match carries {
        Carries::Commands => "commands",
        Carries::Subscriptions => "subscriptions",
    };
    let seconds = took.as_secs_f64();
    let outcome = match failure {
        None => {
            debug!(name: "rwlease.connect", %node, kind, outcome = "connected", seconds);
            "connected"
        }
        Some(why) => {
            debug!(name: "rwlease.connect", %node, kind, outcome = "failed", seconds, %why);
            "failed"
        }
    };
    measure!("rwlease_connect_seconds", took, "kind" => kind, "outcome" => outcome);
}

/// What came of one attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempted {
    Answered,
    Moved,
    Ask,
    NoScript,
    /// The slot cannot be served just now, or the server cannot.
    Later,
    Refused,
    Garbled,
    Unconnected,
    /// Given up before it was sent.
    Unsent,
    /// Sent, and no answer came in time.
    Silent,
    /// The connection broke.
    Broken,
}

/// A call was tried at a server.
pub(crate) fn attempted(slot: Slot, node: &Address, attempted: Attempted) {
    let outcome = match attempted {
        Attempted::Answered => "answered",
        Attempted::Moved => "moved",
        Attempted::Ask => "ask",
        Attempted::NoScript => "noscript",
        Attempted::Later => "later",
        Attempted::Refused => "refused",
        Attempted::Garbled => "garbled",
        Attempted::Unconnected => "unconnected",
        Attempted::Unsent => "unsent",
        Attempted::Silent => "silent",
        Attempted::Broken => "broken",
    };
    trace!(name: "rwlease.attempt", %slot, %node, outcome);
    count_each!("rwlease_attempts_total", "outcome" => outcome, [
        "answered",
        "moved",
        "ask",
        "noscript",
        "later",
        "refused",
        "garbled",
        "unconnected",
        "unsent",
        "silent",
        "broken",
    ]);
}

/// How much a server has to do for this process: its gauges, looked up once so that a call only adds and subtracts. All that exist for
/// one server share them.
#[derive(Debug)]
pub(crate) struct Load {
    in_flight: Gauge,
    queued: Gauge,
}

/// Commands that are counted in a gauge until this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    gauge: &'a Gauge,
    commands: f64,
}

impl Load {
    pub(crate) fn of(node: &Address) -> Load {
        Load {
            in_flight: level!("rwlease_commands_in_flight", node),
            queued: level!("rwlease_commands_queued", node),
        }
    }

    /// So many commands are sent and waited for.
    pub(crate) fn in_flight(&self, commands: usize) -> Counted<'_> {
        Counted::add(&self.in_flight, commands)
    }

    /// So many commands wait for their turn to be sent.
    pub(crate) fn queued(&self, commands: usize) -> Counted<'_> {
        Counted::add(&self.queued, commands)
    }
}

impl Counted<'_> {
    fn add(gauge: &Gauge, commands: usize) -> Counted<'_> {
        let commands = commands as f64;
        gauge.increment(commands);
        Counted { gauge, commands }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.gauge.decrement(self.commands);
    }
}

/// In place of that of `metrics`.
#[cfg(not(feature = "metrics"))]
#[derive(Debug)]
struct Gauge;

#[cfg(not(feature = "metrics"))]
impl Gauge {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}
}

/// The channel of a slot was subscribed to.
pub(crate) fn joined(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "joined");
    count!("rwlease_subscriptions_total", "outcome" => "joined");
}

/// This client ended a subscription.
pub(crate) fn left(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "left");
    count!("rwlease_subscriptions_total", "outcome" => "left");
}

/// The server ended a subscription, or its connection is gone.
pub(crate) fn unsubscribed(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "lost");
    count!("rwlease_subscriptions_total", "outcome" => "lost");
}

/// A subscription was refused.
pub(crate) fn subscribe_refused(node: &Address, slot: Slot, why: &dyn Display) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "refused", %why);
    count!("rwlease_subscriptions_total", "outcome" => "refused");
}

/// A connection that carries subscriptions broke.
pub(crate) fn subscriptions_broken(node: &Address, why: &dyn Display) {
    debug!(name: "rwlease.subscribe", %node, outcome = "failed", %why);
}

// Words.

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}

/// What a failed request is called.
pub(crate) fn outcome_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::TriesUsedUp => "tries_used_up",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::Lost => "lost",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Refused => "refused",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Foreign => "foreign",
        ErrorKind::Incompatible => "incompatible",
        ErrorKind::CrossSlot => "cross_slot",
        ErrorKind::TooManyWaiters => "too_many_waiters",
    }
}
