//! Events and metrics of a client's requests and leases.

use std::fmt::Display;
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Span, debug, debug_span, error, trace, warn};

use crate::backend::Address;
use crate::client::acquisition::{GrantSource, TelemetryEvent};
use crate::client::loss::LeaseLoss;
use crate::error::ErrorKind;
use crate::health::ClientFailure;
use crate::protocol::{ClientId, LockKey, LockMode, ReleaseReply};
use crate::slot::Slot;
use crate::telemetry::{count_event, count_labeled, record_duration, record_duration_labeled};

/// Describes the metrics, for exporters that show descriptions.
pub(crate) fn describe() {
    crate::router::telemetry::describe();
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_histogram};

        describe_histogram!(
            "rwlease_acquire_seconds",
            Unit::Seconds,
            "Requests for a lock, from the call to its outcome"
        );
        describe_histogram!("rwlease_wait_seconds", Unit::Seconds, "Time in a lock's queue");
        describe_counter!("rwlease_handoffs_total", "Grants to requests that waited");
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
        // A rate counts only from a series' first sample.
        for mode in [LockMode::Read, LockMode::Write].map(mode_label) {
            for outcome in ["taken", "expired", "client_failed"] {
                metrics::counter!("rwlease_lost_total", "mode" => mode, "outcome" => outcome)
                    .increment(0);
            }
            for way in ["push", "answer"] {
                metrics::counter!("rwlease_handoffs_total", "mode" => mode, "way" => way)
                    .increment(0);
            }
        }
        metrics::counter!("rwlease_renewals_total", "outcome" => "failed").increment(0);
        describe_counter!("rwlease_releases_total", "Releases");
        describe_counter!("rwlease_pushes_total", "Grants that came by push");
        crate::client::cache::telemetry::describe();
    }
}

/// Emits the note of a transition.
pub(crate) fn emit(lock: &LockKey, note: TelemetryEvent) {
    match note {
        TelemetryEvent::Queued { mode, node, ahead } => emit_queued(lock, mode, &node, ahead),
        TelemetryEvent::GrantExpired { mode, node } => emit_grant_expired(lock, mode, &node),
        TelemetryEvent::Renewed { mode, node, outcome, took } => {
            record_renewal(lock, mode, &node, outcome, took)
        }
        TelemetryEvent::RenewalFailed { mode, why } => emit_renewal_failed(lock, mode, &why),
        TelemetryEvent::ChangeRefused(error) => emit_change_rejected(lock, &error),
        TelemetryEvent::Released { node, ended, took } => record_release(lock, &node, &ended, took),
        TelemetryEvent::ReleaseFailed(error) => emit_release_failed(&lock.name, lock.slot, &error),
    }
}

// Requests.

/// The span of a whole request. Its outcome is recorded at the end.
pub(crate) fn acquire_span(lock: &LockKey, mode: LockMode) -> Span {
    let mode = mode_label(mode);
    debug_span!("rwlease.acquire", lock = %lock.name, slot = %lock.slot, mode, node = Empty, outcome = Empty, seconds = Empty)
}

/// A server answered the request.
pub(crate) fn record_server(span: &Span, node: &Address) {
    span.record("node", display(node));
}

/// The request has ended.
pub(crate) fn record_outcome(span: &Span, mode: LockMode, outcome: &'static str, took: Duration) {
    span.record("outcome", outcome);
    span.record("seconds", took.as_secs_f64());
    record_duration_labeled!("rwlease_acquire_seconds", took, "mode" => mode_label(mode), "outcome" => outcome, [
        ("read", "granted"),
        ("write", "granted"),
        ("read", "busy"),
        ("write", "busy"),
    ]);
}

/// A request got a place in the queue.
fn emit_queued(lock: &LockKey, mode: LockMode, node: &Address, ahead: u64) {
    let mode = mode_label(mode);
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, %node, ahead, outcome = "queued");
}

/// The wait in the queue has ended.
pub(crate) fn record_wait(lock: &LockKey, mode: LockMode, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (mode_label(mode), took.as_secs_f64());
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, outcome, seconds);
    record_duration!("rwlease_wait_seconds", took, "mode" => mode, "outcome" => outcome);
}

/// The lock is held. `waited` says whether the request had to wait.
pub(crate) fn record_grant(
    lock: &LockKey,
    mode: LockMode,
    node: &Address,
    token: u64,
    by: GrantSource,
    took: impl Fn() -> Duration,
    waited: bool,
) {
    let mode = mode_label(mode);
    let outcome = match by {
        GrantSource::Reply => "answer",
        GrantSource::Push => "push",
    };
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, token, outcome, seconds = took().as_secs_f64());
    if waited {
        count_event!("rwlease_handoffs_total", "mode" => mode, "way" => outcome);
    }
}

/// The answer took longer than the lease that it grants.
fn emit_grant_expired(lock: &LockKey, mode: LockMode, node: &Address) {
    let mode = mode_label(mode);
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, outcome = "late");
}

/// A grant for an acquisition of this client was pushed.
pub(crate) fn record_push(lock: &LockKey, node: &Address, token: u64) {
    trace!(name: "rwlease.push", lock = %lock.name, slot = %lock.slot, %node, token);
    count_event!("rwlease_pushes_total");
}

// Leases.

/// A renewal was answered.
fn record_renewal(
    lock: &LockKey,
    mode: LockMode,
    node: &Address,
    outcome: &'static str,
    took: Duration,
) {
    let (mode, seconds) = (mode_label(mode), took.as_secs_f64());
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, %node, outcome, seconds);
    count_event!("rwlease_renewals_total", "outcome" => outcome);
    record_duration!("rwlease_renewal_seconds", took, "outcome" => outcome);
}

/// A renewal failed; the lease still ends when it did.
fn emit_renewal_failed(lock: &LockKey, mode: LockMode, why: &str) {
    let mode = mode_label(mode);
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, outcome = "failed", why);
    count_event!("rwlease_renewals_total", "outcome" => "failed");
}

/// A lease was lost: it has ended, or the server says that it is gone.
pub(crate) fn record_loss(loss: &LeaseLoss, outcome: &'static str) {
    let (mode, seconds) = (mode_label(loss.mode), loss.held_for.as_secs_f64());
    warn!(name: "rwlease.lost", lock = %loss.lock, slot = %loss.slot, mode, token = loss.token, outcome, seconds);
    count_event!("rwlease_lost_total", "mode" => mode, "outcome" => outcome);
    record_hold(loss.mode, "lost", loss.held_for);
}

/// The listener for losses panicked.
pub(crate) fn emit_listener_panicked(loss: &LeaseLoss, why: &str) {
    error!(name: "rwlease.callback", callback = "on_lost", lock = %loss.lock, slot = %loss.slot, outcome = "panicked", why);
}

/// The listener for losses is too far behind to be told of this one.
pub(crate) fn loss_unreported(loss: &LeaseLoss) {
    error!(name: "rwlease.callback", callback = "on_lost", lock = %loss.lock, slot = %loss.slot, outcome = "behind");
}

/// The client has failed, and its leases are lost.
pub(crate) fn client_failed(client: &ClientId, failure: &ClientFailure) {
    match failure {
        ClientFailure::TaskPanicked { task, message } => {
            error!(name: "rwlease.client", %client, task, outcome = "panicked", why = message.as_str());
        }
        // At the end of a program this is usual.
        ClientFailure::RuntimeEnded => {
            debug!(name: "rwlease.client", %client, outcome = "runtime_ended");
        }
    }
}

/// A hold has ended.
pub(crate) fn record_hold(mode: LockMode, outcome: &'static str, took: Duration) {
    record_duration_labeled!("rwlease_hold_seconds", took, "mode" => mode_label(mode), "outcome" => outcome, [
        ("read", "released"),
        ("write", "released"),
        ("read", "dropped"),
        ("write", "dropped"),
    ]);
}

/// A release was answered.
fn record_release(lock: &LockKey, node: &Address, ended: &ReleaseReply, took: Duration) {
    let outcome = match ended {
        ReleaseReply::Released => "released",
        ReleaseReply::LeftQueue => "left",
        ReleaseReply::ForceReleased => "expired",
        ReleaseReply::NotFound => "absent",
        ReleaseReply::UpgradeGranted(_) => "writing",
    };
    let seconds = took.as_secs_f64();
    debug!(name: "rwlease.release", lock = %lock.name, slot = %lock.slot, %node, outcome, seconds);
    count_labeled!("rwlease_releases_total", "outcome" => outcome, [
        "released",
        "left",
        "expired",
        "absent",
        "writing",
    ]);
}

/// A release failed, or may have.
pub(crate) fn emit_release_failed(lock: &str, slot: Slot, why: &dyn Display) {
    warn!(name: "rwlease.release", lock, %slot, outcome = "failed", %why);
    count_event!("rwlease_releases_total", "outcome" => "failed");
}

/// The server refused a downgrade or the end of a wait for an upgrade.
fn emit_change_rejected(lock: &LockKey, why: &dyn Display) {
    warn!(name: "rwlease.change", lock = %lock.name, slot = %lock.slot, outcome = "refused", %why);
}

// Command.

pub(crate) fn mode_label(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Read => "read",
        LockMode::Write => "write",
    }
}

/// The name of a failed request's outcome.
pub(crate) fn outcome_label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::TriesUsedUp => "tries_used_up",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::ClientFailed => "client_failed",
        ErrorKind::Lost => "lost",
        ErrorKind::Revoked => "revoked",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Refused => "refused",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Foreign => "foreign",
        ErrorKind::Incompatible => "incompatible",
        ErrorKind::CrossSlot => "cross_slot",
        ErrorKind::TooManyWaiters => "too_many_waiters",
        ErrorKind::LimitMismatch => "limit_mismatch",
    }
}
