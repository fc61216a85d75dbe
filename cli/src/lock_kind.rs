//! What a key holds that is not the kind of lock that was asked for.

use rwlease::{Client, Error, ErrorKind, Result};

use crate::exit::{CliError, WRONG_TYPE};
use crate::format;

/// The failure of a call on a read/write lock. A semaphore is named as one, with advice.
pub async fn wrong_kind_for_lock(
    locks: &Client,
    name: &str,
    error: Error,
    advice: &str,
) -> CliError {
    let query = async { locks.semaphore(name, 1)?.status().await.map(drop) }; // ignores the limit
    wrong_kind_error(error, query, name, "a semaphore", advice).await
}

/// The failure of a call on a semaphore. A read/write lock is named as one.
pub async fn wrong_kind_for_semaphore(locks: &Client, name: &str, error: Error) -> CliError {
    let query = async { locks.rwlock(name)?.status().await.map(drop) };
    wrong_kind_error(error, query, name, "a read/write lock", "leave out --permits").await
}

/// `query` succeeds if the key is of this kind. Another failure of it is the failure of the call.
async fn wrong_kind_error(
    error: Error,
    query: impl Future<Output = Result<()>>,
    name: &str,
    kind: &str,
    advice: &str,
) -> CliError {
    if error.kind() != ErrorKind::WrongType {
        return error.into();
    }
    match query.await {
        Ok(()) => CliError::new(
            WRONG_TYPE,
            format!("`{}` is {kind}; {advice}", format::escape_controls(name)),
        ),
        Err(other) if other.kind() == ErrorKind::WrongType => error.into(),
        Err(other) => other.into(),
    }
}
