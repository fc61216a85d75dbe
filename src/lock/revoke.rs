use std::time::Duration;

use rwlease_core::protocol::{
    self, ForceReleaseReply, InspectRequest, PageCursor, RevokeReply, grant_waiters_request,
    parse_grant_waiters_reply,
};

use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::rwlock::RwLock;

/// The leases that were [revoked](RwLock::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// Leases with this token or a lower one can no longer be renewed.
    pub fencing_token: FencingToken,
    /// The maximum number of readers. It includes dead readers, and readers that arrived during the
    /// call.
    pub reader_count: u64,
    /// The time left of the writer's lease, if there is a writer.
    pub writer: Option<Duration>,
}

/// The holders that the lock was [taken](RwLock::force_release) from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// A new token. Those of the old holders are all lower.
    pub fencing_token: FencingToken,
    /// The maximum number of readers. It includes dead readers, and readers that arrived during the
    /// call.
    pub reader_count: u64,
    /// Whether there was a writer.
    pub writer: bool,
}

/// Revokes the leases of the current holders.
pub(crate) async fn revoke(lock: &RwLock) -> Result<Option<Revocation>> {
    let Some(token) = last_token(lock).await? else {
        return Ok(None);
    };
    let call = protocol::revoke(&lock.lock, token);
    let (envelope, revoked) = lock.client.query(&lock.lock, &call, RevokeReply::read).await?;
    if envelope.has_more_work {
        lock.client.grant_waiters(&lock.lock);
    }
    Ok(revoked.map(|revoked| {
        let RevokeReply { token, readers, writer_deadline: writer_ends } = revoked;
        let left = Duration::from_millis(writer_ends.saturating_sub(envelope.server_now));
        let writer = (writer_ends > 0).then_some(left);
        Revocation { fencing_token: FencingToken::of_grant(token), reader_count: readers, writer }
    }))
}

/// Releases the leases of the current holders.
pub(crate) async fn force_release(lock: &RwLock) -> Result<Option<ForcedRelease>> {
    let Some(token) = last_token(lock).await? else {
        return Ok(None);
    };
    let call = protocol::force_release(&lock.lock, token);
    let (envelope, forced) = lock.client.query(&lock.lock, &call, ForceReleaseReply::read).await?;
    // The lock is taken, whatever the rest of the work comes to.
    if envelope.has_more_work && sweep(lock).await.is_none() {
        lock.client.grant_waiters(&lock.lock);
    }
    Ok(forced.map(|ForceReleaseReply { token, had_writer: writer, readers }| ForcedRelease {
        fencing_token: FencingToken::of_grant(token),
        reader_count: readers,
        writer,
    }))
}

/// Repeats until nothing is left to do. `None` if a call failed.
async fn sweep(lock: &RwLock) -> Option<()> {
    loop {
        let call = grant_waiters_request(&lock.lock);
        let swept = lock.client.query(&lock.lock, &call, parse_grant_waiters_reply).await;
        if !swept.ok()?.has_more_work {
            return Some(());
        }
    }
}

/// The last token that the lock gave out, or `None` if the server has no such lock.
async fn last_token(lock: &RwLock) -> Result<Option<u64>> {
    let look = InspectRequest { page: PageCursor::default(), page_size: 1 };
    let call = look.call(&lock.lock);
    let view = lock.client.query(&lock.lock, &call, InspectRequest::read).await?;
    Ok((view.token > 0).then_some(view.token))
}
