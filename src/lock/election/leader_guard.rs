use std::ops::Deref;

use rwlease_core::acquisition::WaitPolicy;
use rwlease_core::protocol::LockMode;

use crate::client::acquire_task;
use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::guard::{Guard, Hold, ReleaseOutcome, guard_impls, sealed};
use crate::lock::lease::Lease;
use crate::lock::request::Acquire;
use crate::lock::run_while_held;

/// The leadership of an election, which is renewed while the guard lives.
///
/// It derefs to its [`Lease`], for [`ended`](Lease::ended),
/// [`cancellation_token`](Lease::cancellation_token) and [`remaining`](Lease::remaining). Dropping
/// it resigns in the background.
///
/// A process that was stopped for longer than its lease does not lead when it runs again:
/// [`is_leading`](Self::is_leading) reads the clock, and
/// [`run_while_leader`](Self::run_while_leader) reads it before each step. What the process had
/// already sent can still arrive. Only the [term](Self::term) stops that.
#[must_use = "dropped at once, it resigns at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct LeaderGuard(Hold);

impl LeaderGuard {
    /// Returns the term: greater than the terms of all earlier leaders. It is the [fencing
    /// token](Lease::fencing_token) of the lease.
    pub fn term(&self) -> FencingToken {
        FencingToken::of_grant(self.acquisition.fencing_token())
    }

    /// Returns whether this candidate leads, computed now.
    pub fn is_leading(&self) -> bool {
        self.is_held()
    }

    /// Leads while `work` runs, then resigns and returns its output.
    ///
    /// When the lead is lost, `work` is cancelled: its future is dropped at its current await. It
    /// is not polled after the lease has ended, also in a process that was stopped. Tasks and
    /// threads that `work` started are not cancelled: give them [`Lease::cancellation_token`]. `Ok`
    /// means the same as in [`Acquire::run_while_held`](crate::Acquire::run_while_held).
    ///
    /// `work` gets the [`Lease`], whose [`fencing_token`](Lease::fencing_token) is the term.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped, and the candidate resigns in the background.
    pub async fn run_while_leader<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        run_while_held::run(self, work).await
    }

    /// Resigns and returns the outcome. The next candidate leads at once. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::release`](crate::WriteGuard::release).
    pub async fn resign(self) -> Result<ReleaseOutcome> {
        self.0.release().await
    }
}

guard_impls!(LeaderGuard, LockMode::Write, false);
