//! Events and metrics of a client's caches.

use std::time::Duration;

use tracing::debug;

use crate::client::cache::UncachedReason;
use crate::client::telemetry::mode_label;
use crate::protocol::{LockKey, LockMode};
use crate::telemetry::{count_event, count_labeled, record_duration};

/// Whether a lost lease had guards.
const IDLE: &str = "idle";
const USED: &str = "used";

/// Describes the metrics, for exporters that show descriptions.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

    describe_gauge!("rwlease_cache_leases", "Leases that are cached");
    describe_counter!("rwlease_cache_grants_total", "Grants out of cached leases, in memory");
    describe_counter!(
        "rwlease_cache_plain_total",
        "Requests for cached locks that went to the server by themselves"
    );
    describe_counter!("rwlease_cache_contacts_total", "Renewals of cached leases");
    describe_counter!("rwlease_cache_recalls_total", "Recalls that came");
    describe_histogram!(
        "rwlease_cache_recall_seconds",
        Unit::Seconds,
        "From a recall to the end of the cached lease, or to its downgrade"
    );
    describe_counter!(
        "rwlease_cache_min_holds_total",
        "Recalls that came within the minimum hold of a lease in use"
    );
    describe_histogram!(
        "rwlease_cache_penalty_seconds",
        Unit::Seconds,
        "For how long a lock is plain that was called back too soon"
    );
    describe_counter!("rwlease_cache_lost_total", "Cached leases that were lost");
    // A rate counts only from a series' first sample.
    for outcome in [IDLE, USED] {
        metrics::counter!("rwlease_cache_lost_total", "outcome" => outcome).increment(0);
    }
    for mode in [LockMode::Read, LockMode::Write].map(mode_label) {
        for way in ["push", "answer"] {
            metrics::counter!("rwlease_cache_recalls_total", "mode" => mode, "way" => way)
                .increment(0);
        }
    }
    metrics::counter!("rwlease_cache_plain_total", "reason" => "unsubscribed").increment(0);
    metrics::counter!("rwlease_cache_min_holds_total").increment(0);
}

/// Changes the number of cached leases.
pub(crate) fn add_leases(change: isize) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("rwlease_cache_leases").increment(change as f64);
    #[cfg(not(feature = "metrics"))]
    let _ = change;
}

/// Counts grants from a cached lease with this mode.
pub(super) fn record_grants(mode: LockMode, grants: u32) {
    #[cfg(feature = "metrics")]
    metrics::counter!("rwlease_cache_grants_total", "lease" => mode_label(mode))
        .increment(grants.into());
    #[cfg(not(feature = "metrics"))]
    let _ = (mode, grants);
}

/// A request goes to the server by itself. Without a reason, it had waited for a cached lease that
/// could not be acquired.
pub(crate) fn record_uncached(why: Option<UncachedReason>) {
    record_uncached_reason(why.map_or("failed", UncachedReason::label));
}

/// The same, for a try, which acquires no cached lease.
pub(super) fn record_uncached_try() {
    record_uncached_reason("try");
}

fn record_uncached_reason(reason: &'static str) {
    count_labeled!("rwlease_cache_plain_total", "reason" => reason, [
        "unused",
        "called_back",
        "unsubscribed",
        "limit",
        "failed",
        "try",
    ]);
}

/// Why the server is contacted about a lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeepaliveReason {
    /// The lease is in use.
    Interval,
    /// Its block of tokens is nearly used up.
    Tokens,
    /// A recall may have been lost.
    Resync,
}

pub(super) fn record_keepalive(why: KeepaliveReason) {
    let reason = match why {
        KeepaliveReason::Interval => "due",
        KeepaliveReason::Tokens => "tokens",
        KeepaliveReason::Resync => "look",
    };
    count_labeled!("rwlease_cache_contacts_total", "reason" => reason, ["due", "tokens", "look"]);
}

/// Others want the lock, to read or to write.
pub(super) fn record_recall(lock: &LockKey, wanted: LockMode, pushed: bool, within_min_hold: bool) {
    let outcome = if pushed { "push" } else { "answer" };
    let mode = mode_label(wanted);
    debug!(name: "rwlease.recall", lock = %lock.name, slot = %lock.slot, mode, outcome);
    count_event!("rwlease_cache_recalls_total", "mode" => mode, "way" => outcome);
    if within_min_hold {
        count_event!("rwlease_cache_min_holds_total");
    }
}

/// The recalled lock was released or downgraded, `took` after the recall arrived.
pub(super) fn record_recall_done(lock: &LockKey, released: bool, took: Duration) {
    let (outcome, seconds) = (if released { "released" } else { "downgraded" }, took.as_secs_f64());
    debug!(name: "rwlease.recall", lock = %lock.name, slot = %lock.slot, outcome, seconds);
    record_duration!("rwlease_cache_recall_seconds", took, "outcome" => outcome);
}

/// It was recalled before it had served enough: the lock is plain for this time.
pub(super) fn record_penalty(lock: &LockKey, served: u32, time: Duration) {
    let seconds = time.as_secs_f64();
    debug!(name: "rwlease.penalty", lock = %lock.name, slot = %lock.slot, served, seconds);
    record_duration!("rwlease_cache_penalty_seconds", time);
}

/// A cached lease was lost, with or without guards.
pub(super) fn record_loss(lock: &LockKey, used: bool) {
    let outcome = if used { USED } else { IDLE };
    if !used {
        debug!(name: "rwlease.lost", lock = %lock.name, slot = %lock.slot, outcome);
    }
    count_event!("rwlease_cache_lost_total", "outcome" => outcome);
}
