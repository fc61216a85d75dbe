//! Questions about a read/write lock: who holds it, who waits, since when and for how long.

mod queue;

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::Client;
use crate::error::Result;
use crate::lock::rwlock::RwLock;
use crate::protocol::{Entry, Holds, Inspect, LockKey, Mode, Page, Record, View};
use queue::Queue;

/// The most entries of each kind on one page.
const LARGEST_PAGE: usize = 100;

/// What a lock was like at one moment, or one page of it: the writer, the first of the readers, and
/// the first of the waiters.
///
/// Only what lives is shown: a holder whose lease has run out holds nothing, even if the lock has
/// not been swept of it yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The last fencing token that was given out, zero if the lock is not known to the server:
    /// because it is new, or was idle for a while.
    pub token: u64,
    /// Who writes.
    pub writer: Option<Holder>,
    /// How many read, on all pages. Readers whose lease has run out and who have not been swept yet
    /// are counted.
    pub readers: u64,
    /// Who reads, as far as this page shows it.
    pub reading: Vec<Holder>,
    /// The one reader that waits to write: as a reader it is among the holders.
    pub upgrader: Option<Waiter>,
    /// How many wait, on all pages, dead ones that have not been dropped yet among them.
    pub waiters: u64,
    /// Who waits, as far as this page shows it, in the order in which they came. Writers go in this
    /// order, and so do readers; which of the two goes next is a matter of
    /// [`Fairness`](crate::Fairness).
    pub waiting: Vec<Waiter>,
    next: Option<Page>,
}

/// A holder of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// Its id, [`Lease::id`](crate::Lease::id) at its holder.
    pub id: String,
    /// How it holds.
    pub mode: Mode,
    /// Its fencing token.
    pub token: u64,
    /// How long it has held, as its token tells: zero if the clock of the server was set back
    /// since.
    pub age: Duration,
    /// What is left of its lease, by the server's clock.
    pub remaining: Duration,
    /// Its lease will not be made longer: it was revoked.
    pub revoked: bool,
    /// The lease is cached: its client may not be using it, and gives it back to whoever asks for
    /// the lock. A client that has let others wait for its guards is not cached any more.
    pub cached: bool,
}

/// A waiter for a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Its id.
    pub id: String,
    /// How it wants to hold.
    pub mode: Mode,
    /// How long it has waited.
    pub age: Duration,
    /// How long its place is kept if it does not poll again: zero for one that is gone and will be
    /// passed over.
    pub remaining: Duration,
}

impl Status {
    /// Whether anybody holds the lock, as far as this page shows it.
    pub fn is_locked(&self) -> bool {
        self.writer.is_some() || !self.reading.is_empty()
    }

    /// Whether there is nothing on a page after this one.
    pub fn is_last(&self) -> bool {
        self.next.is_none()
    }
}

/// A query of a lock's [`Status`], sent when it is awaited.
///
/// # Cost
///
/// One round trip, and a time at the server that is bounded by the page's size: a lock with
/// thousands of holders and waiters blocks nobody when it is looked at. Nothing is written.
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
pub struct StatusQuery<'a> {
    lock: &'a RwLock,
    page: Page,
    size: usize,
}

impl<'a> StatusQuery<'a> {
    /// The most readers, and the most waiters, on a page: 1 to 100. Default: 100.
    pub fn page_size(mut self, most: usize) -> Self {
        self.size = most.clamp(1, LARGEST_PAGE);
        self
    }

    /// The page after this one. It shows the lock as it is by then: who came or left meanwhile may
    /// be missing or be shown twice, and a waiter that the page was to begin with and that has left
    /// ends its list.
    pub fn after(mut self, status: &Status) -> Self {
        self.page = status.next.clone().unwrap_or_else(|| Page::from(status.readers, None, None));
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
    /// Queries who holds the lock and who waits, a page at a time.
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
        StatusQuery { lock: self, page: Page::default(), size: LARGEST_PAGE }
    }

    /// Whether anybody holds the lock now, or has it [cached](Holder::cached). By the time the
    /// answer is here it may be wrong: to know that nobody holds it, hold it.
    ///
    /// One round trip; if a hundred dead readers stand before the first living one, one more for
    /// each hundred.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        let RwLock { client, lock } = self;
        let mut reader = 0;
        loop {
            let page = Page::from(reader, None, None);
            let status =
                status(look(client, lock, page, LARGEST_PAGE).await?, reader, LARGEST_PAGE);
            match &status.next {
                _ if status.is_locked() => return Ok(true),
                Some(next) => reader = next.reader,
                None => return Ok(false),
            }
        }
    }

    /// Whether the server says that this acquisition, as
    /// [`Lease::id`](crate::Lease::id) or a [`Status`] names it, holds the lock. One round trip.
    ///
    /// It is for another process. A holder reads its own lease by
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
        let reply = client.query(lock, &Holds { id }.call(client.scripts, lock)).await?;
        let (_, token) = Holds::read(reply).map_err(|bad| lock.with_lock(bad))?;
        Ok(token.is_some())
    }
}

async fn look(client: &Client, lock: &LockKey, page: Page, size: usize) -> Result<View> {
    let most = size as u64;
    let call = Inspect { page, most }.call(client.scripts, lock);
    Inspect::read(client.query(lock, &call).await?).map_err(|bad| lock.with_lock(bad))
}

/// What servers take for an acquisition's id.
fn is_id(text: &str) -> bool {
    (12..=40).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The page that began with the reader of this index.
fn status(view: View, first_reader: u64, size: usize) -> Status {
    let (now, revoked) = (view.now, view.revoked);
    let holder = |mode, (id, record): (String, Record)| {
        (record.deadline > now).then(|| Holder {
            id,
            mode,
            token: record.token,
            age: Duration::from_micros((now * 1000).saturating_sub(record.token)),
            remaining: Duration::from_millis(record.deadline - now),
            revoked: record.token <= revoked,
            cached: record.cached,
        })
    };
    let reader = (first_reader + size as u64).min(view.readers);
    let mut queue = Queue::new(view.writers_waiting, view.readers_waiting);
    let waiting = queue.by_ref().take(size).map(|(mode, entry)| waiter(now, mode, entry)).collect();
    let (next_writer, next_reader) = queue.rest();
    let is_last = reader == view.readers && next_writer.is_none() && next_reader.is_none();
    Status {
        token: view.token,
        writer: view.writer.and_then(|writer| holder(Mode::Write, writer)),
        readers: view.readers,
        reading: view.reading.into_iter().filter_map(|reader| holder(Mode::Read, reader)).collect(),
        upgrader: view.upgrader.map(|entry| waiter(now, Mode::Write, entry)),
        waiters: view.waiters,
        waiting,
        next: (!is_last).then(|| Page::from(reader, next_writer, next_reader)),
    }
}

fn waiter(now: u64, mode: Mode, entry: Entry) -> Waiter {
    Waiter {
        id: entry.id,
        mode,
        age: Duration::from_millis(now.saturating_sub(entry.since)),
        remaining: Duration::from_millis((entry.seen + entry.waiter_ttl).saturating_sub(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ticket: u64, next: Option<u64>) -> Entry {
        Entry {
            id: format!("o{ticket}"),
            next: next.map(|next| format!("o{next}")),
            ticket,
            seen: 900,
            waiter_ttl: 50,
            since: 400,
            permits: 0,
        }
    }

    fn view() -> View {
        let record = |deadline, token| Record { deadline, token, cached: token == 998_000 };
        View {
            now: 1_000,
            token: 999_000,
            readers: 5,
            revoked: 998_000,
            reading: vec![
                ("dead".into(), record(1_000, 997_000)),
                ("alive".into(), record(1_500, 998_000)),
            ],
            waiters: 9,
            writers_waiting: vec![entry(1, Some(4)), entry(4, Some(9))],
            readers_waiting: vec![entry(2, Some(3)), entry(3, None)],
            ..View::default()
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
        assert_eq!(status.next, Some(Page::from(4, Some("o4".into()), Some("o3".into()))));
    }

    #[test]
    fn the_next_page_goes_on_behind_what_was_shown() {
        let all = status(view(), 4, 100);
        assert_eq!(all.waiting.len(), 4);
        assert_eq!(all.next, Some(Page::from(5, Some("o9".into()), None)), "{all:?}");
        let empty = status(View::default(), 0, 100);
        assert!(empty.is_last() && !empty.is_locked());
    }

    #[test]
    fn what_cannot_be_an_owner_is_none() {
        assert!(is_id("abcdefghijklmn-_01"));
        for text in ["", "short", "abcdefghijklmn 01", "x".repeat(41).as_str()] {
            assert!(!is_id(text), "{text}");
        }
    }
}
