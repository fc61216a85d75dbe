//! Handing on a held lock, for programs without a runtime.

use std::ops::Deref;
use std::time::Duration;

use crate::blocking::client::Locks;
use crate::blocking::guard::{ReadGuard, WriteGuard};
use crate::blocking::lease::Lease;
use crate::blocking::request::sealed::Wrap;
use crate::blocking::request::{Request, options};
use crate::client::lease_options::RenewalPolicy;
use crate::error::Result;
use crate::lock::accept_transfer::{self, TakeUp};
use crate::lock::guard::Released;
use crate::lock::transfer::Ticket;

impl Locks {
    /// As [`Locks::take_up`](crate::Locks::take_up).
    pub fn take_up<'a>(&'a self, ticket: &'a Ticket) -> Request<TakeUp<'a>> {
        Request(self.0.take_up(ticket))
    }
}

impl Request<TakeUp<'_>> {
    options! { "TakeUp":
        timeout: Duration,
        lease: Duration,
        renewal: RenewalPolicy,
        max_hold: Duration,
        replicas: u32,
    }
}

/// [`TakenUp`](crate::TakenUp).
///
/// It derefs to its [`Lease`]. Dropping it releases the lock in the background and never blocks.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub enum TakenUp {
    /// Held for reading.
    Read(ReadGuard),
    /// Held for writing.
    Write(WriteGuard),
}

impl TakenUp {
    /// As [`TakenUp::release`](crate::TakenUp::release).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime; the lock is then released in the background.
    pub fn release(self) -> Result<Released> {
        match self {
            TakenUp::Read(guard) => guard.release(),
            TakenUp::Write(guard) => guard.release(),
        }
    }

    /// As [`TakenUp::into_ticket`](crate::TakenUp::into_ticket).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime; the lock is then released in the background.
    pub fn into_ticket(self) -> Result<Ticket> {
        match self {
            TakenUp::Read(guard) => guard.into_ticket(),
            TakenUp::Write(guard) => guard.into_ticket(),
        }
    }
}

impl Deref for TakenUp {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            TakenUp::Read(guard) => guard,
            TakenUp::Write(guard) => guard,
        }
    }
}

impl Wrap for accept_transfer::TakenUp {
    type Blocking = TakenUp;

    fn wrap(self) -> TakenUp {
        match self {
            accept_transfer::TakenUp::Read(guard) => TakenUp::Read(guard.wrap()),
            accept_transfer::TakenUp::Write(guard) => TakenUp::Write(guard.wrap()),
        }
    }
}
