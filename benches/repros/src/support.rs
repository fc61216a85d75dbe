//! The local clusters of the tests.

// Only a part of it is needed here.
#![allow(dead_code, unused_imports)]

#[path = "../../../tests/support/clients.rs"]
mod clients;
#[path = "../../../tests/support/cluster.rs"]
mod cluster;
#[path = "../../../tests/support/container.rs"]
mod container;
#[path = "../../../tests/support/error.rs"]
mod error;
#[path = "../../../tests/support/failover.rs"]
mod failover;
#[path = "../../../tests/support/moves.rs"]
mod moves;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/server.rs"]
mod server;
#[path = "../../../tests/support/tree.rs"]
mod tree;
#[path = "../../../tests/support/turn.rs"]
mod turn;
#[path = "../../../tests/support/view.rs"]
mod view;
#[path = "../../../tests/support/wait_limit.rs"]
mod wait_limit;
#[path = "../../../tests/support/watchdog.rs"]
mod watchdog;

pub use clients::Clients;
pub use cluster::{Cluster, Shape};
pub use error::{Error, Result};
pub use failover::Failover;
pub use proxy::{Cut, Proxies};
pub use server::{Server, ServerSettings, Version};
pub use view::{Entry, View};
pub use wait_limit::PollLimit;
