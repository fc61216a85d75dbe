//! The locks of this library, as contenders.

use load::Lock;
use rwlease::{ReadGuard, RwLock, WriteGuard};

/// The percentage of pairs that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPercent(pub u8);

impl ReadPercent {
    /// Chooses whether the next pair reads.
    fn is_read(self) -> bool {
        match self.0 {
            0 => false,
            100 => true,
            percent => fastrand::u8(..100) < percent,
        }
    }
}

#[derive(Clone)]
pub struct RwleaseLock(pub RwLock, pub ReadPercent);

pub enum Guard {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Lock for RwleaseLock {
    type Held = Guard;

    async fn take(&self) -> Guard {
        if self.1.is_read() {
            Guard::Read(self.0.read().await.expect("not taken"))
        } else {
            Guard::Write(self.0.write().await.expect("not taken"))
        }
    }

    async fn release(held: Guard) {
        let released = match held {
            Guard::Read(guard) => guard.release().await,
            Guard::Write(guard) => guard.release().await,
        };
        let _ = released.expect("not released");
    }
}
