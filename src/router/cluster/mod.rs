//! The servers of the deployment: who they are, which of them serves each slot, and one connection
//! to each.

pub(crate) mod cluster_slots;
pub(crate) mod connection_pool;
mod deployment;
mod discovery;
mod known_cluster;
mod master_watch;
pub(crate) mod membership;
pub(crate) mod node_view;
pub(crate) mod refresh;
mod slot_map;
mod startup_wait;
pub(crate) mod topology;
