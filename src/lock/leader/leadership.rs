//! The guard of a leader.

use std::ops::Deref;

use crate::client::acquire_task;
use crate::client::lease_options::WaitPolicy;
use crate::error::Result;
use crate::lock::guard::{Guard, Hold, Released, sealed};
use crate::lock::lease::Lease;
use crate::lock::request::Acquire;
use crate::lock::run_while_held;
use crate::protocol::LockMode;

/// The leadership of an election. It is renewed while this lives.
///
/// It derefs to its [`Lease`], for [`lost`](Lease::lost), [`cancellation`](Lease::cancellation) and
/// [`remaining`](Lease::remaining). Dropping it resigns in the background.
///
/// A process that was stopped for longer than its lease does not lead when it runs again:
/// [`is_leading`](Self::is_leading) reads the clock, and [`run`](Self::run) reads it before each
/// step. What the process had already sent can still arrive. Only the [term](Self::term) stops
/// that.
#[must_use = "dropped at once, it resigns at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct Leadership(Hold);

impl Leadership {
    /// The term: greater than those of all earlier leaders. It is the lease's [fencing
    /// token](Lease::token).
    pub fn term(&self) -> u64 {
        self.token()
    }

    /// Whether this candidate leads, computed now.
    pub fn is_leading(&self) -> bool {
        self.is_held()
    }

    /// Leads while `work` runs, then resigns and returns its output.
    ///
    /// When the lead is lost, `work` is cancelled: its future is dropped at its current await. It
    /// is not polled after the lease has ended, also in a process that was stopped. Tasks and
    /// threads that `work` started are not cancelled: give them [`Lease::cancellation`]. `Ok` means
    /// that this candidate led until `work` ended.
    ///
    /// `work` gets the [`Lease`], whose [`token`](Lease::token) is the term.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped, and the candidate resigns in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        run_while_held::run(self, work).await
    }

    /// Resigns and returns the outcome. The next candidate leads at once. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::release`](crate::WriteGuard::release).
    pub async fn resign(self) -> Result<Released> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0.0
    }
}

impl sealed::Guard for Leadership {
    async fn acquire(request: &Acquire<'_, Self>, policy: WaitPolicy) -> Result<Option<Self>> {
        let Acquire { client, lock, options, .. } = request;
        let taken = acquire_task::acquire(client, lock, LockMode::Write, options, policy).await?;
        Ok(taken.map(|acquisition| Leadership(Hold(Lease::new(client.0.clone(), acquisition)))))
    }

    fn as_lease(&self) -> &Lease {
        self
    }

    async fn give_back(self) -> Result<Released> {
        self.resign().await
    }
}

impl Guard for Leadership {}
