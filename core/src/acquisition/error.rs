use crate::protocol::{CallError, ConfirmationError};

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum AcquisitionError {
    #[error("the lease is lost; stop the work that it protects")]
    LeaseLost,
    #[error(
        "the transfer is not valid: its lease has ended, or another client has accepted it; \
         acquire the lock instead"
    )]
    UnknownTransfer,
    #[error(
        "the lease was revoked and cannot be extended; finish and release it before its deadline"
    )]
    LeaseRevoked,
    #[error("another reader is waiting for an upgrade; release this read guard")]
    UpgradeConflict,
    /// A renewal named the read when the server had granted its upgrade.
    #[error("the lease is being upgraded; renew it after the upgrade")]
    UpgradeInFlight,
    #[error("timed out {}", what_was_ahead(*.waiters_ahead))]
    TimedOut { waiters_ahead: u64 },
    #[error("the queue is full: {waiters} requests are waiting (`max_queue_len`)")]
    QueueFull { waiters: u64 },
    /// The semaphore has another limit than the caller expects.
    #[error("the semaphore has the limit {limit}, not {}", .expected.map_or("none".to_owned(), |limit| limit.to_string()))]
    LimitMismatch { limit: u32, expected: Option<u32> },
    #[error(transparent)]
    Unconfirmed(#[from] ConfirmationError),
    #[error("the reply with the lease came after its end; request a longer lease")]
    GrantExpired,
    #[error("the client is shut down")]
    ShutDown,
    #[error(transparent)]
    Call(#[from] CallError),
}

fn what_was_ahead(waiters: u64) -> String {
    match waiters {
        0 => "while others hold the lock".to_owned(),
        1 => "with 1 waiter ahead in the queue".to_owned(),
        waiters => format!("with {waiters} waiters ahead in the queue"),
    }
}
