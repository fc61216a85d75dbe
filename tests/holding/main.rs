//! Holding locks on real servers: changing them, sharing them, losing them, giving them back.
#![allow(clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod bench;

mod changing;


mod owner;


mod running;
mod seizing;


