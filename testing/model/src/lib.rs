//! Model checking of a lock in small worlds: the scripts as they ship, over one hash, and clients
//! that use the acquisitions of the library.
//!
//! A [`world`] is a state. A [`search`](mod@search) visits all states that can be reached from the
//! first one, and checks each step against the rules of the oracle, and each state against the
//! [`state_invariants`]. The tests plant faults that the rules must find.

pub mod cached_hold;
pub mod call;
pub mod canonical;
pub mod client;
pub mod faults;
pub mod interner;
pub mod program;
pub mod report;
pub mod scripts_under_test;
pub mod search;
pub mod state_invariants;
pub mod time;
pub mod world;
