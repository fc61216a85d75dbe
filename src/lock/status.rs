//! The status of a read/write lock: its holders and waiters.

mod waiter_merge;

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::ClientInner;
use crate::error::Result;
use crate::lock::rwlock::RwLock;
use crate::protocol::{
    HolderRecord, HoldsRequest, InspectReply, InspectRequest, LockKey, LockMode, PageCursor,
    WaiterRecord,
};
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
pub struct Status {
    /// The last fencing token that was given out. Zero if the server does not know the lock,
    /// because it is new or was idle for a while.
    pub token: u64,
    /// The writer.
    pub writer: Option<Holder>,
    /// The number of readers on all pages. It includes readers whose leases have ended and that the
    /// server has not removed yet.
    pub readers: u64,
    /// The readers on this page.
    pub reading: Vec<Holder>,
    /// The reader that waits for an upgrade. It is also among the readers.
    pub upgrader: Option<Waiter>,
    /// The number of waiters on all pages. It includes dead waiters that the server has not removed
    /// yet.
    pub waiters: u64,
    /// The waiters on this page, in the order of their arrival. Writers go in this order, and so do
    /// readers; [`Fairness`](crate::Fairness) decides between a writer and a reader.
    pub waiting: Vec<Waiter>,
    next: Option<PageCursor>,
}

/// A holder of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// Its id: [`Lease::id`](crate::Lease::id) at the holder.
    pub id: String,
    /// Whether it reads or writes.
    pub mode: LockMode,
    /// Its fencing token.
    pub token: u64,
    /// The time since it was granted the lock, taken from its token. Zero if the server's clock was
    /// set back since.
    pub age: Duration,
    /// The time left of its lease, by the server's clock.
    pub remaining: Duration,
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
    /// Whether it waits to read or to write.
    pub mode: LockMode,
    /// The time it has waited.
    pub age: Duration,
    /// The time for which its place is kept without another poll. Zero for a waiter that is dead
    /// and will be passed over.
    pub remaining: Duration,
}

impl Status {
    /// Whether the lock is held, as far as this page shows.
    pub fn is_locked(&self) -> bool {
        self.writer.is_some() || !self.reading.is_empty()
    }

    /// Whether this is the last page.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }
}

/// A query of a lock's [`Status`]. It is sent when it is awaited.
///
/// # Cost
///
/// One round trip. The time at the server is bounded by the page size, so a query of a lock with
/// thousands of holders and waiters does not block the server. It writes nothing.
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
pub struct StatusQuery<'a> {
    lock: &'a RwLock,
    page: PageCursor,
    size: usize,
}

impl<'a> StatusQuery<'a> {
    /// The maximum number of readers, and of waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = most.clamp(1, LARGEST_PAGE);
        self
    }

    /// The page after this one. It shows the lock as it is then, so holders and waiters that came
    /// or left meanwhile may be missing or appear twice. If the waiting writer that the page would
    /// begin with has left, the page shows no waiting writers, and likewise for waiting readers.
    pub fn after(mut self, status: &Status) -> Self {
        self.page =
            status.next.clone().unwrap_or_else(|| PageCursor::from(status.readers, None, None));
        self
    }
}

impl<'a> IntoFuture for StatusQuery<'a> {
    type Output = Result<Status>;
    type IntoFuture = BoxFuture<'a, Result<Status>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let RwLock { client, lock } = self.lock;
            let view = look(client, lock, self.page.clone(), self.size).await?;
            Ok(status(view, self.page.reader, self.size))
        })
    }
}

impl fmt::Debug for StatusQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusQuery")
            .field("lock", &self.lock)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

impl RwLock {
    /// Queries the holders and waiters, a page at a time.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Locks::embedded().await?.rwlock("order:{42}")?;
    /// let mut status = order.status().await?;
    /// loop {
    ///     for waiter in &status.waiting {
    ///         println!("{} has waited for {:?}", waiter.id, waiter.age);
    ///     }
    ///     if status.is_last() {
    ///         break;
    ///     }
    ///     status = order.status().after(&status).await?;
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn status(&self) -> StatusQuery<'_> {
        StatusQuery { lock: self, page: PageCursor::default(), size: LARGEST_PAGE }
    }

    /// Whether the lock is held, or [cached](Holder::cached) by a client. The answer may be
    /// outdated when it arrives; only holding the lock excludes others.
    ///
    /// One round trip. If a hundred dead readers come before the first live one, one more for each
    /// hundred.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        let RwLock { client, lock } = self;
        let mut reader = 0;
        loop {
            let page = PageCursor::from(reader, None, None);
            let status =
                status(look(client, lock, page, LARGEST_PAGE).await?, reader, LARGEST_PAGE);
            match &status.next {
                _ if status.is_locked() => return Ok(true),
                Some(next) => reader = next.reader,
                None => return Ok(false),
            }
        }
    }

    /// Whether the acquisition with this id, a [`Lease::id`](crate::Lease::id) or one from a
    /// [`Status`], holds the lock at the server. One round trip.
    ///
    /// Use it for leases of other processes. A holder checks its own lease by
    /// [`is_held`](crate::Lease::is_held), without a round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_held_by(&self, id: impl AsRef<str> + Send) -> Result<bool> {
        let id = id.as_ref();
        if !is_id(id) {
            return Ok(false);
        }
        let RwLock { client, lock } = self;
        let reply = client.query(lock, &HoldsRequest { id }.call(client.scripts, lock)).await?;
        let (_, token) = HoldsRequest::read(reply).map_err(|bad| lock.add_context(bad))?;
        Ok(token.is_some())
    }
}

async fn look(
    client: &ClientInner,
    lock: &LockKey,
    page: PageCursor,
    size: usize,
) -> Result<InspectReply> {
    let most = size as u64;
    let call = InspectRequest { page, page_size: most }.call(client.scripts, lock);
    InspectRequest::read(client.query(lock, &call).await?).map_err(|bad| lock.add_context(bad))
}

/// Whether servers accept the text as an acquisition's id.
fn is_id(text: &str) -> bool {
    (12..=40).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The page whose first reader has this index.
fn status(view: InspectReply, first_reader: u64, size: usize) -> Status {
    let (now, revoked) = (view.server_now, view.revoked_up_to);
    let holder = |mode, (id, record): (String, HolderRecord)| {
        (record.deadline > now).then(|| Holder {
            id,
            mode,
            token: record.token,
            age: Duration::from_micros(now.saturating_mul(1000).saturating_sub(record.token)),
            remaining: Duration::from_millis(record.deadline - now),
            revoked: record.token <= revoked,
            cached: record.cached,
        })
    };
    let reader = first_reader.saturating_add(size as u64).min(view.reader_count);
    let mut queue = MergedQueue::new(view.waiting_writers, view.waiting_readers);
    let waiting = queue.by_ref().take(size).map(|(mode, entry)| waiter(now, mode, entry)).collect();
    let (next_writer, next_reader) = queue.rest();
    let is_last = reader == view.reader_count && next_writer.is_none() && next_reader.is_none();
    Status {
        token: view.token,
        writer: view.writer.and_then(|writer| holder(LockMode::Write, writer)),
        readers: view.reader_count,
        reading: view
            .readers
            .into_iter()
            .filter_map(|reader| holder(LockMode::Read, reader))
            .collect(),
        upgrader: view.upgrader.map(|entry| waiter(now, LockMode::Write, entry)),
        waiters: view.waiter_count,
        waiting,
        next: (!is_last).then(|| PageCursor::from(reader, next_writer, next_reader)),
    }
}

fn waiter(now: u64, mode: LockMode, entry: WaiterRecord) -> Waiter {
    Waiter {
        id: entry.id,
        mode,
        age: Duration::from_millis(now.saturating_sub(entry.joined_at)),
        remaining: Duration::from_millis(
            entry.last_poll.saturating_add(entry.waiter_ttl).saturating_sub(now),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ticket: u64, next: Option<u64>) -> WaiterRecord {
        WaiterRecord {
            id: format!("o{ticket}"),
            next: next.map(|next| format!("o{next}")),
            ticket,
            last_poll: 900,
            waiter_ttl: 50,
            joined_at: 400,
            permits: 0,
        }
    }

    fn view() -> InspectReply {
        let record = |deadline, token| HolderRecord { deadline, token, cached: token == 998_000 };
        InspectReply {
            server_now: 1_000,
            token: 999_000,
            reader_count: 5,
            revoked_up_to: 998_000,
            readers: vec![
                ("dead".into(), record(1_000, 997_000)),
                ("alive".into(), record(1_500, 998_000)),
            ],
            waiter_count: 9,
            waiting_writers: vec![entry(1, Some(4)), entry(4, Some(9))],
            waiting_readers: vec![entry(2, Some(3)), entry(3, None)],
            ..InspectReply::default()
        }
    }

    #[test]
    fn waiters_come_in_the_order_of_their_tickets_and_the_dead_do_not_hold() {
        let status = status(view(), 2, 2);
        let names: Vec<_> = status.waiting.iter().map(|waiter| waiter.id.as_str()).collect();
        assert_eq!(names, ["o1", "o2"]);
        assert_eq!(status.waiting[0].age, Duration::from_millis(600));
        assert_eq!(status.waiting[0].remaining, Duration::ZERO);
        let [holder] = &status.reading[..] else { panic!("{status:?}") };
        assert_eq!(holder.id, "alive");
        assert_eq!(holder.age, Duration::from_millis(2));
        assert_eq!(holder.remaining, Duration::from_millis(500));
        assert!(holder.revoked && holder.cached && status.is_locked());
        assert_eq!(status.next, Some(PageCursor::from(4, Some("o4".into()), Some("o3".into()))));
    }

    #[test]
    fn the_next_page_goes_on_behind_what_was_shown() {
        let all = status(view(), 4, 100);
        assert_eq!(all.waiting.len(), 4);
        assert_eq!(all.next, Some(PageCursor::from(5, Some("o9".into()), None)), "{all:?}");
        let empty = status(InspectReply::default(), 0, 100);
        assert!(empty.is_last() && !empty.is_locked());
    }

    #[test]
    fn status_of_the_largest_numbers_does_not_overflow() {
        const MAX: u64 = u64::MAX;
        let last =
            WaiterRecord { last_poll: MAX, waiter_ttl: MAX, joined_at: MAX, ..entry(MAX, None) };
        let record = HolderRecord { deadline: MAX, token: MAX, cached: false };
        for now in [0, MAX / 2, MAX - 1, MAX] {
            let view = InspectReply {
                server_now: now,
                token: MAX,
                writer: Some(("writer".into(), record)),
                reader_count: MAX,
                readers: vec![("reader".into(), HolderRecord { token: 0, ..record })],
                waiter_count: MAX,
                upgrader: Some(last.clone()),
                waiting_writers: vec![last.clone()],
                ..InspectReply::default()
            };
            let status = status(view, MAX, 100);
            assert_eq!(status.waiting[0].remaining, Duration::from_millis(MAX - now));
            assert_eq!(status.writer.is_some(), now < MAX);
        }
    }

    #[test]
    fn is_id_of_text_that_servers_refuse_is_false() {
        assert!(is_id("abcdefghijklmn-_01"));
        for text in ["", "short", "abcdefghijklmn 01", "x".repeat(41).as_str()] {
            assert!(!is_id(text), "{text}");
        }
    }
}
