//! Taking a lock from those that hold it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::protocol::{self, Forced, Revoked, pump, pumped};
use crate::router::{Answer, Call};
use crate::rwlock::RwLock;

/// Whose leases were [revoked](RwLock::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// Leases with tokens up to this one are not made longer.
    pub token: u64,
    /// How many read, the dead among them that nobody was in the way of.
    pub readers: u64,
    /// What is left of the writer's lease, if somebody writes.
    pub writer: Option<Duration>,
}

/// From whom the lock was [taken](RwLock::force_release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seizure {
    /// A new token: the old holders' are all lower.
    pub token: u64,
    /// How many read.
    pub readers: u64,
    /// Whether somebody wrote.
    pub writer: bool,
}

impl RwLock {
    /// Has the server make no lease longer of those that hold this lock now. So it is free when they end, at the latest of their deadlines, and no two
    /// ever hold it that must not: the safe way to get rid of a holder. They notice at their next renewal that they are
    /// [`Uncertain`](crate::LeaseState::Uncertain). `None`: nobody holds.
    ///
    /// If the first answer is lost it is done again, and then those are meant that hold by then.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused), [`Foreign`](crate::ErrorKind::Foreign).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be done.
    pub async fn revoke(&self) -> Result<Option<Revocation>> {
        let answer = self.tell(&protocol::revoke(self.client.scripts, &self.lock)).await?;
        let (envelope, revoked) = Revoked::read(answer.reply).map_err(|bad| self.lock.blame(bad))?;
        if envelope.more {
            self.client.pump(&self.lock);
        }
        Ok(revoked.map(|revoked| {
            let Revoked {
                token,
                readers,
                writer_ends,
            } = revoked;
            let left = Duration::from_millis(writer_ends.saturating_sub(envelope.now));
            let writer = (writer_ends > 0).then_some(left);
            Revocation { token, readers, writer }
        }))
    }

    /// Takes the lock from all that hold it, at once, and gives it to those that wait. `None`: nobody holds.
    ///
    /// **The old holders are not stopped.** Until their next renewal, a third of their lease at the most, they believe that they hold, while others
    /// already do. Only a store that compares tokens is safe from them: a new token is minted first, so that all that comes is newer than
    /// anything they have. Where waiting is possible, [`revoke`](Self::revoke).
    ///
    /// If the first answer is lost it is done again, and then those lose the lock that hold it by then.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`revoke`](Self::revoke).
    pub async fn force_release(&self) -> Result<Option<Seizure>> {
        let answer = self
            .tell(&protocol::force_release(self.client.scripts, &self.lock))
            .await?;
        let (envelope, forced) = Forced::read(answer.reply).map_err(|bad| self.lock.blame(bad))?;
        let mut more = envelope.more;
        while more {
            let answer = self.tell(&pump(self.client.scripts, &self.lock)).await?;
            more = pumped(answer.reply).map_err(|bad| self.lock.blame(bad))?.more;
        }
        Ok(forced.map(|Forced { token, writer, readers }| Seizure {
            token,
            readers,
            writer: !writer.is_empty(),
        }))
    }

    async fn tell(&self, call: &Call) -> Result<Answer> {
        let until = self.client.clock.now().after(self.client.settings.call_timeout);
        let answer = self.client.router.call(call, until).await;
        answer.map_err(|error| self.lock.blame(Error::from(error)))
    }
}
