//! What a key holds that is not the kind of lock that was asked for.

use rwlease::{Error, ErrorKind, Locks};

use crate::exit::{DATA, Failure};
use crate::show;

/// The failure of a call on a read/write lock. A semaphore is named as one, with advice.
pub async fn not_a_lock(locks: &Locks, name: &str, error: Error, advice: &str) -> Failure {
    let is_semaphore = error.kind() == ErrorKind::Foreign && is_semaphore(locks, name).await;
    told(is_semaphore, name, "a semaphore", advice, error)
}

/// The failure of a call on a semaphore. A read/write lock is named as one.
pub async fn not_a_semaphore(locks: &Locks, name: &str, error: Error) -> Failure {
    let is_lock = error.kind() == ErrorKind::Foreign && is_lock(locks, name).await;
    told(is_lock, name, "a read/write lock", "leave out --permits", error)
}

fn told(is_known: bool, name: &str, kind: &str, advice: &str, error: Error) -> Failure {
    match is_known {
        true => Failure::new(DATA, format!("`{}` is {kind}; {advice}", show::plain(name))),
        false => error.into(),
    }
}

async fn is_semaphore(locks: &Locks, name: &str) -> bool {
    match locks.semaphore(name, 1) {
        Ok(semaphore) => semaphore.status().await.is_ok(), // a query ignores the limit
        Err(_) => false,
    }
}

async fn is_lock(locks: &Locks, name: &str) -> bool {
    match locks.rwlock(name) {
        Ok(lock) => lock.status().await.is_ok(),
        Err(_) => false,
    }
}
