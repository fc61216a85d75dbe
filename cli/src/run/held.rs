//! A held lock in either mode, or held permits of a semaphore.

use std::time::Duration;

use rwlease::{
    Acquire, Guard, Lease, Locks, ReadGuard, Released, Result, RwLock, Semaphore, SemaphoreGuard,
    TakenUp, Ticket, TryAcquire, WriteGuard,
};

use crate::args::{PermitSpec, RunArgs};
use crate::exit::{CliError, TRY_LATER, USAGE};
use crate::lock_kind::{wrong_kind_for_lock, wrong_kind_for_semaphore};

/// What to acquire.
pub enum LockTarget {
    Lock(RwLock),
    Permits(Semaphore, u32),
}

pub enum HeldGuard {
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(SemaphoreGuard),
}

impl LockTarget {
    pub fn of(locks: &Locks, args: &RunArgs) -> Result<LockTarget> {
        Ok(match args.permits {
            Some(PermitSpec { count, limit }) => {
                LockTarget::Permits(locks.semaphore(&args.name, limit)?, count)
            }
            None => LockTarget::Lock(locks.rwlock(&args.name)?),
        })
    }
}

impl HeldGuard {
    /// Waits for at most `limit`, or only tries if that is 0.
    pub async fn acquire(
        locks: &Locks,
        wanted: &LockTarget,
        args: &RunArgs,
        limit: Option<Duration>,
    ) -> Result<HeldGuard, CliError> {
        let asked = match limit {
            Some(Duration::ZERO) => HeldGuard::try_acquire(wanted, args).await,
            _ => HeldGuard::wait(wanted, args, limit).await.map(Some),
        };
        match (asked, wanted) {
            (Ok(Some(held)), _) => Ok(held),
            (Ok(None), _) => {
                let message = format!("lock `{}`: others hold it; try later", args.name);
                Err(CliError::new(TRY_LATER, message))
            }
            (Err(error), LockTarget::Lock(_)) => {
                Err(wrong_kind_for_lock(locks, &args.name, error, "use --permits N/LIMIT").await)
            }
            (Err(error), LockTarget::Permits(..)) => {
                Err(wrong_kind_for_semaphore(locks, &args.name, error).await)
            }
        }
    }

    async fn wait(
        wanted: &LockTarget,
        args: &RunArgs,
        limit: Option<Duration>,
    ) -> Result<HeldGuard> {
        Ok(match wanted {
            LockTarget::Lock(lock) if args.read => {
                HeldGuard::Read(with_options(lock.read(), args, limit).await?)
            }
            LockTarget::Lock(lock) => {
                HeldGuard::Write(with_options(lock.write(), args, limit).await?)
            }
            LockTarget::Permits(semaphore, permits) => {
                HeldGuard::Permits(with_options(semaphore.acquire(*permits), args, limit).await?)
            }
        })
    }

    async fn try_acquire(wanted: &LockTarget, args: &RunArgs) -> Result<Option<HeldGuard>> {
        Ok(match wanted {
            LockTarget::Lock(lock) if args.read => {
                try_with_options(lock.try_read(), args).await?.map(HeldGuard::Read)
            }
            LockTarget::Lock(lock) => {
                try_with_options(lock.try_write(), args).await?.map(HeldGuard::Write)
            }
            LockTarget::Permits(semaphore, permits) => {
                let request = semaphore.try_acquire(*permits);
                try_with_options(request, args).await?.map(HeldGuard::Permits)
            }
        })
    }

    pub fn lease(&self) -> &Lease {
        match self {
            HeldGuard::Read(guard) => guard,
            HeldGuard::Write(guard) => guard,
            HeldGuard::Permits(guard) => guard,
        }
    }

    pub async fn into_ticket(self) -> Result<Ticket, CliError> {
        Ok(match self {
            HeldGuard::Read(guard) => guard.into_ticket().await?,
            HeldGuard::Write(guard) => guard.into_ticket().await?,
            HeldGuard::Permits(_) => {
                return Err(CliError::new(USAGE, "permits cannot be handed on"));
            }
        })
    }

    pub async fn release(self) -> Result<Released> {
        match self {
            HeldGuard::Read(guard) => guard.release().await,
            HeldGuard::Write(guard) => guard.release().await,
            HeldGuard::Permits(guard) => guard.release().await,
        }
    }
}

impl From<TakenUp> for HeldGuard {
    fn from(taken: TakenUp) -> HeldGuard {
        match taken {
            TakenUp::Read(guard) => HeldGuard::Read(guard),
            TakenUp::Write(guard) => HeldGuard::Write(guard),
        }
    }
}

fn with_options<'a, G: Guard>(
    request: Acquire<'a, G>,
    args: &RunArgs,
    limit: Option<Duration>,
) -> Acquire<'a, G> {
    let request = request.lease(args.lease).replicas(args.replicas);
    limit.into_iter().fold(request, Acquire::timeout)
}

fn try_with_options<'a, G: Guard>(request: TryAcquire<'a, G>, args: &RunArgs) -> TryAcquire<'a, G> {
    request.lease(args.lease).replicas(args.replicas)
}
