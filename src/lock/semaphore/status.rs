//! Questions about a semaphore: who holds its permits, and who waits.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::lock::semaphore::Semaphore;
use crate::protocol::{Entry, InspectSemaphore, Record, SemaphorePage, SemaphoreView};

/// The most entries of each kind on one page.
const LARGEST_PAGE: u64 = 100;

/// What a semaphore was like at one moment, or one page of it: the first of its holders, and the
/// first of its waiters.
///
/// Only what lives is shown: a holder whose lease has run out holds nothing, even if the semaphore
/// has not been swept of it yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// The last fencing token that was given out, zero if none was.
    pub token: u64,
    /// The limit, nothing if the server does not know the semaphore: because it is new, or was idle
    /// for a while.
    pub limit: Option<u32>,
    /// How many permits are in use, on all pages. Those of holders whose lease has run out and that
    /// have not been swept yet are counted. More than the limit where it was lowered.
    pub in_use: u64,
    /// How many hold permits, on all pages, dead ones that have not been swept yet among them.
    pub holders: u64,
    /// Who holds permits, as far as this page shows it.
    pub holding: Vec<PermitHolder>,
    /// How many wait, on all pages, dead ones that have not been dropped yet among them.
    pub waiters: u64,
    /// Who waits, as far as this page shows it, in the order in which they get their permits.
    pub waiting: Vec<PermitWaiter>,
    next: Option<SemaphorePage>,
}

/// A holder of permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitHolder {
    /// Its id, [`Lease::id`](crate::Lease::id) at its holder.
    pub id: String,
    /// How many it holds.
    pub permits: u32,
    /// Its fencing token.
    pub token: u64,
    /// How long it has held, as its token tells: zero if the clock of the server was set back
    /// since.
    pub age: Duration,
    /// What is left of its lease, by the server's clock.
    pub remaining: Duration,
}

/// A waiter for permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitWaiter {
    /// Its id.
    pub id: String,
    /// How many it wants.
    pub permits: u32,
    /// How long it has waited.
    pub age: Duration,
    /// How long its place is kept if it does not poll again: zero for one that is gone and will be
    /// passed over.
    pub remaining: Duration,
}

impl SemaphoreStatus {
    /// Whether there is nothing on a page after this one.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }
}

/// A query of a semaphore's [status](SemaphoreStatus), sent when it is awaited.
///
/// # Cost
///
/// One round trip, and a time at the server that is bounded by the page's size. Nothing is written.
///
/// # Errors
///
/// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
/// [`Foreign`](crate::ErrorKind::Foreign), [`Incompatible`](crate::ErrorKind::Incompatible).
///
/// # Cancel safety
///
/// Can be dropped at any time.
#[must_use = "a query is not sent until it is awaited"]
pub struct SemaphoreStatusQuery<'a> {
    semaphore: &'a Semaphore,
    page: SemaphorePage,
    size: u64,
}

impl Semaphore {
    /// Queries the limit, who holds permits and who waits, a page at a time.
    pub fn status(&self) -> SemaphoreStatusQuery<'_> {
        let page = SemaphorePage::default();
        SemaphoreStatusQuery { semaphore: self, page, size: LARGEST_PAGE }
    }
}

impl SemaphoreStatusQuery<'_> {
    /// The most holders, and the most waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = (most as u64).clamp(1, LARGEST_PAGE);
        self
    }

    /// The page after this one. It shows the semaphore as it is by then: who came or left meanwhile
    /// may be missing or be shown twice.
    pub fn after(mut self, status: &SemaphoreStatus) -> Self {
        let end = SemaphorePage { holder: status.holders, waiter: None };
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
            let call = InspectSemaphore { page: self.page, most }.call(client.scripts, lock);
            let reply = client.query(lock, &call).await?;
            let view = InspectSemaphore::read(reply).map_err(|bad| lock.with_lock(bad))?;
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

/// The page that began with the holder of this index.
fn status(view: SemaphoreView, first: u64, size: u64) -> SemaphoreStatus {
    let now = view.now;
    let holder = |(id, record, permits): (String, Record, u32)| {
        (record.deadline > now).then(|| PermitHolder {
            id,
            permits,
            token: record.token,
            age: Duration::from_micros((now * 1000).saturating_sub(record.token)),
            remaining: Duration::from_millis(record.deadline - now),
        })
    };
    let waiter = |entry: Entry| PermitWaiter {
        id: entry.id,
        permits: entry.permits,
        age: Duration::from_millis(now.saturating_sub(entry.since)),
        remaining: Duration::from_millis((entry.seen + entry.waiter_ttl).saturating_sub(now)),
    };
    let shown = (first + size).min(view.holders);
    let next_waiter = view.waiting.last().and_then(|entry| entry.next.clone());
    let is_last = shown == view.holders && next_waiter.is_none();
    SemaphoreStatus {
        token: view.token,
        limit: (view.limit > 0).then_some(view.limit),
        in_use: view.used,
        holders: view.holders,
        holding: view.holding.into_iter().filter_map(holder).collect(),
        waiters: view.waiters,
        waiting: view.waiting.into_iter().map(waiter).collect(),
        next: (!is_last).then_some(SemaphorePage { holder: shown, waiter: next_waiter }),
    }
}
