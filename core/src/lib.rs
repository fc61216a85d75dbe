//! The protocol and the state machine of `rwlease`, without I/O: nothing here sends, waits, or
//! reads a clock. The crate `rwlease` drives it, and its `docs/architecture.md` shows how.
//!
//! Imports run one way: `acquisition` uses `protocol`, which uses `resp`; all use `slot` and
//! `time`.

#![warn(missing_debug_implementations)]
// The library does not panic or print.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::dbg_macro,
    clippy::todo,
    clippy::disallowed_methods
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod acquisition;
pub mod decimal;
pub mod excerpt;
pub mod protocol;
pub mod resp;
pub mod slot;
pub mod time;
