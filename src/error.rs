//! The error type, whose kind tells the caller what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::slot::{CrossSlot, Slot};

/// The result of this library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this library.
///
/// It has a [kind](ErrorKind) that tells the caller what to do, the lock it concerns, and as its
/// [source](std::error::Error::source) what the server or the connection reported.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    message: String,
    lock: Option<(Arc<str>, Slot)>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    semaphore_limit: Option<u32>,
}

/// What kind of failure an [`Error`] is, and so what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The time limit passed before it was this caller's turn. Nothing is wrong: try later.
    TimedOut,
    /// The limit on the number of tries was reached.
    TriesUsedUp,
    /// The client was shut down, or the caller cancelled the wait, by
    /// [`cancel_on`](crate::Acquire::cancel_on).
    Cancelled,
    /// The client has failed: one of its tasks panicked, which a subscriber of `tracing` can cause,
    /// or the runtime that it was made on has ended. All its leases are lost, and every later call
    /// fails with this. Make a new client.
    ClientFailed,
    /// The lease is lost. Stop: the fencing token is stale.
    Lost,
    /// The lease was revoked. It is valid until its deadline, and nothing extends it: finish by
    /// then, and release.
    Revoked,
    /// The cluster cannot serve this slot now: it has no master, no connection, or too few
    /// replicas.
    Unavailable,
    /// Another reader already waits for an upgrade. Release this read guard: otherwise each waits
    /// for the other forever.
    Conflict,
    /// The server refused: a right is missing, its memory is full, or the password is wrong.
    Refused,
    /// An argument is out of its range.
    Invalid,
    /// The key holds something that is not a lock of this protocol. It was not changed.
    Foreign,
    /// The lock is of another version of the protocol. It was not changed.
    Incompatible,
    /// Keys that must share a slot do not.
    CrossSlot,
    /// The lock's queue has reached its limit.
    TooManyWaiters,
    /// The semaphore has another limit than the caller gave, or one that is too low for the call.
    /// [`Error::semaphore_limit`] returns the limit it has.
    LimitMismatch,
}

impl Error {
    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock that the error concerns.
    pub fn lock(&self) -> Option<&str> {
        self.0.lock.as_ref().map(|(name, _)| &**name)
    }

    /// The slot of the lock that the error concerns.
    pub fn slot(&self) -> Option<Slot> {
        self.0.lock.as_ref().map(|(_, slot)| *slot)
    }

    /// The semaphore's actual limit, for a [`LimitMismatch`](ErrorKind::LimitMismatch).
    pub fn semaphore_limit(&self) -> Option<u32> {
        self.0.semaphore_limit
    }

    pub(crate) fn limit_mismatch(message: impl Into<String>, limit: u32) -> Self {
        let mut error = Self::new(ErrorKind::LimitMismatch, message);
        error.0.semaphore_limit = Some(limit);
        error
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorInner {
            kind,
            message: message.into(),
            lock: None,
            source: None,
            semaphore_limit: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    pub(crate) fn with_shared_source(mut self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        self.0.source = Some(source);
        self
    }

    pub(crate) fn with_lock(mut self, name: &Arc<str>, slot: Slot) -> Self {
        self.0.lock = Some((name.clone(), slot));
        self
    }
}

impl From<CrossSlot> for Error {
    fn from(error: CrossSlot) -> Self {
        Error::new(ErrorKind::CrossSlot, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, slot)) = &self.0.lock {
            write!(f, "lock `{name}` (slot {slot}): ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("lock", &self.0.lock)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
