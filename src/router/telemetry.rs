use std::fmt::Display;
use std::time::Duration;

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use tracing::field::display;
use tracing::{debug, info, trace, warn};

use crate::error::{Error, ErrorChain};
use crate::on_drop::OnDrop;
use crate::telemetry::{
    Gauge, count_event, count_labeled, emit_in_drop, record_duration, server_gauge,
};

/// Describes the metrics to exporters that show descriptions.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        crate::telemetry::describe_metrics! {
            counter "rwlease_redirects_total" "MOVED and ASK that were followed";
            counter "rwlease_refreshes_total" "Fetches of the slot map";
            counter "rwlease_master_changes_total" "New masters that sentinels reported";
            histogram "rwlease_connect_seconds"
                "Connections that were opened or could not be, from the dial to its outcome";
            counter "rwlease_attempts_total" "Attempts to have a call answered by a server";
            gauge "rwlease_commands_in_flight"
                "Commands that were sent to a server and are waited for";
            gauge "rwlease_commands_queued"
                "Commands that wait in this process for their turn to be sent to a server";
            counter "rwlease_subscriptions_total"
                "Subscriptions that began, ended, were lost or were rejected";
        }
        metrics::counter!("rwlease_master_changes_total").increment(0);
        metrics::counter!("rwlease_refreshes_total", "outcome" => "failed").increment(0);
        for kind in ["moved", "ask"] {
            metrics::counter!("rwlease_redirects_total", "kind" => kind).increment(0);
        }
        for outcome in ["no_reply", "connection_lost"] {
            metrics::counter!("rwlease_attempts_total", "outcome" => outcome).increment(0);
        }
        metrics::counter!("rwlease_subscriptions_total", "outcome" => "lost").increment(0);
    }
}

pub(crate) fn record_redirect(slot: Slot, kind: &'static str, server: &Address, to: &Address) {
    debug!(name: "rwlease.redirect", %slot, %server, %to, outcome = kind, "call redirected");
    count_event!("rwlease_redirects_total", "kind" => kind);
}

/// The slot map was fetched.
pub(crate) fn record_refresh(server: &Address, changed: bool) {
    let outcome = if changed { "changed" } else { "same" };
    debug!(name: "rwlease.refresh", %server, outcome, "slot map fetched");
    count_event!("rwlease_refreshes_total", "outcome" => outcome);
}

/// No server returned a slot map.
pub(crate) fn emit_refresh_failed(error: &dyn Display) {
    debug!(name: "rwlease.refresh", outcome = "failed", %error, "slot map not fetched");
    count_event!("rwlease_refreshes_total", "outcome" => "failed");
}

/// A new client waits for servers that do not answer.
pub(crate) fn emit_waiting_for_servers(error: &Error, left: Duration) {
    let seconds_left = left.as_secs_f64();
    let error = ErrorChain(error);
    warn!(name: "rwlease.wait_for_servers", outcome = "waiting", %error, seconds_left, "waiting for servers");
}

pub(crate) fn emit_servers_found(waited: Duration) {
    let seconds = waited.as_secs_f64();
    info!(name: "rwlease.wait_for_servers", outcome = "found", seconds, "servers found");
}

/// A server reports an older epoch than the known one, and too few masters report that epoch.
pub(crate) fn emit_refresh_outdated(server: &Address) {
    debug!(name: "rwlease.refresh", %server, outcome = "outdated", "outdated slot map ignored");
    count_event!("rwlease_refreshes_total", "outcome" => "outdated");
}

/// Sentinels report a new master. Holders of locks continue there.
pub(crate) fn record_master_change(from: &Address, to: &Address, epoch: u64) {
    info!(name: "rwlease.master", %from, %to, epoch, "master changed");
    count_event!("rwlease_master_changes_total");
}

pub(crate) fn emit_sentinel_subscribed(server: &Address) {
    debug!(name: "rwlease.sentinel", %server, outcome = "subscribed", "subscribed to the sentinel");
}

/// A sentinel does not answer, or its subscription has ended.
pub(crate) fn emit_sentinel_failed(server: &Address, error: &dyn Display) {
    debug!(name: "rwlease.sentinel", %server, outcome = "failed", %error, "sentinel failed");
}

/// A server at a known address is not one of the known servers. No commands are sent to it.
pub(crate) fn emit_unexpected_server(server: &Address, outcome: &'static str, error: &dyn Display) {
    warn!(name: "rwlease.unexpected_server", %server, outcome, %error, "unexpected server rejected");
}

/// An entry of a server's reply cannot be used. It is skipped.
pub(crate) fn bad_entry(server: &Address, entry: &str, error: &str) {
    warn!(name: "rwlease.bad_entry", %server, entry, error, "unusable entry skipped");
}

/// Another process answers at the address of a known server. Without a cluster, a lock is lost if
/// the old process had not persisted or replicated it.
pub(crate) fn emit_restart(server: &Address, from: &str, to: &str) {
    warn!(name: "rwlease.restart", %server, from, to, "server restarted");
}

/// A dial ended: the connection is open, or could not be made. `kind` is what it carries:
/// `commands` or `subscriptions`.
pub(crate) fn record_dial(
    server: &Address,
    kind: &'static str,
    took: Duration,
    failure: Option<&dyn Display>,
) {
    let seconds = took.as_secs_f64();
    let (outcome, message) = match failure {
        None => ("connected", "connected to the server"),
        Some(_) => ("failed", "connection to the server failed"),
    };
    let error = failure.map(display);
    debug!(name: "rwlease.connect", %server, kind, outcome, seconds, error, "{message}");
    record_duration!("rwlease_connect_seconds", took, "kind" => kind, "outcome" => outcome);
}

pub(crate) fn record_attempt(slot: Slot, server: &Address, outcome: &'static str) {
    trace!(name: "rwlease.attempt", %slot, %server, outcome, "attempt of a call ended");
    count_labeled!("rwlease_attempts_total", "outcome" => outcome, [
        "replied", "delifeq_miss", "moved", "ask", "noscript", "retryable", "rejected", "malformed",
        "not_connected", "not_sent", "no_reply", "connection_lost",
    ]);
}

/// The gauges of this process's load on one server, looked up once so that a call only adds and
/// subtracts. All instances for one server share them.
#[derive(Debug)]
pub(crate) struct ServerLoad {
    in_flight: Gauge,
    queued: Gauge,
}

impl ServerLoad {
    pub(crate) fn of(server: &Address) -> ServerLoad {
        ServerLoad {
            in_flight: server_gauge!("rwlease_commands_in_flight", server),
            queued: server_gauge!("rwlease_commands_queued", server),
        }
    }

    /// Counts commands that are sent and have no reply yet, until the result is dropped.
    pub(crate) fn in_flight(&self, commands: usize) -> OnDrop<impl FnOnce()> {
        count(&self.in_flight, commands)
    }

    /// Counts commands that wait for a permit, until the result is dropped.
    pub(crate) fn queued(&self, commands: usize) -> OnDrop<impl FnOnce()> {
        count(&self.queued, commands)
    }
}

fn count(gauge: &Gauge, commands: usize) -> OnDrop<impl FnOnce()> {
    let commands = commands as f64;
    gauge.increment(commands);
    OnDrop::new(move || emit_in_drop(|| gauge.decrement(commands)))
}

/// The server confirmed the subscription to the channel of a slot.
pub(crate) fn record_subscribed(server: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %server, outcome = "subscribed", "subscribed");
    count_event!("rwlease_subscriptions_total", "outcome" => "subscribed");
}

/// This client unsubscribed from the channel of a slot.
pub(crate) fn record_unsubscribed(server: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %server, outcome = "unsubscribed", "unsubscribed");
    count_event!("rwlease_subscriptions_total", "outcome" => "unsubscribed");
}

/// The server ended a subscription, or its connection broke.
pub(crate) fn record_subscription_lost(server: &Address, slot: Slot) {
    debug!(name: "rwlease.subscribe", %slot, %server, outcome = "lost", "subscription lost");
    count_event!("rwlease_subscriptions_total", "outcome" => "lost");
}

pub(crate) fn record_subscribe_rejected(server: &Address, slot: Slot, error: &dyn Display) {
    debug!(
        name: "rwlease.subscribe", %slot, %server, outcome = "rejected", %error,
        "subscription rejected",
    );
    count_event!("rwlease_subscriptions_total", "outcome" => "rejected");
}

/// A connection that carries subscriptions broke.
pub(crate) fn emit_subscription_connection_lost(server: &Address, error: &dyn Display) {
    debug!(
        name: "rwlease.subscribe", %server, outcome = "failed", %error,
        "connection for subscriptions failed",
    );
}
