//! Holding locks on real servers: changing them, sharing them, losing them, giving them back.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "../support/mod.rs"]
mod support;

mod bench;

mod changing;
mod clocks;
mod failing;
mod keeping;
mod losing;
mod reentrant;
mod releasing;
mod replicas;
mod revoking;
mod running;
mod shards;
mod stopped;
