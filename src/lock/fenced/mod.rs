mod call_numbers;
mod takeover;
pub(crate) mod writer;

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{
    Confirmation, FencedKey, FencedReply, Fsync, LockKey, LockKind, LockMode,
};
use rwlease_core::slot::Slot;

use crate::client::ClientHandle;
use crate::client::config::check_confirmation;
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::fencing_token::FencingToken;
use crate::lock::fenced::writer::FencedWriter;
use crate::lock::lease::Lease;
use crate::lock::rwlock::RwLock;

/// The keys of values begin with the client's prefix and this.
pub(crate) const KEY_INFIX: &str = "fenced:";

/// How long a token outlives its value by default.
const RETENTION: Duration = Duration::from_secs(86_400);

/// The longest time to live and retention, as for leases.
const MAX_DURATION: Duration = Duration::from_millis(1_000_000_000_000);

/// A value on the server that only the newest holder of its lock can write.
///
/// [`RwLock::fenced_value`](crate::RwLock::fenced_value) makes it. The value remembers the newest
/// [fencing token](FencingToken) that it has seen, and refuses all older ones. So a holder that was
/// stopped for longer than its lease cannot undo the writes of the next holder.
///
/// A [`FencedWriter`] writes with one token. Begin with
/// [`FencedWriter::get`](crate::FencedWriter::get): it reads the value and refuses older writers
/// from then on. Anybody may read by [`get`](Self::get).
///
/// The value is one hash in the slot of its lock, and belongs to that lock: tokens of two locks
/// cannot be compared. The repository's page `docs/fencing.md` says what it protects, what a lost
/// key means, and how to do the same in SQL and in a script of your own.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let account = client.rwlock("account:{42}")?;
/// let balance = account.fenced_value("balance:{42}")?;
///
/// let guard = account.write().await?;
/// let writer = balance.writer(&guard)?;
/// assert_eq!(writer.get().await?, None);
/// writer.set("100").await?;
/// assert!(guard.release().await?.was_held());
/// assert_eq!(balance.get().await?, Some(b"100".to_vec()));
///
/// let next = account.write().await?;
/// balance.writer(&next)?.set("90").await?;
/// let refused = writer.set("110").await.unwrap_err(); // the token of the first guard
/// assert_eq!(refused.kind(), rwlease::ErrorKind::StaleToken);
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct FencedValue {
    client: Arc<ClientHandle>,
    name: Arc<str>,
    key: FencedKey,
    ttl: Option<Duration>,
    retention: Duration,
    confirmation: Confirmation,
}

/// What the server has stored for a value, as returned by [`FencedValue::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FencedValueStatus {
    /// The value, or `None` if it was deleted, has expired, or was never set.
    pub value: Option<Vec<u8>>,
    /// The newest token that the value has seen. It refuses older ones.
    pub fencing_token: FencingToken,
}

impl FencedValue {
    /// The greatest length of a value: 1 MiB.
    pub const MAX_LEN: usize = 1 << 20;

    pub(crate) fn new(lock: &RwLock, name: &str) -> Result<FencedValue> {
        let RwLock { client, lock } = lock;
        let prefix = format!("{}{KEY_INFIX}", client.settings.key_prefix);
        let own_key = LockKey::with_any_start(LockKind::ReadWrite, &prefix, name)?;
        let LockKey { name, key, .. } = own_key;
        Slot::of_all([&lock.key, &key]).map_err(|error| lock.add_context(error))?;
        Ok(FencedValue {
            client: client.clone(),
            name,
            key: FencedKey { key, lock: lock.clone() },
            ttl: None,
            retention: RETENTION,
            confirmation: client.settings.confirmation,
        })
    }

    /// Sets how long a value lives after its [`set`](FencedWriter::set), by the server's clock: 1
    /// ms to 10^12 ms. Default: without an end.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how long the token outlives a value that was deleted or has expired: 1 ms to 10^12 ms.
    /// Default: 24 hours.
    ///
    /// After that the key is gone, and a writer with any token can create it. So choose a time that
    /// no stopped holder outlasts.
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how many replicas must confirm each call of a writer, as
    /// [`Acquire::min_replicas`](crate::Acquire::min_replicas). Default: as the client is set.
    ///
    /// A failover can lose a write that no replica has confirmed, and its token with it.
    pub fn min_replicas(mut self, replicas: u32) -> Self {
        self.confirmation.replicas = replicas;
        self
    }

    /// Sets which servers must have each call of a writer on disk, as
    /// [`Acquire::fsync`](crate::Acquire::fsync). Default: as the client is set.
    ///
    /// A restart of the master can lose a write that is not on disk, and its token with it.
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.confirmation.fsync = fsync;
        self
    }

    /// Returns a writer with the token of a write lease of this value's lock. No round trip.
    ///
    /// The writer outlives the lease: the server decides whether its token is still the newest.
    /// Only while the lease is held does its first call take over from another writer with the same
    /// token.
    ///
    /// # Errors
    ///
    /// [`OtherLock`](ErrorKind::OtherLock) if the lease is one of another lock;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is a read;
    /// [`LeaseLost`](ErrorKind::LeaseLost) if it has ended.
    pub fn writer(&self, lease: &Lease) -> Result<FencedWriter> {
        let held = &lease.acquisition.lock;
        if held.kind != LockKind::ReadWrite || held.key != self.key.lock.key {
            return Err(self.other_lock(&held.name));
        }
        let token = lease.fencing_token().filter(|_| lease.is_held());
        let error = match (token, lease.mode()) {
            (Some(token), Some(LockMode::Write)) => {
                return Ok(FencedWriter::new(self.clone(), token, Some(lease.clone())));
            }
            (Some(_), Some(LockMode::Read)) => {
                Error::invalid("a read cannot write a fenced value; acquire the lock for writing")
            }
            _ => Error::new(ErrorKind::LeaseLost, "the lease has ended; acquire the lock again"),
        };
        Err(self.add_context(error))
    }

    /// Returns a writer with a token that came from elsewhere: a cached write guard, another
    /// process. No round trip.
    ///
    /// The token must be one of a write of this value's lock. A number does not name its lock, so
    /// nothing checks that.
    ///
    /// The first call takes over from another writer with the same token, also after a
    /// [transfer](crate::LeaseTransfer) of the lock. So call it only while the token's lease is
    /// held.
    pub fn writer_with_token(&self, token: FencingToken) -> FencedWriter {
        FencedWriter::new(self.clone(), token, None)
    }

    /// Returns the value, or `None` if there is none. One round trip.
    ///
    /// A holder reads by [`FencedWriter::get`] instead. After this `get`, an older writer may still
    /// write.
    ///
    /// # Errors
    ///
    /// [`OtherLock`](ErrorKind::OtherLock) if the value belongs to another lock;
    /// [`Unavailable`](ErrorKind::Unavailable), [`Rejected`](ErrorKind::Rejected);
    /// [`WrongType`](ErrorKind::WrongType) if the key is not a fenced value.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a query changes nothing.
    pub async fn get(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.status().await?.and_then(|status| status.value))
    }

    /// Returns the value and the newest token, or `None` if the server has neither: no writer has
    /// written yet, or the key is lost. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`get`](Self::get).
    pub async fn status(&self) -> Result<Option<FencedValueStatus>> {
        let call = self.key.get();
        let reply = self.client.query(&self.key.lock, &call, Ok).await?;
        let (_, body) = FencedReply::read(reply).map_err(|bad| self.add_context(bad))?;
        let status = |value, token| {
            let fencing_token = FencingToken::of_grant(token);
            Ok(Some(FencedValueStatus { value, fencing_token }))
        };
        match body {
            FencedReply::Value(value, token) => status(Some(value.to_vec()), token),
            FencedReply::NoValue(token) => status(None, token),
            FencedReply::OtherLock(lock) => Err(self.other_lock(&lock)),
            _ => Ok(None),
        }
    }

    /// Returns the name of the value, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the lock that guards the value.
    pub fn lock_name(&self) -> &str {
        &self.key.lock.name
    }

    /// Returns the slot of the value, which is the slot of its lock.
    pub fn slot(&self) -> Slot {
        self.key.slot()
    }

    fn check(&self) -> Result<()> {
        check_confirmation(self.confirmation).map_err(|error| self.add_context(error))?;
        let durations = [("ttl", self.ttl), ("token_retention", Some(self.retention))];
        for (option, duration) in durations {
            let range = Duration::from_millis(1)..=MAX_DURATION;
            if let Some(given) = duration.filter(|given| !range.contains(given)) {
                let message = format!("`{option}` must be 1 ms to 10^12 ms, not {given:?}");
                return Err(self.add_context(Error::invalid(message)));
            }
        }
        Ok(())
    }

    fn other_lock(&self, lock: &str) -> Error {
        let message = format!(
            "value `{}` and the lock `{lock}` do not belong together; use one lock for one value",
            self.name
        );
        self.add_context(Error::new(ErrorKind::OtherLock, message))
    }

    fn add_context(&self, error: impl Into<Error>) -> Error {
        self.key.lock.add_context(self.client.failure_or(error.into()))
    }
}

debug_fields!(|value| FencedValue {
    name: value.name(),
    lock: value.lock_name(),
    slot: value.slot(),
    ..
});
