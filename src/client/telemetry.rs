//! Events and metrics of a client's requests and leases.

use std::fmt::Display;
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Span, debug, debug_span, error, trace, warn};

use crate::client::acquisition::{By, Note};
use crate::client::lost::Loss;
use crate::error::ErrorKind;
use crate::health::ClientFailure;
use crate::node::Address;
use crate::protocol::{ClientId, Ended, LockKey, Mode};
use crate::slot::Slot;
use crate::telemetry::{count, count_each, measure, measure_each};

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
        for mode in [Mode::Read, Mode::Write].map(word) {
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
pub(crate) fn tell(lock: &LockKey, note: Note) {
    match note {
        Note::Queued { mode, node, ahead } => queued(lock, mode, &node, ahead),
        Note::GrantedLate { mode, node } => granted_late(lock, mode, &node),
        Note::Renewed { mode, node, outcome, took } => renewed(lock, mode, &node, outcome, took),
        Note::RenewalFailed { mode, why } => renewal_failed(lock, mode, &why),
        Note::ChangeRefused(error) => change_refused(lock, &error),
        Note::Released { node, ended, took } => released(lock, &node, &ended, took),
        Note::ReleaseFailed(error) => release_failed(&lock.name, lock.slot, &error),
    }
}

// Requests.

/// The span of a whole request. Its outcome is recorded at the end.
pub(crate) fn acquire(lock: &LockKey, mode: Mode) -> Span {
    let mode = word(mode);
    debug_span!("rwlease.acquire", lock = %lock.name, slot = %lock.slot, mode, node = Empty, outcome = Empty, seconds = Empty)
}

/// A server answered the request.
pub(crate) fn answered(span: &Span, node: &Address) {
    span.record("node", display(node));
}

/// The request has ended.
pub(crate) fn acquired(span: &Span, mode: Mode, outcome: &'static str, took: Duration) {
    span.record("outcome", outcome);
    span.record("seconds", took.as_secs_f64());
    measure_each!("rwlease_acquire_seconds", took, "mode" => word(mode), "outcome" => outcome, [
        ("read", "granted"),
        ("write", "granted"),
        ("read", "busy"),
        ("write", "busy"),
    ]);
}

/// A request got a place in the queue.
fn queued(lock: &LockKey, mode: Mode, node: &Address, ahead: u64) {
    let mode = word(mode);
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, %node, ahead, outcome = "queued");
}

/// The wait in the queue has ended.
pub(crate) fn waited(lock: &LockKey, mode: Mode, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (word(mode), took.as_secs_f64());
    debug!(name: "rwlease.wait", lock = %lock.name, slot = %lock.slot, mode, outcome, seconds);
    measure!("rwlease_wait_seconds", took, "mode" => mode, "outcome" => outcome);
}

/// The lock is held. `waited` says whether the request had to wait.
pub(crate) fn granted(
    lock: &LockKey,
    mode: Mode,
    node: &Address,
    token: u64,
    by: By,
    took: impl Fn() -> Duration,
    waited: bool,
) {
    let mode = word(mode);
    let outcome = match by {
        By::Answer => "answer",
        By::Push => "push",
    };
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, token, outcome, seconds = took().as_secs_f64());
    if waited {
        count!("rwlease_handoffs_total", "mode" => mode, "way" => outcome);
    }
}

/// The answer took longer than the lease that it grants.
fn granted_late(lock: &LockKey, mode: Mode, node: &Address) {
    let mode = word(mode);
    debug!(name: "rwlease.grant", lock = %lock.name, slot = %lock.slot, mode, %node, outcome = "late");
}

/// A grant for an acquisition of this client was pushed.
pub(crate) fn pushed(lock: &LockKey, node: &Address, token: u64) {
    trace!(name: "rwlease.push", lock = %lock.name, slot = %lock.slot, %node, token);
    count!("rwlease_pushes_total");
}

// Leases.

/// A renewal was answered.
fn renewed(lock: &LockKey, mode: Mode, node: &Address, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (word(mode), took.as_secs_f64());
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, %node, outcome, seconds);
    count!("rwlease_renewals_total", "outcome" => outcome);
    measure!("rwlease_renewal_seconds", took, "outcome" => outcome);
}

/// A renewal failed; the lease still ends when it did.
fn renewal_failed(lock: &LockKey, mode: Mode, why: &str) {
    let mode = word(mode);
    debug!(name: "rwlease.renew", lock = %lock.name, slot = %lock.slot, mode, outcome = "failed", why);
    count!("rwlease_renewals_total", "outcome" => "failed");
}

/// A lease was lost: it has ended, or the server says that it is gone.
pub(crate) fn lost(loss: &Loss, outcome: &'static str) {
    let (mode, seconds) = (word(loss.mode), loss.held.as_secs_f64());
    warn!(name: "rwlease.lost", lock = %loss.lock, slot = %loss.slot, mode, token = loss.token, outcome, seconds);
    count!("rwlease_lost_total", "mode" => mode, "outcome" => outcome);
    held(loss.mode, "lost", loss.held);
}

/// The listener for losses panicked.
pub(crate) fn listener_panicked(loss: &Loss, why: &str) {
    error!(name: "rwlease.callback", callback = "on_lost", lock = %loss.lock, slot = %loss.slot, outcome = "panicked", why);
}

/// The listener for losses is too far behind to be told of this one.
pub(crate) fn loss_unreported(loss: &Loss) {
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
pub(crate) fn held(mode: Mode, outcome: &'static str, took: Duration) {
    measure_each!("rwlease_hold_seconds", took, "mode" => word(mode), "outcome" => outcome, [
        ("read", "released"),
        ("write", "released"),
        ("read", "dropped"),
        ("write", "dropped"),
    ]);
}

/// A release was answered.
fn released(lock: &LockKey, node: &Address, ended: &Ended, took: Duration) {
    let outcome = match ended {
        Ended::Released => "released",
        Ended::Left => "left",
        Ended::Expired => "expired",
        Ended::Absent => "absent",
        Ended::Writing(_) => "writing",
    };
    let seconds = took.as_secs_f64();
    debug!(name: "rwlease.release", lock = %lock.name, slot = %lock.slot, %node, outcome, seconds);
    count_each!("rwlease_releases_total", "outcome" => outcome, [
        "released",
        "left",
        "expired",
        "absent",
        "writing",
    ]);
}

/// A release failed, or may have.
pub(crate) fn release_failed(lock: &str, slot: Slot, why: &dyn Display) {
    warn!(name: "rwlease.release", lock, %slot, outcome = "failed", %why);
    count!("rwlease_releases_total", "outcome" => "failed");
}

/// The server refused a downgrade or the end of a wait for an upgrade.
fn change_refused(lock: &LockKey, why: &dyn Display) {
    warn!(name: "rwlease.change", lock = %lock.name, slot = %lock.slot, outcome = "refused", %why);
}

// Command.

pub(crate) fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}

/// The name of a failed request's outcome.
pub(crate) fn outcome_of(kind: ErrorKind) -> &'static str {
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
