//! The conformance suite over the embedded engine. (What needs servers that can be killed is the simulation's.)

#![cfg(feature = "embedded")]

#[macro_use]
mod conformance;
mod support;

use rwlease::Locks;
use rwlease::embedded::Engine;

lock_tests!(two_clients);

async fn two_clients() -> (Locks, Locks, Engine) {
    let engine = Engine::new();
    let connect = async || Locks::builder().connect_embedded(&engine).await.unwrap();
    (connect().await, connect().await, engine)
}
