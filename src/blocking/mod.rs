//! The locks for programs without an async runtime: a thread waits by [`wait`](Wait::wait).
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! # fn main() -> rwlease::Result<()> {
//! use std::time::Duration;
//!
//! use rwlease::Client;
//! use rwlease::blocking::Wait;
//!
//! # let client = Client::embedded().wait()?;
//! # #[cfg(any())] {
//! let client = Client::connect(["redis://127.0.0.1:7000"]).wait()?;
//! # }
//! let order = client.rwlock("order:{42}")?;
//! let guard = order.write().timeout(Duration::from_secs(5)).wait()?;
//! println!("token {}, {:?} left", guard.fencing_token(), guard.remaining());
//! assert!(guard.release().wait()?.was_held()); // a drop releases it, too
//! # Ok(()) }
//! # #[cfg(not(feature = "embedded"))] fn main() {}
//! ```
//!
//! The types are those at the root of the crate, and so are their promises, costs and errors. Where
//! their documentation awaits a request or a method, a thread calls `wait` on it. A thread also has
//!
//! - [`run_while_held`], whose work can wait. The work of
//!   [`Acquire::run_while_held`](crate::Acquire::run_while_held) is async, and cannot;
//! - to watch a lease, [`Lease::on_lease_lost`], and [`wait_timeout`](Wait::wait_timeout) on
//!   [`Lease::ended`]. A thread cannot be cancelled.
//!
//! A thread that acquires a lock which it already holds waits for itself. Use a
//! [`ReentrantOwner`](crate::ReentrantOwner) for that.
//!
//! # The background thread
//!
//! A client that is connected by `wait` runs on a runtime in the background, on one thread for the
//! whole process. The first wait starts it. It renews leases and releases dropped guards while
//! other threads wait or work. Guards can be dropped on any thread, and the drop never blocks. A
//! guard that is dropped shortly before the process ends may not be released: wait for its release
//! or for [`Client::shutdown`](crate::Client::shutdown), or let its lease end.
//!
//! A client that was connected on a runtime of the program stays there. Threads can wait for its
//! requests, too, while that runtime is driven.
//!
//! A forked process does not have the background thread, so a wait there never returns. Fork before
//! the first wait, or execute another program in the new process. Do not use a client in both
//! processes, on any runtime: two [copies](crate::Client#copies-of-the-process) of a client can
//! hold one lock.
//!
//! # Inside a runtime
//!
//! On a thread that runs async tasks, a wait would stall other tasks. It panics there, as
//! [`blocking_lock`](tokio::sync::Mutex::blocking_lock) of tokio does: await the request instead. A
//! thread of tokio's [`spawn_blocking`](tokio::task::spawn_blocking) may wait.

use std::time::Duration;

use crate::blocking::background_runtime::block_on;
use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::lease::Lease;
use crate::lock::run_while_held::finish;

mod background_runtime;

/// Blocks a thread until a request is answered. Every future and every request has it.
pub trait Wait: IntoFuture + Sized {
    /// Sends the request, and blocks this thread until its outcome is known.
    ///
    /// Returns what awaiting it returns. It runs on this thread, so a future that is not `Send` or
    /// not `'static` works, too.
    ///
    /// # Panics
    ///
    /// On a thread that runs async tasks: await the request there. The request is dropped, and with
    /// it a guard that it consumes. Also if the system cannot start the [background
    /// thread](self#the-background-thread).
    #[track_caller]
    fn wait(self) -> Self::Output {
        block_on(self.into_future())
    }

    /// Waits for at most `timeout`. Returns `None` if the outcome was not known by then.
    ///
    /// The request is then dropped: its documentation says, under "Cancel safety", what that means.
    /// A request with a `timeout` method of its own should use that one, whose error says why it
    /// failed.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Client::embedded().wait()?.rwlock("order:{42}")?;
    /// use std::time::Duration;
    ///
    /// use rwlease::blocking::Wait;
    ///
    /// let guard = order.write().wait()?;
    /// let lost = guard.ended().wait_timeout(Duration::from_millis(1));
    /// assert!(lost.is_none());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Panics
    ///
    /// As [`wait`](Self::wait).
    #[track_caller]
    fn wait_timeout(self, timeout: Duration) -> Option<Self::Output> {
        #[expect(clippy::disallowed_methods, reason = "how long a thread waits is in real time")]
        block_on(async { tokio::time::timeout(timeout, self).await.ok() })
    }
}

impl<F: IntoFuture> Wait for F {}

/// Holds the lock of a request while `work` runs on this thread, and returns its output.
///
/// It always releases the lock, also after a panic of `work`. `work` may wait for other requests. A
/// thread cannot be cancelled: if the lease is lost, `work` runs to its end, and the result is
/// [`LeaseLost`](crate::ErrorKind::LeaseLost). So long work must check
/// [`is_held`](Lease::is_held) before each step. `Ok` means the same as in
/// [`Acquire::run_while_held`](crate::Acquire::run_while_held).
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().wait()?;
/// use std::time::Duration;
///
/// use rwlease::blocking::{Wait, run_while_held};
///
/// let (order, stock) = (client.rwlock("order:{42}")?, client.rwlock("stock")?);
/// let request = order.write().timeout(Duration::from_secs(5));
/// let reads = run_while_held(request, |lease| {
///     save("paid", lease.fencing_token()); // the store refuses older tokens
///     stock.try_read().wait().is_ok()
/// })?;
/// assert!(reads);
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// # fn save(_: &str, _: Option<rwlease::FencingToken>) {}
/// ```
///
/// If `work` can fail, the output is its own `Result`: `run_while_held(..)??`. The outer error is
/// the lock's, the inner one is the work's.
///
/// # Errors
///
/// The errors of the request, and [`LeaseLost`](crate::ErrorKind::LeaseLost).
///
/// # Panics
///
/// As [`Wait::wait`].
#[track_caller]
pub fn run_while_held<G: Guard, T>(
    request: impl IntoFuture<Output = Result<G>>,
    work: impl FnOnce(Lease) -> T,
) -> Result<T> {
    let guard = request.wait()?;
    let output = work(guard.as_lease().clone());
    finish(guard, Some(output)).wait()
}
