//! Events and metrics of servers and connections.

use std::fmt::Display;
use std::time::Duration;

use tracing::{debug, info, trace, warn};

use crate::node::Address;
use crate::slot::Slot;
use crate::telemetry::{Gauge, count, count_each, emit_in_drop, level, measure};

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

/// A node reports an older epoch than the known one, and too few masters do.
pub(crate) fn refresh_outdated(node: &Address) {
    debug!(name: "rwlease.refresh", %node, outcome = "outdated");
    count!("rwlease_refreshes_total", "outcome" => "outdated");
}

/// Sentinels name another master. Holders of locks continue there.
pub(crate) fn master_changed(from: &Address, to: &Address, epoch: u64) {
    info!(name: "rwlease.master", %from, %to, epoch);
    count!("rwlease_master_changes_total");
}

/// A sentinel is subscribed to.
pub(crate) fn sentinel_joined(node: &Address) {
    debug!(name: "rwlease.sentinel", %node, outcome = "joined");
}

/// A sentinel does not answer, or its subscription has ended.
pub(crate) fn sentinel_failed(node: &Address, why: &dyn Display) {
    debug!(name: "rwlease.sentinel", %node, outcome = "failed", %why);
}

/// A server at a known address is not one of the known servers. No commands are sent to it.
pub(crate) fn stranger(node: &Address, outcome: &'static str, why: &dyn Display) {
    warn!(name: "rwlease.stranger", %node, outcome, %why);
}

/// An entry of a server's answer cannot be used. It is skipped.
pub(crate) fn bad_entry(node: &Address, entry: &str, why: &str) {
    warn!(name: "rwlease.bad_entry", %node, entry, why);
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

/// A dial ended: the connection is open, or could not be made.
pub(crate) fn dialled(
    node: &Address,
    carries: Carries,
    took: Duration,
    failure: Option<&dyn Display>,
) {
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

/// The outcome of one attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempted {
    Answered,
    /// The server's own command did nothing, and the script is called.
    Undone,
    Moved,
    Ask,
    NoScript,
    /// The slot or the server cannot serve the call at the moment.
    Later,
    Refused,
    Garbled,
    Unconnected,
    /// Given up before it was sent.
    Unsent,
    /// Sent, without an answer in time.
    Silent,
    /// The connection broke.
    Broken,
}

/// A call was attempted at a server.
pub(crate) fn attempted(slot: Slot, node: &Address, attempted: Attempted) {
    let outcome = match attempted {
        Attempted::Answered => "answered",
        Attempted::Undone => "undone",
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
pub(crate) struct Load {
    in_flight: Gauge,
    queued: Gauge,
}

/// Commands that a gauge counts until this is dropped.
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

    /// Counts commands that are sent and have no answer so far.
    pub(crate) fn in_flight(&self, commands: usize) -> Counted<'_> {
        Counted::add(&self.in_flight, commands)
    }

    /// Counts commands that wait for a permit.
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
        emit_in_drop(|| self.gauge.decrement(self.commands));
    }
}

/// The channel of a slot was joined.
pub(crate) fn joined(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "joined");
    count!("rwlease_subscriptions_total", "outcome" => "joined");
}

/// This client left a channel.
pub(crate) fn left(node: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %node, outcome = "left");
    count!("rwlease_subscriptions_total", "outcome" => "left");
}

/// The server ended a subscription, or its connection broke.
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
