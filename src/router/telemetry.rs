//! Events and metrics of servers and connections.

use std::fmt::Display;
use std::time::Duration;

use tracing::{debug, info, trace, warn};

use crate::backend::Address;
use crate::slot::Slot;
use crate::telemetry::{
    Gauge, count_event, count_labeled, emit_in_drop, record_duration, server_gauge,
};

/// Describes the metrics to exporters that show descriptions.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

        describe_counter!("rwlease_redirects_total", "MOVED and ASK that were followed");
        describe_counter!("rwlease_refreshes_total", "Fetches of the slot map");
        describe_counter!("rwlease_master_changes_total", "Other masters that sentinels named");
        metrics::counter!("rwlease_master_changes_total").increment(0);
        metrics::counter!("rwlease_refreshes_total", "outcome" => "failed").increment(0);
        for kind in ["moved", "ask"] {
            metrics::counter!("rwlease_redirects_total", "kind" => kind).increment(0);
        }
        describe_histogram!(
            "rwlease_connect_seconds",
            Unit::Seconds,
            "Connections that were opened or could not be, from the dial to its outcome"
        );
        describe_counter!("rwlease_attempts_total", "Attempts to have a call answered by a server");
        for outcome in ["silent", "broken"] {
            metrics::counter!("rwlease_attempts_total", "outcome" => outcome).increment(0);
        }
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

/// A server redirected a call.
pub(crate) fn record_redirect(slot: Slot, kind: &'static str, node: &Address, to: &Address) {
    debug!(name: "rwlease.redirect", %slot, %node, %to, outcome = kind);
    count_event!("rwlease_redirects_total", "kind" => kind);
}

/// The slot map was fetched.
pub(crate) fn record_refresh(node: &Address, changed: bool) {
    let outcome = if changed { "changed" } else { "same" };
    debug!(name: "rwlease.refresh", %node, outcome);
    count_event!("rwlease_refreshes_total", "outcome" => outcome);
}

/// No node gave a slot map.
pub(crate) fn emit_refresh_failed(why: &dyn Display) {
    debug!(name: "rwlease.refresh", outcome = "failed", %why);
    count_event!("rwlease_refreshes_total", "outcome" => "failed");
}

/// A node reports an older epoch than the known one, and too few masters do.
pub(crate) fn emit_refresh_outdated(node: &Address) {
    debug!(name: "rwlease.refresh", %node, outcome = "outdated");
    count_event!("rwlease_refreshes_total", "outcome" => "outdated");
}

/// Sentinels name another master. Holders of locks continue there.
pub(crate) fn record_master_change(from: &Address, to: &Address, epoch: u64) {
    info!(name: "rwlease.master", %from, %to, epoch);
    count_event!("rwlease_master_changes_total");
}

/// A sentinel is subscribed to.
pub(crate) fn emit_sentinel_subscribed(node: &Address) {
    debug!(name: "rwlease.sentinel", %node, outcome = "joined");
}

/// A sentinel does not answer, or its subscription has ended.
pub(crate) fn emit_sentinel_failed(node: &Address, why: &dyn Display) {
    debug!(name: "rwlease.sentinel", %node, outcome = "failed", %why);
}

/// A server at a known address is not one of the known servers. No commands are sent to it.
pub(crate) fn emit_unexpected_server(node: &Address, outcome: &'static str, why: &dyn Display) {
    warn!(name: "rwlease.stranger", %node, outcome, %why);
}

/// An entry of a server's answer cannot be used. It is skipped.
pub(crate) fn bad_entry(node: &Address, entry: &str, why: &str) {
    warn!(name: "rwlease.bad_entry", %node, entry, why);
}

/// Another process answers at an address. Without a cluster, what only the old one knew is lost.
pub(crate) fn emit_restart(node: &Address, from: &str, to: &str) {
    warn!(name: "rwlease.restart", %node, from, to);
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    Commands,
    Subscriptions,
}

/// A dial ended: the connection is open, or could not be made.
pub(crate) fn record_dial(
    node: &Address,
    carries: ConnectionKind,
    took: Duration,
    failure: Option<&dyn Display>,
) {
    let kind = match carries {
        ConnectionKind::Commands => "commands",
        ConnectionKind::Subscriptions => "subscriptions",
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
    record_duration!("rwlease_connect_seconds", took, "kind" => kind, "outcome" => outcome);
}

/// The outcome of one attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    Replied,
    /// The server's own command did nothing, and the script is called.
    DelIfEqMiss,
    Moved,
    Ask,
    NoScript,
    /// The slot or the server cannot serve the call at the moment.
    Retryable,
    Rejected,
    Malformed,
    NotConnected,
    /// Given up before it was sent.
    NotSent,
    /// Sent, without an answer in time.
    NoReply,
    /// The connection broke.
    ConnectionLost,
}

/// A call was attempted at a server.
pub(crate) fn record_attempt(slot: Slot, node: &Address, attempted: AttemptResult) {
    let outcome = match attempted {
        AttemptResult::Replied => "answered",
        AttemptResult::DelIfEqMiss => "undone",
        AttemptResult::Moved => "moved",
        AttemptResult::Ask => "ask",
        AttemptResult::NoScript => "noscript",
        AttemptResult::Retryable => "later",
        AttemptResult::Rejected => "refused",
        AttemptResult::Malformed => "garbled",
        AttemptResult::NotConnected => "unconnected",
        AttemptResult::NotSent => "unsent",
        AttemptResult::NoReply => "silent",
        AttemptResult::ConnectionLost => "broken",
    };
    trace!(name: "rwlease.attempt", %slot, %node, outcome);
    count_labeled!("rwlease_attempts_total", "outcome" => outcome, [
        "answered",
        "undone",
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

/// The gauges of this process's load on one server, looked up once so that a call only adds and
/// subtracts. All instances for one server share them.
#[derive(Debug)]
pub(crate) struct ServerLoad {
    in_flight: Gauge,
    queued: Gauge,
}

/// Commands that a gauge counts until this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct GaugeGuard<'a> {
    gauge: &'a Gauge,
    commands: f64,
}

impl ServerLoad {
    pub(crate) fn of(node: &Address) -> ServerLoad {
        ServerLoad {
            in_flight: server_gauge!("rwlease_commands_in_flight", node),
            queued: server_gauge!("rwlease_commands_queued", node),
        }
    }

    /// Counts commands that are sent and have no answer so far.
    pub(crate) fn in_flight(&self, commands: usize) -> GaugeGuard<'_> {
        GaugeGuard::add(&self.in_flight, commands)
    }

    /// Counts commands that wait for a permit.
    pub(crate) fn queued(&self, commands: usize) -> GaugeGuard<'_> {
        GaugeGuard::add(&self.queued, commands)
    }
}

impl GaugeGuard<'_> {
    fn add(gauge: &Gauge, commands: usize) -> GaugeGuard<'_> {
        let commands = commands as f64;
        gauge.increment(commands);
        GaugeGuard { gauge, commands }
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        emit_in_drop(|| self.gauge.decrement(self.commands));
    }
}

/// The channel of a slot was joined.
pub(crate) fn record_subscribed(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "joined");
    count_event!("rwlease_subscriptions_total", "outcome" => "joined");
}

/// This client left a channel.
pub(crate) fn record_unsubscribed(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "left");
    count_event!("rwlease_subscriptions_total", "outcome" => "left");
}

/// The server ended a subscription, or its connection broke.
pub(crate) fn record_subscription_lost(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "lost");
    count_event!("rwlease_subscriptions_total", "outcome" => "lost");
}

/// A subscription was refused.
pub(crate) fn record_subscribe_rejected(node: &Address, slot: Slot, why: &dyn Display) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "refused", %why);
    count_event!("rwlease_subscriptions_total", "outcome" => "refused");
}

/// A connection that carries subscriptions broke.
pub(crate) fn emit_subscription_connection_lost(node: &Address, why: &dyn Display) {
    debug!(name: "rwlease.subscribe", %node, outcome = "failed", %why);
}
