use std::time::Duration;

use rwlease_core::protocol::{LockKey, LockMode};
use tracing::Span;

use crate::client::cache::UncachedReason;
use crate::client::telemetry::{mode_label, outcome_label, record_outcome};
use crate::error::ErrorKind;
use crate::telemetry::{count_event, count_labeled, lock_event, record_duration};

/// Whether a lost lease had guards.
const IDLE: &str = "idle";
const USED: &str = "used";

/// Describes the metrics, for exporters that show descriptions.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::counter;

    crate::telemetry::describe_metrics! {
        gauge "rwlease_cache_leases" "Leases that are cached";
        counter "rwlease_cache_grants_total" "Grants out of cached leases, in memory";
        counter "rwlease_cache_uncached_total"
            "Requests for cached locks that were sent to the server";
        counter "rwlease_cache_keepalives_total" "Keep-alives of cached leases";
        counter "rwlease_cache_recalls_total" "Recalls that were received";
        histogram "rwlease_cache_recall_seconds"
            "From a recall to the end of the cached lease, or to its downgrade";
        counter "rwlease_cache_min_holds_total"
            "Recalls that came within the minimum hold of a lease in use";
        histogram "rwlease_cache_penalty_seconds"
            "For how long a lock is not cached after an early recall";
        counter "rwlease_cache_lost_total" "Cached leases that were lost";
    }
    // A rate counts only from a series' first sample.
    for outcome in [IDLE, USED] {
        counter!("rwlease_cache_lost_total", "outcome" => outcome).increment(0);
    }
    for mode in [LockMode::Read, LockMode::Write].map(mode_label) {
        for source in ["push", "reply"] {
            counter!("rwlease_cache_recalls_total", "mode" => mode, "source" => source)
                .increment(0);
        }
    }
    for reason in [UncachedReason::NotSubscribed, UncachedReason::RecalledEarly] {
        counter!("rwlease_cache_uncached_total", "reason" => reason.label()).increment(0);
    }
    counter!("rwlease_cache_min_holds_total").increment(0);
}

/// Changes the number of cached leases.
pub(crate) fn add_leases(change: isize) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("rwlease_cache_leases").increment(change as f64);
    // Nothing counts it.
    #[cfg(not(feature = "metrics"))]
    let _ = change;
}

/// Counts grants from a cached lease with this mode.
pub(super) fn record_grants(mode: LockMode, grants: u32) {
    #[cfg(feature = "metrics")]
    metrics::counter!("rwlease_cache_grants_total", "lease" => mode_label(mode))
        .increment(grants.into());
    // Nothing counts it.
    #[cfg(not(feature = "metrics"))]
    let _ = (mode, grants);
}

/// A request for a cached lock is sent to the server. `reason` is `None` if the request waited for
/// a cached lease, and acquiring the cached lease failed.
pub(crate) fn record_uncached(reason: Option<UncachedReason>) {
    record_uncached_reason(reason.map_or("acquire_failed", UncachedReason::label));
}

/// A try is sent to the server. Tries acquire no cached lease.
pub(super) fn record_uncached_try() {
    record_uncached_reason("try");
}

fn record_uncached_reason(reason: &'static str) {
    count_labeled!("rwlease_cache_uncached_total", "reason" => reason, [
        "not_reused", "recalled_early", "not_subscribed", "cache_full", "acquire_failed", "try",
    ]);
}

/// A request has timed out in the local queue.
pub(crate) fn record_local_timeout(mode: LockMode, kind: ErrorKind, took: Duration) {
    record_outcome(&Span::none(), mode, outcome_label(kind), took);
}

/// A cached lease is renewed: it is in use (`interval`), its block of tokens is nearly used up
/// (`tokens`), or a recall may have been lost (`resync`).
pub(super) fn record_keepalive(reason: &'static str) {
    count_labeled!("rwlease_cache_keepalives_total", "reason" => reason, [
        "interval", "tokens", "resync",
    ]);
}

/// Another client wants to read or to write, and the cached lease is recalled.
pub(super) fn record_recall(lock: &LockKey, wanted: LockMode, pushed: bool, within_min_hold: bool) {
    let source = if pushed { "push" } else { "reply" };
    let mode = mode_label(wanted);
    lock_event!(
        debug, lock, name: "rwlease.recall", mode, outcome = "recalled", source,
        "cached lease recalled",
    );
    count_event!("rwlease_cache_recalls_total", "mode" => mode, "source" => source);
    if within_min_hold {
        count_event!("rwlease_cache_min_holds_total");
    }
}

/// The recalled lock was released or downgraded, `took` after the recall arrived.
pub(super) fn record_recall_done(lock: &LockKey, released: bool, took: Duration) {
    let (outcome, seconds) = (if released { "released" } else { "downgraded" }, took.as_secs_f64());
    lock_event!(debug, lock, name: "rwlease.recall", outcome, seconds, "recall completed");
    record_duration!("rwlease_cache_recall_seconds", took, "outcome" => outcome);
}

/// The lease was recalled before it had served enough guards. The lock is not cached for `time`.
pub(super) fn record_penalty(lock: &LockKey, served: u32, time: Duration) {
    let seconds = time.as_secs_f64();
    lock_event!(
        debug, lock, name: "rwlease.cache_penalty", served, seconds,
        "lock not cached for a while after an early recall",
    );
    record_duration!("rwlease_cache_penalty_seconds", time);
}

/// A cached lease was lost, with or without guards.
pub(super) fn record_loss(lock: &LockKey, used: bool) {
    let outcome = if used { USED } else { IDLE };
    if !used {
        lock_event!(debug, lock, name: "rwlease.lost", outcome, "idle cached lease lost");
    }
    count_event!("rwlease_cache_lost_total", "outcome" => outcome);
}
