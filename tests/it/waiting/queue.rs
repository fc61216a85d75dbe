//! A lock's hash, read from the server without the library.

use oracle::{LockHash, Waiter};
use rwlease::RwLock;

use testkit::{Cluster, Error, PollLimit, Result, Server, lock_hash, lock_hash_asking};

#[derive(Clone, Debug)]
pub struct Queue(LockHash);

impl Queue {
    pub async fn of(cluster: &Cluster, lock: &RwLock) -> Result<Queue> {
        let master = cluster.master_of(lock.slot().get()).await?;
        let key = format!("rwlease:{}", lock.name());
        Ok(Queue(lock_hash(cluster.node(master), &key).await?))
    }

    /// The queue at the target of a moving slot.
    pub async fn at_target(server: &Server, lock: &RwLock) -> Result<Queue> {
        Ok(Queue(lock_hash_asking(server, &format!("rwlease:{}", lock.name())).await?))
    }

    /// The waiters, sorted by ticket.
    pub fn waiters(&self) -> Vec<&Waiter> {
        let mut waiters: Vec<&Waiter> = self.0.waiters.values().collect();
        waiters.sort_by_key(|waiter| waiter.ticket);
        waiters
    }

    /// The writer's acquisition.
    pub fn writer(&self) -> Option<&str> {
        self.0.writer.as_ref().map(|writer| writer.id.as_str())
    }

    /// The hash has no fields of holders or waiters.
    pub fn is_idle(&self) -> bool {
        matches!(self.0.shape(), "" | "F")
    }

    /// All waiters are subscribed at this server.
    pub fn all_listen_at(&self, server: &str) -> bool {
        self.0.waiters.values().all(|waiter| waiter.node == server)
    }
}

/// Waits until the lock's hash meets a condition.
pub async fn until(
    cluster: &Cluster,
    lock: &RwLock,
    what: &str,
    is_so: impl Fn(&Queue) -> bool,
) -> Result<Queue> {
    let wait_limit = PollLimit::new(format!("{}: {what}", lock.name()));
    loop {
        match Queue::of(cluster, lock).await {
            Ok(queue) if is_so(&queue) => return Ok(queue),
            Ok(queue) => wait_limit.pause(format!("{queue:?}")).await?,
            Err(error) => wait_limit.pause(error).await?,
        }
    }
}

/// Waits until this many wait and all of them are subscribed at the master of the slot. On servers
/// without push, only until this many wait.
pub async fn until_listening(cluster: &Cluster, lock: &RwLock, count: usize) -> Result<Queue> {
    let server = cluster.node(cluster.master_of(lock.slot().get()).await?);
    let name = name_of(server).await?;
    let can_hear = cluster.version().has_sharded_pubsub();
    until(cluster, lock, &format!("{count} listen"), |queue| {
        queue.waiters().len() == count && (!can_hear || queue.all_listen_at(&name))
    })
    .await
}

/// The name by which clients call a server: the beginning of its run id.
pub async fn name_of(server: &Server) -> Result<String> {
    let info = server.info("server").await?;
    let id = info.get("run_id").ok_or_else(|| Error::new("no run id"))?;
    Ok(id.chars().take(12).collect())
}
