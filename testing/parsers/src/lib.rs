//! What the parsers of rwlease keep for any bytes that servers, other clients and users give them.
//!
//! Each check takes any bytes and panics if a promise is broken: no parser panics or overflows, the
//! memory is in proportion to the bytes, and what was decoded is decoded equally after it is
//! encoded. `fuzz/` searches for bytes that break one, and the test `corpus` replays those it kept.

mod cluster_slots;
mod decoder;
mod pending_replies;
mod resp;
mod script_reply;
mod sentinel_reply;
mod text;
mod url;

/// A check of arbitrary bytes.
pub type Check = fn(&[u8]);

/// The checks, by the names of their fuzz targets.
pub const TARGETS: [(&str, Check); 7] = [
    ("cluster_slots", cluster_slots::check),
    ("decoder", decoder::check),
    ("pending_replies", pending_replies::check),
    ("script_reply", script_reply::check),
    ("sentinel_reply", sentinel_reply::check),
    ("text", text::check),
    ("url", url::check),
];

/// Runs the check of this name.
pub fn check(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let (_, check) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    check(bytes);
}
