//! The status of a semaphore: its holders and waiters.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::lock::semaphore::Semaphore;
use crate::protocol::{
    HolderRecord, InspectSemaphoreReply, InspectSemaphoreRequest, SemaphoreCursor, WaiterRecord,
};

/// The maximum number of entries of each kind on one page.
const LARGEST_PAGE: u64 = 100;

/// The state of a semaphore at one moment, or one page of it: the first holders and the first
/// waiters.
///
/// It shows only holders whose leases are valid. A holder whose lease has ended is left out, even
/// if the server has not removed it yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// The last fencing token that was given out, or zero if none was.
    pub token: u64,
    /// The limit. `None` if the server does not know the semaphore, because it is new or was idle
    /// for a while.
    pub limit: Option<u32>,
    /// The number of permits in use, on all pages. It includes those of holders whose leases have
    /// ended and that the server has not removed yet. It exceeds the limit if that was lowered.
    pub in_use: u64,
    /// The number of holders on all pages. It includes dead holders that the server has not removed
    /// yet.
    pub holders: u64,
    /// The holders on this page.
    pub holding: Vec<PermitHolder>,
    /// The number of waiters on all pages. It includes dead waiters that the server has not removed
    /// yet.
    pub waiters: u64,
    /// The waiters on this page, in the order in which they get their permits.
    pub waiting: Vec<PermitWaiter>,
    next: Option<SemaphoreCursor>,
}

/// A holder of permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitHolder {
    /// Its id: [`Lease::id`](crate::Lease::id) at the holder.
    pub id: String,
    /// The number of permits it holds.
    pub permits: u32,
    /// Its fencing token.
    pub token: u64,
    /// The time since it was granted them, taken from its token. Zero if the server's clock was set
    /// back since.
    pub age: Duration,
    /// The time left of its lease, by the server's clock.
    pub remaining: Duration,
}

/// A waiter for permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitWaiter {
    /// Its id.
    pub id: String,
    /// The number of permits it wants.
    pub permits: u32,
    /// The time it has waited.
    pub age: Duration,
    /// The time for which its place is kept without another poll. Zero for a waiter that is dead
    /// and will be passed over.
    pub remaining: Duration,
}

impl SemaphoreStatus {
    /// Whether this is the last page.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }
}

/// A query of a semaphore's [status](SemaphoreStatus). It is sent when it is awaited.
///
/// # Cost
///
/// One round trip. The time at the server is bounded by the page size. It writes nothing.
///
/// # Errors
///
/// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
/// [`Foreign`](crate::ErrorKind::Foreign), [`Incompatible`](crate::ErrorKind::Incompatible).
///
/// # Cancel safety
///
/// Cancel safe: a query changes nothing.
#[must_use = "a query is not sent until it is awaited"]
pub struct SemaphoreStatusQuery<'a> {
    semaphore: &'a Semaphore,
    page: SemaphoreCursor,
    size: u64,
}

impl Semaphore {
    /// Queries the limit, the holders and the waiters, a page at a time.
    pub fn status(&self) -> SemaphoreStatusQuery<'_> {
        let page = SemaphoreCursor::default();
        SemaphoreStatusQuery { semaphore: self, page, size: LARGEST_PAGE }
    }
}

impl SemaphoreStatusQuery<'_> {
    /// The maximum number of holders, and of waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = (most as u64).clamp(1, LARGEST_PAGE);
        self
    }

    /// The page after this one. It shows the semaphore as it is then, so holders and waiters that
    /// came or left meanwhile may be missing or appear twice.
    pub fn after(mut self, status: &SemaphoreStatus) -> Self {
        let end = SemaphoreCursor { holder: status.holders, waiter: None };
        self.page = status.next.clone().unwrap_or(end);
        self
    }
}

impl<'a> IntoFuture for SemaphoreStatusQuery<'a> {
    type Output = Result<SemaphoreStatus>;
    type IntoFuture = BoxFuture<'a, Result<SemaphoreStatus>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Semaphore { client, lock, .. } = self.semaphore;
            let (first, most) = (self.page.holder, self.size);
            let call = InspectSemaphoreRequest { page: self.page, most }.call(client.scripts, lock);
            let reply = client.query(lock, &call).await?;
            let view = InspectSemaphoreRequest::read(reply).map_err(|bad| lock.add_context(bad))?;
            Ok(status(view, first, most))
        })
    }
}

impl fmt::Debug for SemaphoreStatusQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreStatusQuery")
            .field("semaphore", &self.semaphore)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

/// The page whose first holder has this index.
fn status(view: InspectSemaphoreReply, first: u64, size: u64) -> SemaphoreStatus {
    let now = view.now;
    let holder = |(id, record, permits): (String, HolderRecord, u32)| {
        (record.deadline > now).then(|| PermitHolder {
            id,
            permits,
            token: record.token,
            age: Duration::from_micros(now.saturating_mul(1000).saturating_sub(record.token)),
            remaining: Duration::from_millis(record.deadline - now),
        })
    };
    let waiter = |entry: WaiterRecord| PermitWaiter {
        id: entry.id,
        permits: entry.permits,
        age: Duration::from_millis(now.saturating_sub(entry.joined_at)),
        remaining: Duration::from_millis(
            entry.last_poll.saturating_add(entry.waiter_ttl).saturating_sub(now),
        ),
    };
    let shown = first.saturating_add(size).min(view.holder_count);
    let next_waiter = view.waiting.last().and_then(|entry| entry.next.clone());
    let is_last = shown == view.holder_count && next_waiter.is_none();
    SemaphoreStatus {
        token: view.token,
        limit: (view.limit > 0).then_some(view.limit),
        in_use: view.permits_in_use,
        holders: view.holder_count,
        holding: view.holders.into_iter().filter_map(holder).collect(),
        waiters: view.waiters,
        waiting: view.waiting.into_iter().map(waiter).collect(),
        next: (!is_last).then_some(SemaphoreCursor { holder: shown, waiter: next_waiter }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_the_largest_numbers_does_not_overflow() {
        const MAX: u64 = u64::MAX;
        for now in [0, MAX / 2, MAX - 1, MAX] {
            let waiter = WaiterRecord {
                id: "waiter".into(),
                next: None,
                ticket: MAX,
                last_poll: MAX,
                waiter_ttl: MAX,
                joined_at: MAX,
                permits: u32::MAX,
            };
            let record = HolderRecord { deadline: MAX, token: 0, cached: false };
            let view = InspectSemaphoreReply {
                now,
                holder_count: MAX,
                holders: vec![("holder".into(), record, 1)],
                waiting: vec![waiter],
                ..InspectSemaphoreReply::default()
            };
            let status = status(view, MAX, 100);
            assert_eq!(status.waiting[0].remaining, Duration::from_millis(MAX - now));
            assert_eq!(status.holding.len(), usize::from(now < MAX));
        }
    }
}
