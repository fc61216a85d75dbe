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
mod clients;
mod cluster;
mod container;
mod error;
mod failover;
mod fake;
mod fields;
mod info;
mod inside;
mod lease;
pub mod line;
mod moves;
mod namespace;
mod proxy;
pub mod published;
mod redis_py;
mod sentinels;
mod server;
mod single;
mod tree;
mod turn;
mod view;
mod wait_limit;
mod waiters;
mod watchdog;

#[cfg(feature = "cluster-async")]
pub use backend::cluster_connection;
#[cfg(any(feature = "native", feature = "redis"))]
pub use backend::url_only_settings;
pub use backend::{Backend, ConnectBuilder, connect};
pub use balancer::Balancer;
pub use clients::ClientKind;
pub use cluster::{Cluster, ClusterConfig};
pub use container::{Compose, Container, Network, engine_answers};
pub use error::{Error, Result};
pub use failover::FailoverMode;
pub use fake::{ClientAct, Fake, ServerAct};
pub use fields::{Fields, expand_fields, fields};
pub use info::{CommandStat, scripts_run};
pub use inside::ExclusionCheck;
pub use lease::wait_renewed;
pub use moves::SlotMigration;
pub use namespace::NetworkNamespace;
pub use proxy::{CutPoint, Proxies, Proxy, ProxyFlow};
pub use redis_py::RedisPy;
pub use sentinels::{SentinelConfigForTest, SentinelDeployment};
pub use server::{Certificates, Server, ServerSettings, Version, find_binary};
pub use single::StandaloneServer;
pub use tree::find_in_project;
pub use view::{ClusterNodeEntry, ClusterNodes};
pub use wait_limit::PollLimit;
pub use waiters::{is_subscribed_waiter, wait_for_waiters};
pub use watchdog::{register_child, unregister_child};
