//! Small worlds of a lock, searched to their end: the scripts as they ship, over one hash, and
//! clients that are the acquisitions of this library.
//!
//! A [`world`] is a state; a [`search`] goes through all states that can be reached from the first
//! one, and holds each step against the [`rules`] and each state against the [`beliefs`]. For each
//! of these, a fault is [`planted`] that it must find.

// It is a test: it fails by a panic, prints what it has found, and measures its own time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]

mod beliefs;
mod call;
mod canonical;
mod client;
mod faults;
mod hold;
mod intern;
mod permits;
mod planted;
mod program;
mod report;
mod rules;
mod score;
mod search;
mod step;
mod time;
mod view;
mod world;
mod worlds;
