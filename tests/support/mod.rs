//! Real servers and clusters for tests, benches, examples and the demo: local processes on free
//! loopback ports that end with the process that started them.
//!
//! Used as `mod support;` in `tests/`, and as `#[path = "../tests/support/mod.rs"] mod support;`
//! elsewhere, by other packages too. It uses only the crate's public interface, so that it can test
//! the crate from outside.

// Every user compiles this as its own module and needs only a part of it. The ban on direct clocks
// is for the library.
#![allow(dead_code, unused_imports, unreachable_pub)]
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod backend;
mod balancer;
mod cluster;
mod cluster_nodes;
mod container;
mod error;
mod exclusion_check;
mod failover;
mod fake;
mod info;
mod kill_clients;
mod lease;
mod lock_fields;
mod network_namespace;
mod poll_until;
mod project_path;
mod proxy;
pub mod published;
mod redis_py;
mod sentinels;
mod server;
mod server_limit;
mod slot_migration;
mod standalone;
pub mod state_line;
mod waiters;
mod watchdog;

#[cfg(feature = "cluster-async")]
pub use backend::cluster_connection;
#[cfg(any(feature = "native", feature = "redis"))]
pub use backend::url_only_settings;
pub use backend::{Backend, ConnectBuilder, connect};
pub use balancer::Balancer;
pub use cluster::{Cluster, ClusterConfig};
pub use cluster_nodes::{ClusterNodeEntry, ClusterNodes};
pub use container::{Compose, Container, Network, engine_answers};
pub use error::{Error, Result};
pub use exclusion_check::ExclusionCheck;
pub use failover::FailoverMode;
pub use fake::{ClientAct, Fake, ServerAct};
pub use info::{CommandStat, scripts_run};
pub use kill_clients::ClientKind;
pub use lease::wait_renewed;
pub use lock_fields::{Fields, expand_fields, fields};
pub use network_namespace::NetworkNamespace;
pub use poll_until::PollLimit;
pub use project_path::find_in_project;
pub use proxy::{CutPoint, Proxies, Proxy, ProxyFlow};
pub use redis_py::RedisPy;
pub use sentinels::{SentinelConfigForTest, SentinelDeployment};
pub use server::{Certificates, Server, ServerSettings, Version, find_binary};
pub use slot_migration::SlotMigration;
pub use standalone::StandaloneServer;
pub use waiters::{is_subscribed_waiter, wait_for_waiters};
pub use watchdog::{register_child, unregister_child};
