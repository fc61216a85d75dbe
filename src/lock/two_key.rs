//! The two-key read/write lock of older fleets, for as long as they run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::settings::BRIEF;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::Released;
use crate::lock::locks::Locks;
use crate::protocol::two_key::{Taken, TwoKeys, given_back, taken};
use crate::protocol::{AcquisitionId, Mode};
use crate::router::{CallError, Reason};
use crate::slot::{Slot, assert_same_slot};

/// How long one call, with the router's repetitions, may go on before it is made anew. An attempt
/// is good at the server for as long.
const CALL_SLICE: Duration = Duration::from_secs(2);

/// Between two tries of one who waits.
const INTERVAL: Duration = Duration::from_millis(50);

/// Added to the time until which an attempt without an answer can still be carried out.
const SLACK: Duration = Duration::from_secs(1);

/// A read/write lock in two keys, one for all readers and one for the writer, which agrees on the
/// server with the published one that older fleets run: a reader sets the readers' key unless the
/// writer's exists, a writer sets its own unless either exists, both with a time to live in
/// seconds.
///
/// Use it only beside such a fleet, to leave it: `docs/migrating.md` says how.
///
/// # Hazards
///
/// They lie in the protocol, and no client can mend them alone:
///
/// - All readers share one key. The release of one that came later lets a writer in while an
///   earlier one still reads. (An earlier one's does not, among clients of this type: the key names
///   the reader that came last. In the old fleet any reader's release deletes the key of all.) A
///   reader whose answer was lost and whose call was repeated counts as one that came later than
///   those who came between.
/// - A release of the old fleet deletes whatever is there, also a key that this type set.
/// - A reader of the old fleet that comes sets the readers' key to its own time to live, without a
///   look. Where that is the shorter one, the readers before it are cut short and are not told:
///   [`TwoKeyGuard::remaining`] goes on. So beside an old fleet a reader's lease must be no longer
///   than the fleet's shortest.
/// - No fencing token, no queue: a stream of readers keeps a writer out without end, and waiters
///   try again and again.
/// - No renewal: who holds longer than its lease holds no more.
/// - While the slot of the keys migrates and one of them has moved, servers answer `TRYAGAIN`, and
///   nobody can take the lock.
///
/// # What is added
///
/// Each acquisition has an id of its own, the key's value, and only its own release deletes the
/// key. A repeated call changes nothing more, unless it is a reader's and another reader has come
/// between, whose place it takes; one that comes too late changes nothing at all. A reader of this
/// type with a short lease does not cut a longer one short.
#[derive(Clone)]
pub struct TwoKeyRwLock {
    locks: Locks,
    name: Arc<str>,
    keys: TwoKeys,
}

impl TwoKeyRwLock {
    /// The lock in these two keys. They are taken as they are: the client's prefix is not put
    /// before them.
    ///
    /// # Errors
    ///
    /// [`CrossSlot`](ErrorKind::CrossSlot), with both keys and their slots, if they are not of one
    /// slot: on a cluster no script can use such keys together. [`Invalid`](ErrorKind::Invalid) if
    /// they are the same.
    pub fn new(
        locks: &Locks,
        read_key: impl AsRef<[u8]>,
        write_key: impl AsRef<[u8]>,
    ) -> Result<Self> {
        let (read, write) = (read_key.as_ref(), write_key.as_ref());
        let slot = assert_same_slot([read, write])?;
        if read == write {
            return Err(Error::invalid("the readers and the writer need a key each"));
        }
        Ok(TwoKeyRwLock {
            locks: locks.clone(),
            name: format!("{}, {}", read.escape_ascii(), write.escape_ascii()).into(),
            keys: TwoKeys { read: read.to_vec().into(), write: write.to_vec().into(), slot },
        })
    }

    /// The lock in the keys `{name}:read` and `{name}:write`, which are of one slot whatever the
    /// name is. If the name has a hash tag, that counts instead: `order:{42}` gives
    /// `order:{42}:read` and `order:{42}:write`.
    ///
    /// # Errors
    ///
    /// [`CrossSlot`](ErrorKind::CrossSlot) for a name with braces that make no hash tag.
    pub fn tagged(locks: &Locks, name: &str) -> Result<Self> {
        let base = if name.contains(['{', '}']) { name.to_owned() } else { format!("{{{name}}}") };
        Self::new(locks, format!("{base}:read"), format!("{base}:write"))
    }

    /// The readers' key and the writer's.
    pub fn keys(&self) -> [&[u8]; 2] {
        [&self.keys.read, &self.keys.write]
    }

    /// The slot of both keys.
    pub fn slot(&self) -> Slot {
        self.keys.slot
    }

    /// Takes the lock for reading for so long (whole seconds, rounded up), if no writer has it.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable), [`Refused`](ErrorKind::Refused),
    /// [`Cancelled`](ErrorKind::Cancelled) when the client is shut down,
    /// [`Foreign`](ErrorKind::Foreign) for a key of another type, [`Invalid`](ErrorKind::Invalid)
    /// for a lease of more than 30 days.
    ///
    /// # Cancel safety
    ///
    /// Dropped, whatever has come of it is given back in the background.
    pub async fn try_read(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        let until = self.after(self.locks.client().settings.call_timeout);
        self.attempt(Mode::Read, lease, until).await
    }

    /// Takes the lock for writing for so long (whole seconds, rounded up), if nobody has it.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`try_read`](Self::try_read).
    pub async fn try_write(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        let until = self.after(self.locks.client().settings.call_timeout);
        self.attempt(Mode::Write, lease, until).await
    }

    /// Takes the lock for reading, trying for as long as `timeout`: every 50 ms, since nobody tells
    /// when it is free.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`try_read`](Self::try_read), and [`TimedOut`](ErrorKind::TimedOut);
    /// [`Invalid`](ErrorKind::Invalid) also for a timeout of zero.
    pub async fn read(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        self.wait(Mode::Read, lease, timeout).await
    }

    /// Takes the lock for writing, trying for as long as `timeout`: every 50 ms, since nobody tells
    /// when it is free.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`try_read`](Self::try_read), and [`TimedOut`](ErrorKind::TimedOut);
    /// [`Invalid`](ErrorKind::Invalid) also for a timeout of zero.
    pub async fn write(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        self.wait(Mode::Write, lease, timeout).await
    }

    async fn wait(&self, mode: Mode, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        if timeout.is_zero() {
            let error = Error::invalid(
                "the timeout must not be zero: there are `try_read` and `try_write`",
            );
            return Err(self.with_lock(error));
        }
        let clock = self.locks.client().clock.clone();
        let until = self.after(timeout);
        let mut answered = false;
        loop {
            let began = clock.now();
            match self.attempt(mode, lease, until).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => answered = true,
                // The time was up soon after this try began: that says nothing against the server,
                // which had answered before.
                Err(error)
                    if answered
                        && error.kind() == ErrorKind::Unavailable
                        && until.since(began) < BRIEF =>
                {
                    return Err(self.out_of_time());
                }
                Err(error) => return Err(error),
            }
            let next = clock.now().after(INTERVAL.mul_f64(0.5 + fastrand::f64()));
            if next >= until {
                return Err(self.out_of_time());
            }
            clock.sleep_until(next).await;
        }
    }

    fn out_of_time(&self) -> Error {
        let error = Error::new(ErrorKind::TimedOut, "others had it in the time that was given");
        self.with_lock(error)
    }

    async fn attempt(
        &self,
        mode: Mode,
        lease: Duration,
        until: Moment,
    ) -> Result<Option<TwoKeyGuard>> {
        let seconds = whole_seconds(lease).map_err(|error| self.with_lock(error))?;
        let client = self.locks.client();
        let mut hold = Hold::new(self, mode);
        loop {
            let not_after = self.after(CALL_SLICE).min(until);
            let call = self.keys.take(mode, hold.id, seconds, not_after);
            let before = hold.loose_until.replace(not_after);
            let outcome = client.router.call(&call, not_after).await;
            let in_doubt = match &outcome {
                Ok(answer) => answer.in_doubt,
                Err(error) => error.in_doubt,
            };
            if in_doubt.is_none() {
                hold.loose_until = before;
            }
            let now = client.clock.now();
            let passing = |error: &CallError| match error.reason {
                Reason::TimedOut(_) | Reason::NoNode(_) => now < until,
                // Near the end of the time the call would not be sent either.
                Reason::Overloaded => now.after(BRIEF) < until,
                _ => false,
            };
            if outcome.as_ref().is_err_and(passing) {
                continue;
            }
            let answer = outcome.map_err(|error| self.with_lock(error))?;
            let sent = answer.sent;
            match taken(answer.reply).map_err(|error| self.with_lock(error))? {
                Taken::Granted(left) => {
                    hold.holds = true;
                    let margin = client.settings.margin(lease);
                    let ends = sent.after(left.min(Duration::from_secs(seconds))).before(margin);
                    return Ok(Some(TwoKeyGuard { hold, ends }));
                }
                Taken::Refused => return Ok(None),
                Taken::Stale => {} // it came too late: call anew
            }
        }
    }

    fn after(&self, duration: Duration) -> Moment {
        self.locks.client().clock.now().after(duration)
    }

    fn with_lock(&self, error: impl Into<Error>) -> Error {
        error.into().about(&self.name, self.keys.slot)
    }
}

impl fmt::Debug for TwoKeyRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoKeyRwLock")
            .field("keys", &self.name)
            .field("slot", &self.keys.slot)
            .finish_non_exhaustive()
    }
}

/// The server counts whole seconds.
fn whole_seconds(lease: Duration) -> Result<u64> {
    crate::client::settings::check_lease(lease)?;
    Ok(lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
}

/// A [`TwoKeyRwLock`] that is held. It is not renewed. Dropped, it is released in the background,
/// by a task on the runtime that it was taken on; release it before the client is shut down.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct TwoKeyGuard {
    hold: Hold,
    ends: Moment,
}

impl TwoKeyGuard {
    /// Whether it is held for reading or for writing.
    pub fn mode(&self) -> Mode {
        self.hold.mode
    }

    /// What is left of the lease, less the margin. Others may have ended it before (see [the
    /// hazards](TwoKeyRwLock#hazards)).
    pub fn remaining(&self) -> Duration {
        self.ends.since(self.hold.lock.locks.client().clock.now())
    }

    /// Releases it. One round trip. For a reader, [`Released::AlreadyLost`] also means that another
    /// reader came after it, whose key it is now.
    ///
    /// # Errors
    ///
    /// [`Refused`](ErrorKind::Refused), [`Foreign`](ErrorKind::Foreign). That the server cannot be
    /// reached is no error but [`Released::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, the release is finished in the background.
    pub async fn release(mut self) -> Result<Released> {
        let lock = self.hold.lock.clone();
        let client = lock.locks.client();
        let call = lock.keys.give_back(self.hold.mode, self.hold.id);
        let until = lock.after(client.settings.call_timeout);
        match client.router.call(&call, until).await {
            Ok(answer) => {
                let (retried, in_doubt) =
                    (answer.in_doubt.is_some(), self.hold.loose_until.is_some());
                let was_there = given_back(answer.reply).map_err(|error| lock.with_lock(error))?;
                self.hold.holds = in_doubt;
                Ok(match was_there {
                    true => Released::Released,
                    false if retried => Released::Unknown,
                    false => Released::AlreadyLost,
                })
            }
            Err(error) => {
                let error = Error::from(error);
                match error.kind() {
                    ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Cancelled => {
                        Ok(Released::Unknown)
                    }
                    _ => Err(lock.with_lock(error)),
                }
            }
        }
    }
}

impl fmt::Debug for TwoKeyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoKeyGuard")
            .field("lock", &self.hold.lock)
            .field("mode", &self.mode())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// What may be at the server for one acquisition; dropped, it is given back.
struct Hold {
    lock: TwoKeyRwLock,
    mode: Mode,
    id: AcquisitionId,
    holds: bool,
    /// Until when an attempt without an answer can still be carried out.
    loose_until: Option<Moment>,
    runtime: Handle,
}

impl Hold {
    fn new(lock: &TwoKeyRwLock, mode: Mode) -> Hold {
        Hold {
            lock: lock.clone(),
            mode,
            id: lock.locks.client().stranger(),
            holds: false,
            loose_until: None,
            runtime: Handle::current(),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.holds || self.loose_until.is_some() {
            let (lock, mode, id, in_doubt) =
                (self.lock.clone(), self.mode, self.id, self.loose_until);
            self.runtime.spawn(async move {
                give_back(&lock, mode, id).await;
                if let Some(until) = in_doubt {
                    lock.locks.client().clock.sleep_until(until.after(SLACK)).await;
                    give_back(&lock, mode, id).await;
                }
            });
        }
    }
}

/// As far as it can be: what is left ends with its lease.
async fn give_back(lock: &TwoKeyRwLock, mode: Mode, id: AcquisitionId) {
    let client = lock.locks.client();
    let until = lock.after(client.settings.call_timeout);
    let outcome = client.router.call(&lock.keys.give_back(mode, id), until).await;
    if let Err(error) = outcome {
        crate::client::telemetry::release_failed(&lock.name, lock.slot(), &error);
    }
}
