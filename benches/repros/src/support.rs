//! The local clusters of the tests.

// Only a part of it is needed here.
#![allow(dead_code, unused_imports)]

#[path = "../../../tests/support/cluster.rs"]
mod cluster;
#[path = "../../../tests/support/cluster_nodes.rs"]
mod cluster_nodes;
#[path = "../../../tests/support/container.rs"]
mod container;
#[path = "../../../tests/support/error.rs"]
mod error;
#[path = "../../../tests/support/failover.rs"]
mod failover;
#[path = "../../../tests/support/kill_clients.rs"]
mod kill_clients;
#[path = "../../../tests/support/poll_until.rs"]
mod poll_until;
#[path = "../../../tests/support/project_path.rs"]
mod project_path;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/server.rs"]
mod server;
#[path = "../../../tests/support/server_limit.rs"]
mod server_limit;
#[path = "../../../tests/support/slot_migration.rs"]
mod slot_migration;
#[path = "../../../tests/support/watchdog.rs"]
mod watchdog;

pub use cluster::{Cluster, ClusterConfig};
pub use cluster_nodes::{ClusterNodeEntry, ClusterNodes};
pub use error::{Error, Result};
pub use failover::FailoverMode;
pub use kill_clients::ClientKind;
pub use poll_until::PollLimit;
pub use proxy::{CutPoint, Proxies};
pub use server::{Server, ServerSettings, Version};
