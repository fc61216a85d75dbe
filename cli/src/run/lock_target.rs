use rwlease::{Client, Result, RwLock, Semaphore};

use crate::args::{PermitSpec, RunArgs};

/// The target of `rwlease run`.
pub enum LockTarget {
    Lock(RwLock),
    Permits(Semaphore, u32),
}

impl LockTarget {
    pub fn of(client: &Client, args: &RunArgs) -> Result<LockTarget> {
        Ok(match args.permits {
            Some(PermitSpec { count, limit }) => {
                LockTarget::Permits(client.semaphore(&args.name, limit)?, count)
            }
            None => LockTarget::Lock(client.rwlock(&args.name)?),
        })
    }
}
