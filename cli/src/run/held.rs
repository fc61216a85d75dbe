//! A held lock in either mode, or held permits of a semaphore.

use std::time::Duration;

use rwlease::{
    Acquire, Guard, Lease, Locks, ReadGuard, Released, Result, RwLock, Semaphore, SemaphoreGuard,
    TakenUp, Ticket, TryAcquire, WriteGuard,
};

use crate::args::{Permits, Run};
use crate::exit::{Failure, TRY_LATER, USAGE};
use crate::kind::{not_a_lock, not_a_semaphore};

/// What to acquire.
pub enum Wanted {
    Lock(RwLock),
    Permits(Semaphore, u32),
}

pub enum Held {
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(SemaphoreGuard),
}

impl Wanted {
    pub fn of(locks: &Locks, args: &Run) -> Result<Wanted> {
        Ok(match args.permits {
            Some(Permits { count, limit }) => {
                Wanted::Permits(locks.semaphore(&args.name, limit)?, count)
            }
            None => Wanted::Lock(locks.rwlock(&args.name)?),
        })
    }
}

impl Held {
    /// Waits for at most `limit`, or only tries if that is 0.
    pub async fn ask(
        locks: &Locks,
        wanted: &Wanted,
        args: &Run,
        limit: Option<Duration>,
    ) -> Result<Held, Failure> {
        let asked = match limit {
            Some(Duration::ZERO) => Held::attempt(wanted, args).await,
            _ => Held::wait(wanted, args, limit).await.map(Some),
        };
        match (asked, wanted) {
            (Ok(Some(held)), _) => Ok(held),
            (Ok(None), _) => {
                let message = format!("lock `{}`: others hold it; try later", args.name);
                Err(Failure::new(TRY_LATER, message))
            }
            (Err(error), Wanted::Lock(_)) => {
                Err(not_a_lock(locks, &args.name, error, "use --permits N/LIMIT").await)
            }
            (Err(error), Wanted::Permits(..)) => {
                Err(not_a_semaphore(locks, &args.name, error).await)
            }
        }
    }

    async fn wait(wanted: &Wanted, args: &Run, limit: Option<Duration>) -> Result<Held> {
        Ok(match wanted {
            Wanted::Lock(lock) if args.read => {
                Held::Read(on_terms(lock.read(), args, limit).await?)
            }
            Wanted::Lock(lock) => Held::Write(on_terms(lock.write(), args, limit).await?),
            Wanted::Permits(semaphore, permits) => {
                Held::Permits(on_terms(semaphore.acquire(*permits), args, limit).await?)
            }
        })
    }

    async fn attempt(wanted: &Wanted, args: &Run) -> Result<Option<Held>> {
        Ok(match wanted {
            Wanted::Lock(lock) if args.read => {
                tried_on_terms(lock.try_read(), args).await?.map(Held::Read)
            }
            Wanted::Lock(lock) => tried_on_terms(lock.try_write(), args).await?.map(Held::Write),
            Wanted::Permits(semaphore, permits) => {
                let request = semaphore.try_acquire(*permits);
                tried_on_terms(request, args).await?.map(Held::Permits)
            }
        })
    }

    pub fn lease(&self) -> &Lease {
        match self {
            Held::Read(guard) => guard,
            Held::Write(guard) => guard,
            Held::Permits(guard) => guard,
        }
    }

    pub async fn into_ticket(self) -> Result<Ticket, Failure> {
        Ok(match self {
            Held::Read(guard) => guard.into_ticket().await?,
            Held::Write(guard) => guard.into_ticket().await?,
            Held::Permits(_) => return Err(Failure::new(USAGE, "permits cannot be handed on")),
        })
    }

    pub async fn release(self) -> Result<Released> {
        match self {
            Held::Read(guard) => guard.release().await,
            Held::Write(guard) => guard.release().await,
            Held::Permits(guard) => guard.release().await,
        }
    }
}

impl From<TakenUp> for Held {
    fn from(taken: TakenUp) -> Held {
        match taken {
            TakenUp::Read(guard) => Held::Read(guard),
            TakenUp::Write(guard) => Held::Write(guard),
        }
    }
}

fn on_terms<'a, G: Guard>(
    request: Acquire<'a, G>,
    args: &Run,
    limit: Option<Duration>,
) -> Acquire<'a, G> {
    let request = request.lease(args.lease).replicas(args.replicas);
    limit.into_iter().fold(request, Acquire::timeout)
}

fn tried_on_terms<'a, G: Guard>(request: TryAcquire<'a, G>, args: &Run) -> TryAcquire<'a, G> {
    request.lease(args.lease).replicas(args.replicas)
}
