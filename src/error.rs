//! The error type, whose kind tells the caller what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rwlease_core::protocol::LockKey;
use rwlease_core::slot::{CrossSlotError, Slot};

/// The result of this library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this library.
///
/// It has a [kind](ErrorKind) that tells the caller what to do, the lock it concerns, and as its
/// [source](std::error::Error::source) what the server or the connection reported. An error does
/// not repeat the text of its source: to see why something failed, print the sources too.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    message: String,
    lock: Option<(Arc<str>, Slot)>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    semaphore_limit: Option<u32>,
    stored_token: Option<u64>,
}

/// What kind of failure an [`Error`] is, and so what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The time limit passed before the lock was granted. Nothing is wrong: try later.
    TimedOut,
    /// The limit on the number of tries was reached.
    AttemptsExhausted,
    /// The client was shut down, or the caller cancelled the wait, by
    /// [`cancel_when`](crate::Acquire::cancel_when).
    Cancelled,
    /// The client has failed: one of its tasks panicked, or its runtime has ended. A subscriber of
    /// `tracing` that panics is one cause. All its leases are lost, and every later call fails with
    /// this. Make a new client.
    ClientFailed,
    /// The lease is lost. Stop: the fencing token is stale.
    LeaseLost,
    /// The lease was revoked. It is valid until its deadline and cannot be extended. Finish the
    /// work and release it before the deadline.
    LeaseRevoked,
    /// The cluster cannot serve this slot now: it has no master, no connection, or too few replicas
    /// or disks that confirm.
    Unavailable,
    /// Another reader already waits for an upgrade. Release this read guard: otherwise each waits
    /// for the other forever.
    UpgradeConflict,
    /// The server refused: a right is missing, its memory is full, the password is wrong, or it
    /// cannot confirm what [`fsync`](crate::Acquire::fsync) asks for.
    Rejected,
    /// An argument is out of its range, two settings contradict each other, a name is reserved, or
    /// the seeds are nodes of different deployments.
    InvalidInput,
    /// The key holds something that is not a lock of this protocol. It was not changed.
    WrongType,
    /// The lock is of another version of the protocol. It was not changed.
    UnsupportedVersion,
    /// Keys that must share a slot do not.
    CrossSlot,
    /// The lock's queue has reached its limit.
    QueueFull,
    /// The limit of the semaphore differs from the limit of the caller, or is too low for the call.
    /// [`Error::semaphore_limit`] returns the limit it has.
    LimitMismatch,
    /// A [fenced value](crate::FencedValue) has seen a newer token, or a later writer with the same
    /// token. Stop: another holder has begun. [`Error::stored_token`] returns the newest token.
    StaleToken,
    /// The fenced value belongs to another lock. Tokens of two locks cannot be compared.
    OtherLock,
    /// There is no fenced value to replace: it was never set, was deleted, has expired or is lost.
    NotFound,
}

impl Error {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the name of the lock that the error concerns.
    pub fn lock(&self) -> Option<&str> {
        self.0.lock.as_ref().map(|(name, _)| &**name)
    }

    /// Returns the slot of the lock that the error concerns.
    pub fn slot(&self) -> Option<Slot> {
        self.0.lock.as_ref().map(|(_, slot)| *slot)
    }

    /// Returns the semaphore's actual limit, for a [`LimitMismatch`](ErrorKind::LimitMismatch).
    pub fn semaphore_limit(&self) -> Option<u32> {
        self.0.semaphore_limit
    }

    pub(crate) fn limit_mismatch(message: impl Into<String>, limit: u32) -> Self {
        let mut error = Self::new(ErrorKind::LimitMismatch, message);
        error.0.semaphore_limit = Some(limit);
        error
    }

    pub(crate) fn stale_token(message: impl Into<String>, stored: u64) -> Self {
        let mut error = Self::new(ErrorKind::StaleToken, message);
        error.0.stored_token = Some(stored);
        error
    }

    /// The token as the server has stored it. `Error::stored_token` has its type.
    pub(crate) fn stored_token_number(&self) -> Option<u64> {
        self.0.stored_token
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorInner {
            kind,
            message: message.into(),
            lock: None,
            source: None,
            semaphore_limit: None,
            stored_token: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Fails with [`InvalidInput`](ErrorKind::InvalidInput) unless the condition is met.
    pub(crate) fn ensure<M: Into<String>>(is_met: bool, message: impl FnOnce() -> M) -> Result<()> {
        if is_met { Ok(()) } else { Err(Self::invalid(message())) }
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

    /// The error for a state that the library itself makes impossible.
    pub(crate) fn internal(what: &str) -> Self {
        debug_assert!(false, "{what}");
        Self::new(ErrorKind::ClientFailed, internal_message(what))
    }
}

pub(crate) fn internal_message(what: &str) -> String {
    format!("internal error: {what}; please report this")
}

/// Adds what an error is about.
pub(crate) trait AddContext {
    /// Adds the lock's name and slot to an error.
    fn add_context(&self, error: impl Into<Error>) -> Error;
}

impl AddContext for LockKey {
    fn add_context(&self, error: impl Into<Error>) -> Error {
        error.into().with_lock(&self.name, self.slot)
    }
}

/// Displays an error and its sources: `text: cause: cause of the cause`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn StdError + Send + Sync));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl From<CrossSlotError> for Error {
    fn from(error: CrossSlotError) -> Self {
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

debug_fields!(|error| Error {
    kind: error.0.kind,
    message: error.0.message,
    lock: error.0.lock,
    source: error.0.source
});

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
