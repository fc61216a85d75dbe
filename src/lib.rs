//! Distributed read/write locks for Redis Cluster.

mod clock;
mod node;
mod router;
