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
pub use backend::settings_beside_urls;
pub use backend::{Backend, ConnectTo, connect};
pub use balancer::Balancer;
pub use clients::Clients;
pub use cluster::{Cluster, Shape};
pub use container::{Compose, Container, Network, engine_answers};
pub use error::{Error, Result};
pub use failover::Failover;
pub use fake::{ClientAct, Fake, ServerAct};
pub use fields::{Fields, as_fields, fields};
pub use info::{CommandStat, scripts_run};
pub use inside::Inside;
pub use lease::renewed;
pub use moves::Move;
pub use namespace::Namespace;
pub use proxy::{Cut, Flow, Proxies, Proxy};
pub use redis_py::RedisPy;
pub use sentinels::{Sentinels, Watch};
pub use server::{Certificates, Server, ServerSettings, Version, find_binary};
pub use single::Single;
pub use tree::find;
pub use view::{Entry, View};
pub use wait_limit::WaitLimit;
pub use waiters::{is_subscribed, until_waiting};
pub use watchdog::{end_with_this, is_ended};
