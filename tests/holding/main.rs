//! Holding locks on real servers: changing them, sharing them, losing them, giving them back.
#![allow(clippy::disallowed_methods, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod bench;

mod changing;
mod clocks;
mod failing;
mod losing;
mod owner;
mod releasing;
mod replicas;
mod running;
mod seizing;
mod shards;
mod stopped;
