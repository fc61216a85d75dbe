//! Model checking of a lock in small worlds: the scripts as they ship, over one hash, and clients
//! that use the acquisitions of this library.
//!
//! A [`world`] is a state. A [`search`] visits all states that can be reached from the first one,
//! and checks each step against the [`rules`] and each state against the [`beliefs`]. For each
//! rule, a fault is [`planted`] that it must find.

// This is a test: it fails by a panic, prints its findings, and measures its own time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]

mod cached_hold;
mod call;
mod canonical;
mod client;
mod faults;
mod interner;
mod lock_view;
mod model_cases;
mod program;
mod report;
mod score;
mod scripts_under_test;
mod search;
mod seeded_faults;
mod semaphore_invariants;
mod state_invariants;
mod step_invariants;
mod time;
mod world;
