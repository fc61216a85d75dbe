use std::error::Error as StdError;
use std::time::Duration;

use rwlease_core::acquisition::{GrantSource, TelemetryEvent};
use rwlease_core::protocol::{ClientId, ClientInfo, LockKey, LockMode, ReleaseReply};
use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;
use tracing::field::{Empty, display};
use tracing::{Span, debug, debug_span, error, warn};

use crate::client::loss::LeaseLoss;
use crate::error::{Error, ErrorChain, ErrorKind};
use crate::health::ClientFailure;
use crate::telemetry::{
    count_event, count_labeled, lock_event, record_duration, record_duration_labeled,
};

/// Describes the metrics, for exporters that show descriptions.
pub(crate) fn describe() {
    crate::router::telemetry::describe();
    #[cfg(feature = "metrics")]
    {
        use metrics::counter;

        crate::telemetry::describe_metrics! {
            histogram "rwlease_acquire_seconds" "Requests for a lock, from the call to its outcome";
            histogram "rwlease_wait_seconds" "Time in a lock's queue";
            counter "rwlease_handoffs_total" "Grants to requests that waited";
            histogram "rwlease_hold_seconds" "Holds, from the grant to their end";
            counter "rwlease_renewals_total" "Renewals of leases";
            histogram "rwlease_renewal_seconds" "Round trips of renewals that were answered";
            counter "rwlease_leases_at_risk_total" "Leases that came to be at risk";
            counter "rwlease_lease_losses_total" "Leases that were lost";
            counter "rwlease_releases_total" "Releases";
            counter "rwlease_pushes_total" "Grants that came by push";
            gauge "rwlease_clients" "Clients of this process: 1 until the client ends";
        }
        // A rate counts only from a series' first sample.
        for mode in [LockMode::Read, LockMode::Write].map(mode_label) {
            for reason in ["not_held", "expired", "client_failed"] {
                counter!("rwlease_lease_losses_total", "mode" => mode, "reason" => reason)
                    .increment(0);
            }
            counter!("rwlease_leases_at_risk_total", "mode" => mode).increment(0);
            for source in ["push", "reply"] {
                counter!("rwlease_handoffs_total", "mode" => mode, "source" => source).increment(0);
            }
        }
        counter!("rwlease_renewals_total", "outcome" => "failed").increment(0);
        crate::client::cache::telemetry::describe();
    }
}

pub(crate) fn emit(lock: &LockKey, note: TelemetryEvent) {
    match note {
        TelemetryEvent::Queued { mode, server, ahead } => emit_queued(lock, mode, &server, ahead),
        TelemetryEvent::GrantExpired { mode, server } => emit_grant_expired(lock, mode, &server),
        TelemetryEvent::Renewed { mode, server, outcome, took } => {
            record_renewal(lock, mode, &server, outcome, took)
        }
        TelemetryEvent::RenewalFailed { mode, error } => emit_renewal_failed(lock, mode, &error),
        TelemetryEvent::AtRisk { mode, token, left } => record_risk(lock, mode, token, left),
        TelemetryEvent::ChangeRefused(error) => emit_change_rejected(lock, &error.into()),
        TelemetryEvent::Released { server, outcome, took } => {
            record_release(lock, &server, &outcome, took)
        }
        TelemetryEvent::ReleaseFailed(error) => {
            emit_release_failed(&lock.name, lock.slot, &error.into());
        }
    }
}

// Requests.

/// The span of a whole request. Its outcome is recorded at the end.
pub(crate) fn acquire_span(lock: &LockKey, mode: LockMode) -> Span {
    let mode = mode_label(mode);
    debug_span!(
        "rwlease.acquire", lock = %lock.name, slot = %lock.slot, mode, server = Empty,
        outcome = Empty, seconds = Empty,
    )
}

/// Records the last server that replied to the request.
pub(crate) fn record_server(span: &Span, server: &Address) {
    span.record("server", display(server));
}

/// The request has ended.
pub(crate) fn record_outcome(span: &Span, mode: LockMode, outcome: &'static str, took: Duration) {
    span.record("outcome", outcome);
    span.record("seconds", took.as_secs_f64());
    record_duration_labeled!("rwlease_acquire_seconds", took, "mode" => mode_label(mode), "outcome" => outcome, [
        ("read", "granted"), ("write", "granted"), ("read", "busy"), ("write", "busy"),
    ]);
}

/// No server has answered the request for a while. It goes on.
pub(crate) fn emit_unanswered(
    lock: &LockKey,
    mode: LockMode,
    silence: Duration,
    failure: Option<&(dyn StdError + Send + Sync)>,
) {
    let (mode, seconds) = (mode_label(mode), silence.as_secs_f64());
    let error = failure.map(|failure| display(ErrorChain(failure)));
    lock_event!(
        warn, lock, name: "rwlease.unanswered", mode, seconds, error, "request has no reply yet",
    );
}

/// The request joined the queue of the lock.
fn emit_queued(lock: &LockKey, mode: LockMode, server: &Address, ahead: u64) {
    let mode = mode_label(mode);
    lock_event!(
        debug, lock, name: "rwlease.wait", mode, %server, ahead, outcome = "queued",
        "waiting in the queue",
    );
}

/// The wait in the queue has ended.
pub(crate) fn record_wait(lock: &LockKey, mode: LockMode, outcome: &'static str, took: Duration) {
    let (mode, seconds) = (mode_label(mode), took.as_secs_f64());
    lock_event!(
        debug, lock, name: "rwlease.wait", mode, outcome, seconds, "wait in the queue ended",
    );
    record_duration!("rwlease_wait_seconds", took, "mode" => mode, "outcome" => outcome);
}

/// The lock is held. `waited` says whether the request had to wait.
pub(crate) fn record_grant(
    lock: &LockKey,
    mode: LockMode,
    server: &Address,
    token: u64,
    by: GrantSource,
    took: impl Fn() -> Duration,
    waited: bool,
) {
    let mode = mode_label(mode);
    let source = match by {
        GrantSource::Reply => "reply",
        GrantSource::Push => "push",
    };
    lock_event!(
        debug, lock, name: "rwlease.grant", mode, %server, token, outcome = "granted", source,
        seconds = took().as_secs_f64(), "lock granted",
    );
    if waited {
        count_event!("rwlease_handoffs_total", "mode" => mode, "source" => source);
    }
}

/// The reply with the grant arrived after the granted lease had ended.
fn emit_grant_expired(lock: &LockKey, mode: LockMode, server: &Address) {
    let mode = mode_label(mode);
    lock_event!(
        debug, lock, name: "rwlease.grant", mode, %server, outcome = "late",
        "grant arrived after its lease had ended",
    );
}

/// A grant for an acquisition of this client was pushed.
pub(crate) fn record_push(lock: &LockKey, server: &Address, token: u64) {
    lock_event!(trace, lock, name: "rwlease.push", %server, token, "grant pushed");
    count_event!("rwlease_pushes_total");
}

// Leases.

/// A renewal was answered.
fn record_renewal(
    lock: &LockKey,
    mode: LockMode,
    server: &Address,
    outcome: &'static str,
    took: Duration,
) {
    let (mode, seconds) = (mode_label(mode), took.as_secs_f64());
    let message = match outcome {
        "renewed" => "lease renewed",
        "revoked" => "lease not renewed: it was revoked",
        _ => "lease not renewed: the server does not know it",
    };
    lock_event!(debug, lock, name: "rwlease.renew", mode, %server, outcome, seconds, "{message}");
    count_event!("rwlease_renewals_total", "outcome" => outcome);
    record_duration!("rwlease_renewal_seconds", took, "outcome" => outcome);
}

/// A renewal failed. The deadline of the lease stays as it is.
fn emit_renewal_failed(lock: &LockKey, mode: LockMode, error: &str) {
    let mode = mode_label(mode);
    lock_event!(
        debug, lock, name: "rwlease.renew", mode, outcome = "failed", error, "renewal failed",
    );
    count_event!("rwlease_renewals_total", "outcome" => "failed");
}

/// No renewal has succeeded, and less than half of the lease is left.
fn record_risk(lock: &LockKey, mode: LockMode, token: u64, left: Duration) {
    let (mode, seconds_left) = (mode_label(mode), left.as_secs_f64());
    lock_event!(
        warn, lock, name: "rwlease.at_risk", mode, token, seconds_left,
        "lease at risk: it is not being renewed",
    );
    count_event!("rwlease_leases_at_risk_total", "mode" => mode);
}

/// A lease was lost: it expired, the server does not know it, or the client has failed.
pub(crate) fn record_loss(loss: &LeaseLoss, reason: &'static str) {
    let (mode, seconds) = (mode_label(loss.mode), loss.held_for.as_secs_f64());
    warn!(
        name: "rwlease.lost", lock = %loss.lock, slot = %loss.slot, mode,
        token = loss.fencing_token.map_or(0, u64::from), reason, seconds, "lease lost",
    );
    count_event!("rwlease_lease_losses_total", "mode" => mode, "reason" => reason);
    record_hold(loss.mode, "lost", loss.held_for);
}

pub(crate) fn emit_listener_panicked(loss: &LeaseLoss, error: &str) {
    error!(
        name: "rwlease.callback", callback = "on_lease_lost", lock = %loss.lock, slot = %loss.slot,
        outcome = "panicked", error, "callback panicked",
    );
}

/// The listener for losses is too far behind and is not called for this loss.
pub(crate) fn loss_unreported(loss: &LeaseLoss) {
    error!(
        name: "rwlease.callback", callback = "on_lease_lost", lock = %loss.lock, slot = %loss.slot,
        outcome = "behind", "callback not called: it is too far behind",
    );
}

/// The client has failed, and its leases are lost.
pub(crate) fn client_failed(client: &ClientId, failure: &ClientFailure) {
    match failure {
        ClientFailure::TaskPanicked { task, message } => {
            error!(
                name: "rwlease.client", %client, task, outcome = "panicked",
                error = message.as_str(), "client failed: one of its tasks panicked",
            );
        }
        // At the end of a program this is usual.
        ClientFailure::RuntimeEnded => {
            debug!(
                name: "rwlease.client", %client, outcome = "runtime_ended",
                "client ended with its runtime",
            );
        }
    }
}

/// Counts the client while it lives.
pub(crate) fn set_client(client: &ClientId, info: &ClientInfo, is_alive: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!(
        "rwlease_clients",
        "client" => client.to_string(),
        "label" => info.label.clone(),
        "host" => info.host.clone(),
    )
    .set(f64::from(u8::from(is_alive)));
    // Without metrics, nothing reads them.
    #[cfg(not(feature = "metrics"))]
    let _ = (client, info, is_alive);
}

/// The client has written its record, or failed to.
pub(crate) fn emit_client_record(client: &ClientId, info: &ClientInfo, failure: Option<&Error>) {
    let ClientInfo { label, host, pid, .. } = info;
    let (outcome, message) = match failure {
        None => ("written", "record of the client written"),
        Some(_) => ("not_written", "record of the client not written"),
    };
    debug!(
        name: "rwlease.client_record", %client, label, host, pid, outcome,
        error = failure.map(display), "{message}",
    );
}

/// A query could not read the record of a client.
pub(crate) fn emit_record_unread(client: &ClientId, error: &Error) {
    debug!(
        name: "rwlease.client_record", %client, outcome = "not_read", %error,
        "record of a client not read",
    );
}

/// A hold has ended.
pub(crate) fn record_hold(mode: LockMode, outcome: &'static str, took: Duration) {
    record_duration_labeled!("rwlease_hold_seconds", took, "mode" => mode_label(mode), "outcome" => outcome, [
        ("read", "released"), ("write", "released"), ("read", "dropped"), ("write", "dropped"),
    ]);
}

/// A release was answered.
fn record_release(lock: &LockKey, server: &Address, ended: &ReleaseReply, took: Duration) {
    let (outcome, message) = match ended {
        ReleaseReply::Released => ("released", "lock released"),
        ReleaseReply::Kept(_) => ("kept", "lock released, and taken until its shortest time ends"),
        ReleaseReply::LeftQueue => ("left_queue", "request left the queue"),
        ReleaseReply::ForceReleased => ("force_released", "lock was released by force before"),
        ReleaseReply::NotFound => ("not_found", "nothing to release"),
        ReleaseReply::UpgradeGranted(_) => {
            ("upgrade_granted", "wait not ended: the upgrade was granted before")
        }
    };
    let seconds = took.as_secs_f64();
    lock_event!(debug, lock, name: "rwlease.release", %server, outcome, seconds, "{message}");
    count_labeled!("rwlease_releases_total", "outcome" => outcome, [
        "released", "kept", "left_queue", "force_released", "not_found", "upgrade_granted",
    ]);
}

/// A release failed, or its outcome is unknown.
pub(crate) fn emit_release_failed(lock: &str, slot: Slot, error: &Error) {
    let error = ErrorChain(error);
    warn!(name: "rwlease.release", lock, %slot, outcome = "failed", %error, "release failed");
    count_event!("rwlease_releases_total", "outcome" => "failed");
}

/// The server rejected a downgrade or the end of a wait for an upgrade.
fn emit_change_rejected(lock: &LockKey, error: &Error) {
    let error = ErrorChain(error);
    lock_event!(
        warn, lock, name: "rwlease.lease_change", outcome = "rejected", %error,
        "change of the lease rejected",
    );
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
        ErrorKind::AttemptsExhausted => "attempts_exhausted",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::ClientFailed => "client_failed",
        ErrorKind::LeaseLost => "lease_lost",
        ErrorKind::LeaseRevoked => "lease_revoked",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::UpgradeConflict => "upgrade_conflict",
        ErrorKind::Rejected => "rejected",
        ErrorKind::InvalidInput => "invalid_input",
        ErrorKind::WrongType => "wrong_type",
        ErrorKind::UnsupportedVersion => "unsupported_version",
        ErrorKind::CrossSlot => "cross_slot",
        ErrorKind::QueueFull => "queue_full",
        ErrorKind::LimitMismatch => "limit_mismatch",
        ErrorKind::StaleToken => "stale_token",
        ErrorKind::OtherLock => "other_lock",
        ErrorKind::NotFound => "not_found",
    }
}
