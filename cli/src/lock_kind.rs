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
    let is_semaphore = match error.kind() {
        ErrorKind::WrongType => is_semaphore(locks, name).await,
        _ => Ok(false),
    };
    wrong_kind_error(is_semaphore, name, "a semaphore", advice, error)
}

/// The failure of a call on a semaphore. A read/write lock is named as one.
pub async fn wrong_kind_for_semaphore(locks: &Client, name: &str, error: Error) -> CliError {
    let is_lock = match error.kind() {
        ErrorKind::WrongType => is_lock(locks, name).await,
        _ => Ok(false),
    };
    wrong_kind_error(is_lock, name, "a read/write lock", "leave out --permits", error)
}

/// `is_known`: whether the key is of this kind. A failure of that query is the failure of the call.
fn wrong_kind_error(
    is_known: Result<bool>,
    name: &str,
    kind: &str,
    advice: &str,
    error: Error,
) -> CliError {
    match is_known {
        Ok(true) => CliError::new(
            WRONG_TYPE,
            format!("`{}` is {kind}; {advice}", format::escape_controls(name)),
        ),
        Ok(false) => error.into(),
        Err(other) => other.into(),
    }
}

async fn is_semaphore(locks: &Client, name: &str) -> Result<bool> {
    is_of_kind(locks.semaphore(name, 1)?.status().await) // a query ignores the limit
}

async fn is_lock(locks: &Client, name: &str) -> Result<bool> {
    is_of_kind(locks.rwlock(name)?.status().await)
}

fn is_of_kind<T>(status: Result<T>) -> Result<bool> {
    match status {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WrongType => Ok(false),
        Err(error) => Err(error),
    }
}
