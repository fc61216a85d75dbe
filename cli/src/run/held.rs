//! A lock that is acquired in either mode.

use rwlease::{
    Acquire, Error, Guard, Lease, ReadGuard, Released, Result, RwLock, TakenUp, Ticket, WriteGuard,
};

use crate::args::Run;
use crate::exit::{Failure, TRY_LATER};

pub enum Held {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Held {
    /// Waits without a limit, unless there shall be no waiting at all.
    pub async fn ask(lock: &RwLock, args: &Run) -> Result<Held, Failure> {
        if args.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let tried = Held::attempt(lock, args).await?;
            return tried.ok_or_else(|| {
                Failure::new(TRY_LATER, format!("lock `{}`: others hold it; try later", args.name))
            });
        }
        Ok(if args.read {
            Held::Read(on_terms(lock.read(), args).await?)
        } else {
            Held::Write(on_terms(lock.write(), args).await?)
        })
    }

    async fn attempt(lock: &RwLock, args: &Run) -> Result<Option<Held>, Error> {
        Ok(if args.read {
            let request = lock.try_read().lease(args.lease).replicas(args.replicas);
            request.await?.map(Held::Read)
        } else {
            let request = lock.try_write().lease(args.lease).replicas(args.replicas);
            request.await?.map(Held::Write)
        })
    }

    pub fn lease(&self) -> &Lease {
        match self {
            Held::Read(guard) => guard,
            Held::Write(guard) => guard,
        }
    }

    pub async fn into_ticket(self) -> Result<Ticket> {
        match self {
            Held::Read(guard) => guard.into_ticket().await,
            Held::Write(guard) => guard.into_ticket().await,
        }
    }

    pub async fn release(self) -> Result<Released> {
        match self {
            Held::Read(guard) => guard.release().await,
            Held::Write(guard) => guard.release().await,
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

fn on_terms<'a, G: Guard>(request: Acquire<'a, G>, args: &Run) -> Acquire<'a, G> {
    request.lease(args.lease).replicas(args.replicas)
}
