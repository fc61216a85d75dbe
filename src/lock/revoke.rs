//! Taking a lock from those that hold it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lock::rwlock::RwLock;
use crate::protocol::{self, Forced, Inspect, Page, Revoked, pump, pumped};
use crate::router::{Answer, Call};

/// Whose leases were [revoked](RwLock::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// Leases with tokens up to this one are not made longer.
    pub token: u64,
    /// How many read, at most: the dead, and those that came while this was under way, are among
    /// them.
    pub readers: u64,
    /// What is left of the writer's lease, if somebody writes.
    pub writer: Option<Duration>,
}

/// Which holders the lock was [taken](RwLock::force_release) from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// A new token: the old holders' are all lower.
    pub token: u64,
    /// How many read, at most: the dead, and those that came while this was under way, are among
    /// them.
    pub readers: u64,
    /// Whether somebody wrote.
    pub writer: bool,
}

impl RwLock {
    /// Has the server make no lease longer of those that hold this lock now. So it is free when
    /// they end, at the latest of their deadlines, and no two ever hold it that must not: the safe
    /// way to get rid of a holder. They notice at their next renewal, if they have any, that they
    /// are [`Uncertain`](crate::LeaseState::Uncertain). `None`: nobody holds.
    ///
    /// Two round trips: the first tells the last token that was given, and whoever gets a newer one
    /// meanwhile is not concerned. So nobody else is revoked if it has to be sent again because its
    /// answer was lost.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
    /// [`Foreign`](crate::ErrorKind::Foreign).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be done.
    pub async fn revoke(&self) -> Result<Option<Revocation>> {
        let Some(token) = self.last_token().await? else {
            return Ok(None);
        };
        let call = protocol::revoke(self.client.scripts, &self.lock, token);
        let answer = self.tell(&call).await?;
        let (envelope, revoked) =
            Revoked::read(answer.reply).map_err(|bad| self.lock.with_lock(bad))?;
        if envelope.more {
            self.client.pump(&self.lock);
        }
        Ok(revoked.map(|revoked| {
            let Revoked { token, readers, writer_ends } = revoked;
            let left = Duration::from_millis(writer_ends.saturating_sub(envelope.now));
            let writer = (writer_ends > 0).then_some(left);
            Revocation { token, readers, writer }
        }))
    }

    /// Takes the lock from all that hold it, at once, and gives it to those that wait. `None`:
    /// nobody holds.
    ///
    /// **The old holders are not stopped.** They believe that they hold until they learn of it,
    /// while others already do. Only a store that compares tokens is safe from them: a new token is
    /// minted first, so that all that comes is newer than anything they have. Where waiting is
    /// possible, [`revoke`](Self::revoke).
    ///
    /// The servers tell each holder. A client that is subscribed in the lock's slot asks the server
    /// and loses the lease one round trip later. It is subscribed there from the moment that one of
    /// its requests waits for a lock of that slot until a minute after the last one does, and while
    /// it [caches](crate::RwLock::cached) a lock of that slot; so a lease that was granted at once
    /// to a client that waited for nothing there is not told. It learns at its next renewal that is
    /// answered (a third of the lease, as a rule), and without renewals when its lease ends. So
    /// does every client where nothing is pushed: on Redis 6.2, and without the right to
    /// `SPUBLISH`.
    ///
    /// As with [`revoke`](Self::revoke), whoever takes it while this is under way is not concerned.
    /// If it was done and the answer was lost, the second one may be `None`: none of them holds any
    /// more. Who calls it again means those that hold by then.
    ///
    /// Two round trips, and one more for every 16 readers.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`revoke`](Self::revoke).
    pub async fn force_release(&self) -> Result<Option<ForcedRelease>> {
        let Some(token) = self.last_token().await? else {
            return Ok(None);
        };
        let call = protocol::force_release(self.client.scripts, &self.lock, token);
        let answer = self.tell(&call).await?;
        let (envelope, forced) =
            Forced::read(answer.reply).map_err(|bad| self.lock.with_lock(bad))?;
        // It is done, whatever comes of what is left over.
        if envelope.more && self.sweep().await.is_none() {
            self.client.pump(&self.lock);
        }
        Ok(forced.map(|Forced { token, writer, readers }| ForcedRelease { token, readers, writer }))
    }

    /// Goes on until nothing is left over. Nothing if that failed.
    async fn sweep(&self) -> Option<()> {
        loop {
            let answer = self.tell(&pump(self.client.scripts, &self.lock)).await.ok()?;
            if !pumped(answer.reply).ok()?.more {
                return Some(());
            }
        }
    }

    /// The last token that was given to anybody; `None` if there is no such lock at all.
    async fn last_token(&self) -> Result<Option<u64>> {
        let look = Inspect { page: Page::default(), most: 1 };
        let answer = self.tell(&look.call(self.client.scripts, &self.lock)).await?;
        let view = Inspect::read(answer.reply).map_err(|bad| self.lock.with_lock(bad))?;
        Ok((view.token > 0).then_some(view.token))
    }

    async fn tell(&self, call: &Call) -> Result<Answer> {
        let until = self.client.clock.now().after(self.client.settings.call_timeout);
        let answer = self.client.router.call(call, until).await;
        answer.map_err(|error| self.lock.with_lock(Error::from(error)))
    }
}
