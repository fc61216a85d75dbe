//! What a key holds that is not the kind of lock that was asked for.

use rwlease::{Client, Error, ErrorKind};

use crate::exit::{CliError, WRONG_TYPE};
use crate::format;

/// The failure of a call on a read/write lock. A semaphore is named as one, with advice.
pub async fn wrong_kind_for_lock(
    locks: &Client,
    name: &str,
    error: Error,
    advice: &str,
) -> CliError {
    let is_semaphore = error.kind() == ErrorKind::WrongType && is_semaphore(locks, name).await;
    wrong_kind_error(is_semaphore, name, "a semaphore", advice, error)
}

/// The failure of a call on a semaphore. A read/write lock is named as one.
pub async fn wrong_kind_for_semaphore(locks: &Client, name: &str, error: Error) -> CliError {
    let is_lock = error.kind() == ErrorKind::WrongType && is_lock(locks, name).await;
    wrong_kind_error(is_lock, name, "a read/write lock", "leave out --permits", error)
}

fn wrong_kind_error(
    is_known: bool,
    name: &str,
    kind: &str,
    advice: &str,
    error: Error,
) -> CliError {
    match is_known {
        true => CliError::new(
            WRONG_TYPE,
            format!("`{}` is {kind}; {advice}", format::escape_controls(name)),
        ),
        false => error.into(),
    }
}

async fn is_semaphore(locks: &Client, name: &str) -> bool {
    match locks.semaphore(name, 1) {
        Ok(semaphore) => semaphore.status().await.is_ok(), // a query ignores the limit
        Err(_) => false,
    }
}

async fn is_lock(locks: &Client, name: &str) -> bool {
    match locks.rwlock(name) {
        Ok(lock) => lock.status().await.is_ok(),
        Err(_) => false,
    }
}
