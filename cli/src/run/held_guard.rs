use std::time::Duration;

use rwlease::guard::Guard;
use rwlease::{
    Acquire, Client, Lease, LeaseTransfer, ReadGuard, ReleaseOutcome, Result, SemaphorePermit,
    TransferredGuard, TryAcquire, WriteGuard,
};

use crate::args::RunArgs;
use crate::exit::{CliError, USAGE};
use crate::lock_kind::{wrong_kind_for_lock, wrong_kind_for_semaphore};
use crate::run::lock_target::LockTarget;

pub enum HeldGuard {
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(SemaphorePermit),
}

impl HeldGuard {
    /// Waits for at most `limit`, or only tries if that is 0.
    pub async fn acquire(
        client: &Client,
        target: &LockTarget,
        args: &RunArgs,
        limit: Option<Duration>,
    ) -> Result<Self, CliError> {
        let outcome = match limit {
            Some(Duration::ZERO) => Self::try_acquire(target, args).await,
            _ => Self::wait(target, args, limit).await.map(Some),
        };
        match (outcome, target) {
            (Ok(Some(guard)), _) => Ok(guard),
            (Ok(None), _) => {
                let message = format!("lock `{}`: others hold it; try later", args.name);
                Err(CliError::held(message))
            }
            (Err(error), LockTarget::Lock(_)) => {
                Err(wrong_kind_for_lock(client, &args.name, error, "use --permits N/LIMIT").await)
            }
            (Err(error), LockTarget::Permits(..)) => {
                Err(wrong_kind_for_semaphore(client, &args.name, error).await)
            }
        }
    }

    async fn wait(target: &LockTarget, args: &RunArgs, limit: Option<Duration>) -> Result<Self> {
        Ok(match target {
            LockTarget::Lock(lock) if args.read => {
                Self::Read(with_options(lock.read(), args, limit).await?)
            }
            LockTarget::Lock(lock) => Self::Write(with_options(lock.write(), args, limit).await?),
            LockTarget::Permits(semaphore, permits) => {
                Self::Permits(with_options(semaphore.acquire(*permits), args, limit).await?)
            }
        })
    }

    async fn try_acquire(target: &LockTarget, args: &RunArgs) -> Result<Option<Self>> {
        Ok(match target {
            LockTarget::Lock(lock) if args.read => {
                try_with_options(lock.try_read(), args).await?.map(Self::Read)
            }
            LockTarget::Lock(lock) => {
                try_with_options(lock.try_write(), args).await?.map(Self::Write)
            }
            LockTarget::Permits(semaphore, permits) => {
                let request = semaphore.try_acquire(*permits);
                try_with_options(request, args).await?.map(Self::Permits)
            }
        })
    }

    pub fn lease(&self) -> &Lease {
        match self {
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permits(guard) => guard,
        }
    }

    /// Lets the release free the lock, also with `--at-least`: its command was not run.
    pub fn cancel_at_least(&self) {
        if let Self::Write(guard) = self {
            guard.cancel_at_least();
        }
    }

    pub async fn into_transfer(self) -> Result<LeaseTransfer, CliError> {
        Ok(match self {
            Self::Read(guard) => guard.into_transfer().await?,
            Self::Write(guard) => guard.into_transfer().await?,
            Self::Permits(_) => {
                return Err(CliError::new(
                    USAGE,
                    "--permits cannot be used with --transfer; leave out one of them",
                ));
            }
        })
    }

    pub async fn release(self) -> Result<ReleaseOutcome> {
        match self {
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) => guard.release().await,
        }
    }
}

impl From<TransferredGuard> for HeldGuard {
    fn from(transferred: TransferredGuard) -> Self {
        match transferred {
            TransferredGuard::Read(guard) => Self::Read(guard),
            TransferredGuard::Write(guard) => Self::Write(guard),
        }
    }
}

fn with_options<'a, G: Guard>(
    request: Acquire<'a, G>,
    args: &RunArgs,
    limit: Option<Duration>,
) -> Acquire<'a, G> {
    let request = request.lease(args.lease).min_replicas(args.min_replicas).fsync(args.fsync);
    let request = args.at_least.into_iter().fold(request, Acquire::at_least);
    limit.into_iter().fold(request, Acquire::timeout)
}

fn try_with_options<'a, G: Guard>(request: TryAcquire<'a, G>, args: &RunArgs) -> TryAcquire<'a, G> {
    let request = request.lease(args.lease).min_replicas(args.min_replicas).fsync(args.fsync);
    args.at_least.into_iter().fold(request, TryAcquire::at_least)
}
