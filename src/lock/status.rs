mod waiter_merge;

use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::protocol::{
    ClientInfo, HolderRecord, HoldsRequest, InspectReply, InspectRequest, LockKey, LockMode,
    PageCursor, WaiterRecord,
};

use crate::client::ClientInner;
use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::rwlock::RwLock;
use waiter_merge::MergedQueue;

/// The maximum number of entries of each kind on one page.
const LARGEST_PAGE: usize = 100;

/// The state of a lock at one moment, or one page of it: the writer, the first readers and the
/// first waiters.
///
/// It shows only holders whose leases are valid. A holder whose lease has ended is left out, even
/// if the server has not removed it yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockStatus {
    /// The last fencing token that was given out. `None` if the server does not know the lock,
    /// because it is new or was idle for a while.
    pub last_token: Option<FencingToken>,
    /// The writer.
    pub writer: Option<Holder>,
    /// The number of readers on all pages. It includes readers whose leases have ended and that the
    /// server has not removed yet.
    pub reader_count: u64,
    /// The readers on this page.
    pub readers: Vec<Holder>,
    /// The reader that waits for an upgrade. It is also among the readers.
    pub upgrader: Option<Waiter>,
    /// The number of waiters on all pages. It includes dead waiters that the server has not removed
    /// yet.
    pub waiter_count: u64,
    /// The waiters on this page, in the order of their arrival. Writers go in this order, and so do
    /// readers; [`Fairness`](crate::Fairness) decides between a writer and a reader.
    pub waiters: Vec<Waiter>,
    next: Option<PageCursor>,
}

/// A holder of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// Its id: [`Lease::id`](crate::Lease::id) at the holder.
    pub id: String,
    /// Who its client is. `None` if the client has no record, or if the record could not be read.
    pub client: Option<ClientInfo>,
    /// Whether it reads or writes.
    pub mode: LockMode,
    /// Its fencing token.
    pub fencing_token: FencingToken,
    /// The time since it was granted the lock, taken from its token. Zero if the server's clock was
    /// set back since.
    pub held_for: Duration,
    /// The time left of its lease, by the server's clock.
    pub lease_remaining: Duration,
    /// Whether its lease was revoked, and can no longer be renewed.
    pub revoked: bool,
    /// Whether the lease is cached: its client may not be using it, and releases it when another
    /// client wants the lock. Not set once its client has let others wait for its guards.
    pub cached: bool,
}

/// A waiter for a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Its id.
    pub id: String,
    /// Who its client is. `None` if the client has no record, or if the record could not be read.
    pub client: Option<ClientInfo>,
    /// Whether it waits to read or to write.
    pub mode: LockMode,
    /// The time it has waited.
    pub waiting_for: Duration,
    /// The time for which its place is kept without another poll. Zero for a waiter that is dead
    /// and will be passed over.
    pub ttl_remaining: Duration,
}

impl LockStatus {
    /// Returns whether this page shows a holder.
    pub fn is_locked(&self) -> bool {
        self.writer.is_some() || !self.readers.is_empty()
    }

    /// Returns whether this is the last page.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }

    /// The ids of the holders and waiters, and who their clients are.
    fn clients_mut(&mut self) -> impl Iterator<Item = (&str, &mut Option<ClientInfo>)> {
        let holders = self.writer.iter_mut().chain(&mut self.readers);
        let waiters = self.upgrader.iter_mut().chain(&mut self.waiters);
        let holders = holders.map(|holder| (holder.id.as_str(), &mut holder.client));
        holders.chain(waiters.map(|waiter| (waiter.id.as_str(), &mut waiter.client)))
    }
}

/// A query of a lock's [`LockStatus`]. It is sent when it is awaited.
///
/// # Cost
///
/// One round trip, and for [clients](LockStatusQuery::clients) that this client does not know yet
/// one more, to the masters that have their records. The time at the server is bounded by the page
/// size, so a query of a lock with thousands of holders and waiters does not block the server. It
/// writes nothing.
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
pub struct LockStatusQuery<'a> {
    lock: &'a RwLock,
    page: PageCursor,
    size: usize,
    clients: bool,
}

impl<'a> LockStatusQuery<'a> {
    pub(crate) fn new(lock: &'a RwLock) -> Self {
        LockStatusQuery { lock, page: PageCursor::default(), size: LARGEST_PAGE, clients: true }
    }

    /// Sets the maximum number of readers, and of waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = most.clamp(1, LARGEST_PAGE);
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
    /// Each page shows the lock at the time of its query. Holders and waiters that came or left
    /// between two pages may be missing or appear twice. If the waiting writer that the page would
    /// begin with has left, the page shows no waiting writers, and likewise for waiting readers.
    pub fn after(mut self, status: &LockStatus) -> Self {
        self.page = status
            .next
            .clone()
            .unwrap_or_else(|| PageCursor::from(status.reader_count, None, None));
        self
    }
}

impl<'a> IntoFuture for LockStatusQuery<'a> {
    type Output = Result<LockStatus>;
    type IntoFuture = BoxFuture<'a, Result<LockStatus>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let RwLock { client, lock } = self.lock;
            let view = look(client, lock, self.page.clone(), self.size).await?;
            let mut status = status(view, self.page.reader, self.size);
            if self.clients {
                client.describe_clients(status.clients_mut()).await;
            }
            Ok(status)
        })
    }
}

debug_fields!(|query| LockStatusQuery::<'_> { lock: query.lock, page: query.page, .. });

/// Whether a live holder is on any page.
pub(crate) async fn is_locked(lock: &RwLock) -> Result<bool> {
    let RwLock { client, lock } = lock;
    let mut reader = 0;
    loop {
        let page = PageCursor::from(reader, None, None);
        let status = status(look(client, lock, page, LARGEST_PAGE).await?, reader, LARGEST_PAGE);
        match &status.next {
            _ if status.is_locked() => return Ok(true),
            Some(next) => reader = next.reader,
            None => return Ok(false),
        }
    }
}

/// Whether the acquisition with this id holds the lock.
pub(crate) async fn is_held_by(lock: &RwLock, id: &str) -> Result<bool> {
    if !is_id(id) {
        return Ok(false);
    }
    let RwLock { client, lock } = lock;
    let call = HoldsRequest { id }.call(lock);
    let (_, token) = client.query(lock, &call, HoldsRequest::read).await?;
    Ok(token.is_some())
}

async fn look(
    client: &ClientInner,
    lock: &LockKey,
    page: PageCursor,
    size: usize,
) -> Result<InspectReply> {
    let most = size as u64;
    let call = InspectRequest { page, page_size: most }.call(lock);
    client.query(lock, &call, InspectRequest::read).await
}

/// Whether servers accept the text as an acquisition's id.
fn is_id(text: &str) -> bool {
    (12..=40).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The page whose first reader has this index.
pub(crate) fn status(view: InspectReply, first_reader: u64, size: usize) -> LockStatus {
    let (now, revoked) = (view.server_now, view.revoked_up_to);
    let holder = |mode, (id, record): (String, HolderRecord)| {
        let fencing_token = FencingToken::from_wire(record.token)?;
        (record.deadline > now).then(|| Holder {
            id,
            mode,
            fencing_token,
            held_for: Duration::from_micros(now.saturating_mul(1000).saturating_sub(record.token)),
            lease_remaining: Duration::from_millis(record.deadline - now),
            client: None,
            revoked: record.token <= revoked,
            cached: record.cached,
        })
    };
    let reader = first_reader.saturating_add(size as u64).min(view.reader_count);
    let mut queue = MergedQueue::new(view.waiting_writers, view.waiting_readers);
    let waiters = queue.by_ref().take(size).map(|(mode, entry)| waiter(now, mode, entry)).collect();
    let (next_writer, next_reader) = queue.rest();
    let is_last = reader == view.reader_count && next_writer.is_none() && next_reader.is_none();
    LockStatus {
        last_token: FencingToken::from_wire(view.token),
        writer: view.writer.and_then(|writer| holder(LockMode::Write, writer)),
        reader_count: view.reader_count,
        readers: view
            .readers
            .into_iter()
            .filter_map(|reader| holder(LockMode::Read, reader))
            .collect(),
        upgrader: view.upgrader.map(|entry| waiter(now, LockMode::Write, entry)),
        waiter_count: view.waiter_count,
        waiters,
        next: (!is_last).then(|| PageCursor::from(reader, next_writer, next_reader)),
    }
}

fn waiter(now: u64, mode: LockMode, entry: WaiterRecord) -> Waiter {
    Waiter {
        id: entry.id,
        client: None,
        mode,
        waiting_for: Duration::from_millis(now.saturating_sub(entry.joined_at)),
        ttl_remaining: Duration::from_millis(
            entry.last_poll.saturating_add(entry.waiter_ttl).saturating_sub(now),
        ),
    }
}

#[cfg(test)]
mod tests;
