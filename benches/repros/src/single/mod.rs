//! Faults on a connection to one server.

pub mod misdirects_errors;
pub mod misreads_pushes;
pub mod panics;
pub mod waits_for_nothing;
