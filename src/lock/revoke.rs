//! Taking a lock from its holders.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lock::rwlock::RwLock;
use crate::protocol::{
    self, ForceReleaseReply, InspectRequest, PageCursor, RevokeReply, parse_pump_reply,
    pump_request,
};
use crate::router::{Call, CallReply};

/// The leases that were [revoked](RwLock::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// Leases with this token or a lower one can no longer be renewed.
    pub token: u64,
    /// The maximum number of readers. It includes dead readers, and readers that arrived during the
    /// call.
    pub readers: u64,
    /// The time left of the writer's lease, if there is a writer.
    pub writer: Option<Duration>,
}

/// The holders that the lock was [taken](RwLock::force_release) from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// A new token. Those of the old holders are all lower.
    pub token: u64,
    /// The maximum number of readers. It includes dead readers, and readers that arrived during the
    /// call.
    pub readers: u64,
    /// Whether there was a writer.
    pub writer: bool,
}

impl RwLock {
    /// Prevents the current holders from renewing. The lock is free when their leases expire.
    ///
    /// This is the safe way to remove a holder: exclusion is kept. Holders notice at their next
    /// renewal, if they renew, that their lease is [`Uncertain`](crate::LeaseState::Uncertain), and
    /// what they do to extend or upgrade it fails with [`Revoked`](crate::ErrorKind::Revoked).
    /// Returns `None` if nobody holds the lock.
    ///
    /// Two round trips. The first reads the last token, so that holders with a newer token are not
    /// revoked, also when the call is repeated after a lost answer.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
    /// [`Foreign`](crate::ErrorKind::Foreign).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the leases may or may not be revoked.
    pub async fn revoke(&self) -> Result<Option<Revocation>> {
        let Some(token) = self.last_token().await? else {
            return Ok(None);
        };
        let call = protocol::revoke(self.client.scripts, &self.lock, token);
        let answer = self.tell(&call).await?;
        let (envelope, revoked) =
            RevokeReply::read(answer.value).map_err(|bad| self.lock.add_context(bad))?;
        if envelope.has_pump_work {
            self.client.pump(&self.lock);
        }
        Ok(revoked.map(|revoked| {
            let RevokeReply { token, readers, writer_deadline: writer_ends } = revoked;
            let left = Duration::from_millis(writer_ends.saturating_sub(envelope.server_now));
            let writer = (writer_ends > 0).then_some(left);
            Revocation { token, readers, writer }
        }))
    }

    /// Takes the lock from all its holders at once and grants it to waiters. Returns `None` if
    /// nobody holds the lock.
    ///
    /// **This does not stop the old holders.** Until they learn of it they believe that they hold
    /// the lock, while others already do. Only a store that checks tokens is protected: the call
    /// makes a new token first, so all later tokens are greater than those of the old holders. If
    /// you can wait, use [`revoke`](Self::revoke).
    ///
    /// The server notifies each holder by its client's channel. A client that is subscribed in the
    /// lock's slot then asks the server, and loses the lease one round trip later. A client is
    /// subscribed in a slot while it waits for a lock there, for a minute after that, and while it
    /// [caches](crate::RwLock::cached) a lock there. So a client that got its lease at once, and
    /// waited for nothing in that slot, is not notified. It learns of the loss at its next renewal
    /// that is answered, which is sent every third of the lease, or without renewals when its lease
    /// ends. The same holds for all clients where the server does not push: on Redis 6.2, and
    /// without the right to `SPUBLISH`.
    ///
    /// As with [`revoke`](Self::revoke), holders that arrive during the call are not affected. If
    /// the first answer was lost, the repeated call may return `None`: none of the old holders has
    /// the lock any more. Calling it again takes the lock from those that hold it by then.
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
            ForceReleaseReply::read(answer.value).map_err(|bad| self.lock.add_context(bad))?;
        // The lock is taken, whatever the rest of the work comes to.
        if envelope.has_pump_work && self.sweep().await.is_none() {
            self.client.pump(&self.lock);
        }
        Ok(forced.map(|ForceReleaseReply { token, had_writer: writer, readers }| ForcedRelease {
            token,
            readers,
            writer,
        }))
    }

    /// Repeats until nothing is left to do. `None` if a call failed.
    async fn sweep(&self) -> Option<()> {
        loop {
            let answer = self.tell(&pump_request(self.client.scripts, &self.lock)).await.ok()?;
            if !parse_pump_reply(answer.value).ok()?.has_pump_work {
                return Some(());
            }
        }
    }

    /// The last token that the lock gave out, or `None` if the server has no such lock.
    async fn last_token(&self) -> Result<Option<u64>> {
        let look = InspectRequest { page: PageCursor::default(), page_size: 1 };
        let answer = self.tell(&look.call(self.client.scripts, &self.lock)).await?;
        let view = InspectRequest::read(answer.value).map_err(|bad| self.lock.add_context(bad))?;
        Ok((view.token > 0).then_some(view.token))
    }

    async fn tell(&self, call: &Call) -> Result<CallReply> {
        let until = self.client.clock.now().saturating_add(self.client.settings.call_timeout);
        let answer = self.client.transport.call(call, until).await;
        answer.map_err(|error| self.lock.add_context(Error::from(error)))
    }
}
