//! Permits to send: they limit the calls and the pipelines that are in flight at a server.

use std::mem;

use futures::future::{self, Either};
use rwlease_core::time::LocalInstant;
use tokio::sync::{AcquireError, Semaphore, TryAcquireError};

use crate::router::connections::server_connection::{MAX_PIPELINED, ServerConnection};

/// Permission to send one more call or pipeline.
pub(crate) struct SendPermit<'a> {
    connection: &'a ServerConnection,
    pool: PermitPool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PermitPool {
    Calls,
    /// A pipeline weighs as much as it has commands.
    Pipelines {
        priority: Priority,
        commands: u32,
    },
}

/// The priority of a pipeline of a batch. Pipelines wait only for pipelines of the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Renewals of leases. They do not wait for other pipelines, whose number has no limit.
    Renewals,
    Normal,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PermitError {
    /// The server did not finish earlier calls in time.
    DeadlineExceeded,
    /// The connection is retired: make another one.
    ConnectionRetired,
}

/// How long to wait for a permit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitWait {
    /// What gets a permit later has no time for its reply, and is not sent.
    pub(crate) send_by: LocalInstant,
    /// When the wait without a permit ends, not before `send_by`.
    pub(crate) ends: LocalInstant,
}

impl ServerConnection {
    /// A permit to send a call, if one is free.
    pub(crate) fn try_permit(&self) -> Result<Option<SendPermit<'_>>, PermitError> {
        match self.call_limit.0.permits().try_acquire() {
            Ok(permit) => {
                permit.forget();
                Ok(Some(SendPermit { connection: self, pool: PermitPool::Calls }))
            }
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(PermitError::ConnectionRetired),
        }
    }

    /// Waits for a permit to send a call, first come, first served.
    pub(crate) async fn permit(&self, wait: PermitWait) -> Result<SendPermit<'_>, PermitError> {
        self.queue(PermitPool::Calls, wait).await
    }

    /// Waits for a permit to send a pipeline of a batch with that many commands, first come, first
    /// served.
    pub(crate) async fn pipeline_permit(
        &self,
        priority: Priority,
        commands: usize,
        wait: PermitWait,
    ) -> Result<SendPermit<'_>, PermitError> {
        let commands = commands.min(MAX_PIPELINED) as u32;
        self.queue(PermitPool::Pipelines { priority, commands }, wait).await
    }

    async fn queue(
        &self,
        pool: PermitPool,
        wait: PermitWait,
    ) -> Result<SendPermit<'_>, PermitError> {
        let _queued = self.load.queued(pool.weight() as usize);
        {
            let turn = std::pin::pin!(self.semaphore(pool).acquire_many(pool.weight()));
            let turn = future::select(turn, self.clock.sleep_until(wait.send_by)).await;
            if let Either::Left((turn, _)) = turn {
                return match turn {
                    Ok(permit) => {
                        permit.forget();
                        Ok(SendPermit { connection: self, pool })
                    }
                    Err(AcquireError { .. }) => Err(PermitError::ConnectionRetired),
                };
            }
        }
        self.clock.sleep_until(wait.ends).await;
        Err(PermitError::DeadlineExceeded)
    }

    fn semaphore(&self, pool: PermitPool) -> &Semaphore {
        match pool {
            PermitPool::Calls => self.call_limit.0.permits(),
            PermitPool::Pipelines { priority: Priority::Normal, .. } => &self.pipeline_permits,
            PermitPool::Pipelines { priority: Priority::Renewals, .. } => &self.renewal_permits,
        }
    }

    /// Returns a permit that was taken from its [`SendPermit`].
    pub(super) fn return_permit(&self, pool: PermitPool) {
        match pool {
            PermitPool::Calls => self.call_limit.0.return_permit(),
            PermitPool::Pipelines { .. } => {
                self.semaphore(pool).add_permits(pool.weight() as usize)
            }
        }
    }
}

impl PermitPool {
    /// How many of the permits one [`SendPermit`] takes.
    fn weight(self) -> u32 {
        match self {
            PermitPool::Calls => 1,
            PermitPool::Pipelines { commands, .. } => commands,
        }
    }
}

impl SendPermit<'_> {
    pub(super) fn take(self) -> PermitPool {
        let pool = self.pool;
        mem::forget(self);
        pool
    }

    /// The permit is for a call, and not for a pipeline.
    pub(super) fn is_for_call(&self) -> bool {
        matches!(self.pool, PermitPool::Calls)
    }
}

impl Drop for SendPermit<'_> {
    fn drop(&mut self) {
        self.connection.return_permit(self.pool);
    }
}
