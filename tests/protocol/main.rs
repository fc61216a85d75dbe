//! The scripts on a real server: what each of them answers, and what it leaves in the hash.

#[path = "../support/mod.rs"]
mod support;

mod ask;
mod lab;
mod state;

mod arguments;
mod changing;
mod full_memory;
mod holding;
mod mutex;
mod pushing;
mod queueing;
mod random;
mod strange;
