//! A stand-in for a cluster, in this process: the same Lua scripts over an in-memory store.
//!
//! It answers as Redis 7.0 does, as far as locks need it. It differs from a real server as follows:
//!
//! - Scripts have the libraries `string`, `table`, `math` and `coroutine`, but not `bit`, `cjson`,
//!   `cmsgpack` and `struct`. The table `redis` lacks the functions for debugging, replication,
//!   permissions and RESP3.
//! - The fields of a hash are in the order of their names.
//! - Time stands still while a script runs, as it does from Redis 7.2 on.
//! - `INFO` has only the section `server`. `WAIT` answers at once and does not wait. There
//!   are no disks and no `WAITAOF`. Only shard channels can be subscribed to.
//! - A script that does not end is not stopped.
//! - While a master is stopped, the slots of the others are served, as with
//!   `cluster-require-full-coverage no`. For the default of real servers, use
//!   [`require_full_coverage`](EmbeddedClusterBuilder::require_full_coverage).

#[doc(inline)]
pub use rwlease_embedded::{
    CommandObserver, EmbeddedCluster, EmbeddedClusterBuilder, FaultInjector, ScriptStats,
    ServedCommand, WaitSemantics,
};
