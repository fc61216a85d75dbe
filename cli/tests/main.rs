//! The command `rwlease`, as a shell sees it: what it prints, how it ends, and how the
//! commands that it runs end.

// The ban on direct clocks is for the library; and the test support names features of the
// library.
#![allow(clippy::disallowed_methods, unexpected_cfgs)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod counter;
mod doctor;
mod generated;
mod handing_on;
mod losing;
mod orphans;
mod python;
mod queries;
mod reports;
mod revoking;
mod running;
mod secure;
mod sentinel;
mod stopped;
mod terminal;
mod tool;
mod users;
mod wrong;
