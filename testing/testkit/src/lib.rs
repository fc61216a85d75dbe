//! Real servers and clusters for tests, benches, examples and the demo: local processes on free
//! loopback ports that end with the process that started them.
// The bans are for the library.
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod append_only_file;
mod atomic_move;
mod backend;
mod balancer;
mod cluster;
mod cluster_nodes;
mod container;
mod error;
mod exclusion_check;
mod failover;
mod fake;
mod fencing_rounds;
mod info;
mod kill_clients;
mod lease;
mod lock_hash;
mod network_namespace;
mod poll_until;
mod project_path;
mod proxy;
pub mod published;
mod redis_py;
mod sentinels;
mod server;
mod server_limit;
#[cfg(feature = "embedded")]
mod simulated_network;
mod slot_migration;
mod standalone;
mod temp_folder;
mod waiters;
mod watchdog;

pub use append_only_file::AppendOnlyFile;
pub use atomic_move::AtomicMove;
#[cfg(feature = "cluster-async")]
pub use backend::cluster_connection;
#[cfg(any(feature = "native", feature = "redis"))]
pub use backend::url_only_settings;
pub use backend::{Backend, ConnectBuilder, connect};
pub use balancer::Balancer;
pub use cluster::{Cluster, ClusterConfig};
pub use cluster_nodes::{ClusterNodeEntry, ClusterNodes};
pub use container::{Compose, Container, Network, engine_answers};
pub use error::{Error, Result, error_chain};
pub use exclusion_check::ExclusionCheck;
pub use failover::FailoverMode;
pub use fake::{ClientAct, Fake, ServerAct};
pub use fencing_rounds::{FencedStore, FencingReport, RedisStore, round_count, run_fencing_rounds};
pub use info::{CommandStat, scripts_run};
pub use kill_clients::ClientKind;
pub use lease::wait_renewed;
pub use lock_hash::{EXPIRE_TIME, decode_lock, lock_hash, lock_hash_asking};
pub use network_namespace::NetworkNamespace;
pub use poll_until::PollLimit;
pub use project_path::{find_in_project, project_root};
pub use proxy::{CutPoint, Proxies, Proxy, ProxyFlow};
pub use redis_py::RedisPy;
pub use sentinels::{SentinelConfigForTest, SentinelDeployment};
pub use server::{Certificates, Server, ServerSettings, Version, find_binary};
#[cfg(feature = "embedded")]
pub use simulated_network::{
    Delivery, MessageKind, NetworkMessage, NetworkModel, SimulatedHost, SimulatedNetwork,
};
pub use slot_migration::SlotMigration;
pub use standalone::StandaloneServer;
pub use temp_folder::TempFolder;
pub use waiters::{is_subscribed_waiter, spawn_read, spawn_write, wait_for_waiters};
pub use watchdog::{register_child, unregister_child};
