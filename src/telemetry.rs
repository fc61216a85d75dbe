//! Macros that emit events about locks, and macros that record counters, histograms and gauges by
//! the `metrics` facade. Without the feature `metrics` the latter do nothing.
//!
//! Each layer emits its own events and metrics, in its file `telemetry.rs`. `docs/observing.md`
//! lists the names and fields. Durations are in seconds. No metric has a lock's name as a label:
//! there can be millions of locks.

#[cfg(feature = "metrics")]
pub(crate) use metrics::Gauge;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// A callback panicked. Nothing else is affected.
pub(crate) fn callback_panicked(callback: &'static str, error: &str) {
    error!(name: "rwlease.callback", callback, outcome = "panicked", error, "callback panicked");
}

/// Emits events and metrics in a destructor. While a panic unwinds, another one that left the
/// destructor would abort the process, and a subscriber may panic at each event.
pub(crate) fn emit_in_drop(emit: impl FnOnce()) {
    if !std::thread::panicking() {
        emit();
    } else if let Err(payload) = catch_unwind(AssertUnwindSafe(emit)) {
        std::mem::forget(payload); // its destructor may panic, too
    }
}

/// Emits an event about a lock.
macro_rules! lock_event {
    ($level:ident, $lock:ident, name: $name:literal, $($fields:tt)+) => {
        ::tracing::$level!(name: $name, lock = %$lock.name, slot = %$lock.slot, $($fields)+)
    };
}

/// Describes metrics to exporters that show descriptions. Histograms are of durations.
#[cfg(feature = "metrics")]
macro_rules! describe_metrics {
    (@ counter $name:literal $text:literal) => { ::metrics::describe_counter!($name, $text) };
    (@ gauge $name:literal $text:literal) => { ::metrics::describe_gauge!($name, $text) };
    (@ histogram $name:literal $text:literal) => {
        ::metrics::describe_histogram!($name, ::metrics::Unit::Seconds, $text)
    };
    ($($kind:ident $name:literal $text:literal;)+) => {
        $($crate::telemetry::describe_metrics!(@ $kind $name $text);)+
    };
}
#[cfg(feature = "metrics")]
pub(crate) use describe_metrics;

/// Adds one to a counter.
macro_rules! count_event {
    ($name:literal $(, $label:literal => $value:expr)*) => {{
        #[cfg(feature = "metrics")]
        ::metrics::counter!($name $(, $label => $value)*).increment(1);
    }};
}

/// Adds one to a counter with one label, whose known values have keys made at compile time. Use it
/// for what every call does.
macro_rules! count_labeled {
    ($name:literal, $label:literal => $value:expr, [$($known:literal),+ $(,)?]) => {{
        #[cfg(feature = "metrics")]
        match $value {
            $($known => ::metrics::counter!($name, $label => $known).increment(1),)+
            other => debug_assert!(false, "{other} is not counted"),
        }
        // Nothing counts it.
        #[cfg(not(feature = "metrics"))]
        let _ = $value;
    }};
}

macro_rules! server_gauge {
    ($name:literal, $server:expr) => {{
        #[cfg(feature = "metrics")]
        let gauge = ::metrics::gauge!($name, "server" => $server.to_string());
        // Nothing counts it.
        #[cfg(not(feature = "metrics"))]
        let gauge = {
            let _ = $server;
            Gauge
        };
        gauge
    }};
}

macro_rules! record_duration {
    ($name:literal, $time:expr $(, $label:literal => $value:expr)*) => {{
        #[cfg(feature = "metrics")]
        ::metrics::histogram!($name $(, $label => $value)*).record($time.as_secs_f64());
        // Nothing counts it.
        #[cfg(not(feature = "metrics"))]
        let _ = ($time, $($value),*);
    }};
}

/// Records a duration in a histogram with two labels. The usual values have keys made at compile
/// time. Use it for what every hold does.
macro_rules! record_duration_labeled {
    ($name:literal, $time:expr, $first:literal => $one:expr, $second:literal => $other:expr,
     [$(($a:literal, $b:literal)),+ $(,)?]) => {{
        #[cfg(feature = "metrics")]
        match ($one, $other) {
            $(($a, $b) => ::metrics::histogram!($name, $first => $a, $second => $b),)+
            (one, other) => ::metrics::histogram!($name, $first => one, $second => other),
        }
        .record($time.as_secs_f64());
        // Nothing counts it.
        #[cfg(not(feature = "metrics"))]
        let _ = ($time, $one, $other);
    }};
}

pub(crate) use {
    count_event, count_labeled, lock_event, record_duration, record_duration_labeled, server_gauge,
};

// It counts nothing.
/// Stands in for the `Gauge` of `metrics`.
#[cfg(not(feature = "metrics"))]
#[derive(Debug)]
pub(crate) struct Gauge;

// It counts nothing.
#[cfg(not(feature = "metrics"))]
impl Gauge {
    pub(crate) fn increment(&self, _: f64) {}

    pub(crate) fn decrement(&self, _: f64) {}
}
