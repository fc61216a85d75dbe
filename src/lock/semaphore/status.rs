use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::protocol::{
    ClientInfo, HolderRecord, InspectSemaphoreReply, InspectSemaphoreRequest, SemaphoreCursor,
    WaiterRecord,
};

use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::semaphore::Semaphore;

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
    /// The last fencing token that was given out, or `None` if none was.
    pub last_token: Option<FencingToken>,
    /// The limit. `None` if the server does not know the semaphore, because it is new or was idle
    /// for a while.
    pub limit: Option<u32>,
    /// The number of permits in use, on all pages. It includes permits of holders whose leases have
    /// ended and that the server has not removed yet. It exceeds the limit if the limit was
    /// lowered.
    pub in_use: u64,
    /// The number of holders on all pages. It includes dead holders that the server has not removed
    /// yet.
    pub holder_count: u64,
    /// The holders on this page.
    pub holders: Vec<SemaphoreHolder>,
    /// The number of waiters on all pages. It includes dead waiters that the server has not removed
    /// yet.
    pub waiter_count: u64,
    /// The waiters on this page, in the order in which they get their permits.
    pub waiters: Vec<SemaphoreWaiter>,
    next: Option<SemaphoreCursor>,
}

/// A holder of permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SemaphoreHolder {
    /// Its id: [`Lease::id`](crate::Lease::id) at the holder.
    pub id: String,
    /// Who its client is. `None` if the client has no record, or if the record could not be read.
    pub client: Option<ClientInfo>,
    /// The number of permits it holds.
    pub permits: u32,
    /// Its fencing token.
    pub fencing_token: FencingToken,
    /// The time since it was granted them, taken from its token. Zero if the server's clock was set
    /// back since.
    pub held_for: Duration,
    /// The time left of its lease, by the server's clock.
    pub lease_remaining: Duration,
}

/// A waiter for permits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SemaphoreWaiter {
    /// Its id.
    pub id: String,
    /// Who its client is. `None` if the client has no record, or if the record could not be read.
    pub client: Option<ClientInfo>,
    /// The number of permits it wants.
    pub permits: u32,
    /// The time it has waited.
    pub waiting_for: Duration,
    /// The time for which its place is kept without another poll. Zero for a waiter that is dead
    /// and will be passed over.
    pub ttl_remaining: Duration,
}

impl SemaphoreStatus {
    /// Returns whether this is the last page.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }

    /// The ids of the holders and waiters, and who their clients are.
    fn clients_mut(&mut self) -> impl Iterator<Item = (&str, &mut Option<ClientInfo>)> {
        let holders = self.holders.iter_mut();
        let waiters = self.waiters.iter_mut();
        let holders = holders.map(|holder| (holder.id.as_str(), &mut holder.client));
        holders.chain(waiters.map(|waiter| (waiter.id.as_str(), &mut waiter.client)))
    }
}

/// A query of a semaphore's [status](SemaphoreStatus). It is sent when it is awaited.
///
/// # Cost
///
/// One round trip, and for [clients](SemaphoreStatusQuery::clients) that this client does not know
/// yet one more, to the masters that have their records. The time at the server is bounded by the
/// page size. It writes nothing.
///
/// # Errors
///
/// [`Unavailable`](crate::ErrorKind::Unavailable), [`Rejected`](crate::ErrorKind::Rejected),
/// [`WrongType`](crate::ErrorKind::WrongType),
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion).
///
/// # Cancel safety
///
/// Cancel safe: a query changes nothing.
#[must_use = "a query is not sent until it is awaited"]
pub struct SemaphoreStatusQuery<'a> {
    semaphore: &'a Semaphore,
    page: SemaphoreCursor,
    size: u64,
    clients: bool,
}

impl<'a> SemaphoreStatusQuery<'a> {
    pub(super) fn new(semaphore: &'a Semaphore) -> Self {
        SemaphoreStatusQuery {
            semaphore,
            page: SemaphoreCursor::default(),
            size: LARGEST_PAGE,
            clients: true,
        }
    }

    /// Sets the maximum number of holders, and of waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = (most as u64).clamp(1, LARGEST_PAGE);
        self
    }

    /// Sets whether to look up who the clients of the holders and waiters are. Default: true.
    ///
    /// Waits for the records for at most a second: some may be on a master that is away.
    pub fn clients(mut self, clients: bool) -> Self {
        self.clients = clients;
        self
    }

    /// Queries the page after this one.
    ///
    /// Each page shows the semaphore at the time of its query. Holders and waiters that came or
    /// left between two pages may be missing or appear twice.
    pub fn after(mut self, status: &SemaphoreStatus) -> Self {
        let end = SemaphoreCursor { holder: status.holder_count, waiter: None };
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
            let call = InspectSemaphoreRequest { page: self.page, most }.call(lock);
            let view = client.query(lock, &call, InspectSemaphoreRequest::read).await?;
            let mut status = status(view, first, most);
            if self.clients {
                client.describe_clients(status.clients_mut()).await;
            }
            Ok(status)
        })
    }
}

debug_fields!(|query| SemaphoreStatusQuery::<'_> {
    semaphore: query.semaphore,
    page: query.page,
    ..
});

/// The page whose first holder has this index.
fn status(view: InspectSemaphoreReply, first: u64, size: u64) -> SemaphoreStatus {
    let now = view.now;
    let holder = |(id, record, permits): (String, HolderRecord, u32)| {
        let fencing_token = FencingToken::from_wire(record.token)?;
        (record.deadline > now).then(|| SemaphoreHolder {
            id,
            client: None,
            permits,
            fencing_token,
            held_for: Duration::from_micros(now.saturating_mul(1000).saturating_sub(record.token)),
            lease_remaining: Duration::from_millis(record.deadline - now),
        })
    };
    let waiter = |entry: WaiterRecord| SemaphoreWaiter {
        id: entry.id,
        client: None,
        permits: entry.permits,
        waiting_for: Duration::from_millis(now.saturating_sub(entry.joined_at)),
        ttl_remaining: Duration::from_millis(
            entry.last_poll.saturating_add(entry.waiter_ttl).saturating_sub(now),
        ),
    };
    let shown = first.saturating_add(size).min(view.holder_count);
    let next_waiter = view.waiting.last().and_then(|entry| entry.next.clone());
    let is_last = shown == view.holder_count && next_waiter.is_none();
    SemaphoreStatus {
        last_token: FencingToken::from_wire(view.token),
        limit: (view.limit > 0).then_some(view.limit),
        in_use: view.permits_in_use,
        holder_count: view.holder_count,
        holders: view.holders.into_iter().filter_map(holder).collect(),
        waiter_count: view.waiters,
        waiters: view.waiting.into_iter().map(waiter).collect(),
        next: (!is_last).then_some(SemaphoreCursor { holder: shown, waiter: next_waiter }),
    }
}

#[cfg(test)]
mod tests;
