//! One cached lock of this client: its hold, and the local requests for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::client::Client;
use crate::client::acquisition::Acquisition;
use crate::client::cache::hold::{Hold, Share};
use crate::client::cache::policy::Policy;
use crate::client::cache::queue::{Queue, Sender, Turn};
use crate::client::cache::{PlainBecause, Times, keeper, telemetry};
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::client::{WaitingIn, acquire};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{LockKey, Mode};
use crate::slot::Slot;

/// One for each lock that this client caches. Each handle looks it up once, when it is made.
pub(crate) struct Entry {
    pub(super) client: Arc<Client>,
    pub(super) lock: LockKey,
    /// The hold whose gate is open or about to open.
    current: RwLock<Option<Arc<Hold>>>,
    local: Mutex<Local>,
    /// Wakes the keeper.
    wake: Notify,
    /// The number of requests that are at the server by themselves.
    plain: AtomicUsize,
    /// The number of users' handles. Without any, an idle hold is released at once.
    handles: AtomicUsize,
}

/// Without its hold, which refers to the entry.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("lock", &self.lock).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Local {
    queue: Queue,
    policy: Policy,
    /// Whether the keeper runs.
    kept: bool,
    /// Closed holds that still have guards.
    draining: Vec<Arc<Hold>>,
    /// Set while the client subscribes in the lock's slot, so that a hold can be recalled.
    subscribed: Option<WaitingIn>,
}

/// What a request was granted.
#[derive(Debug)]
pub(crate) enum Granted {
    Local(Share),
    /// An acquisition of its own.
    Plain(Arc<Acquisition>),
}

/// The state of a lock in this client.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) readers: u64,
    pub(crate) writer: bool,
    pub(crate) waiting: usize,
    pub(crate) hold: Option<Mode>,
    pub(crate) plain_because: Option<PlainBecause>,
}

/// How a request begins.
pub(crate) enum Begun<'a> {
    Share(Share),
    Plain(PlainBecause),
    Waits(Place<'a>),
}

impl Entry {
    pub(crate) fn new(client: Arc<Client>, lock: LockKey) -> Entry {
        Entry {
            client,
            lock,
            current: RwLock::default(),
            local: Mutex::default(),
            wake: Notify::new(),
            plain: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
        }
    }

    // Handles.

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    pub(super) fn is_disowned(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
    }

    // What users see.

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn name(&self) -> &str {
        &self.lock.name
    }

    pub(crate) fn slot(&self) -> Slot {
        self.lock.slot
    }

    /// Adds the lock's name and slot to an error.
    pub(crate) fn about(&self, error: Error) -> Error {
        self.lock.with_lock(error)
    }

    pub(crate) fn status(&self) -> Status {
        let now = self.client.clock.now();
        let local = self.local();
        let hold = self.current();
        let look = hold.as_ref().map(|hold| hold.gate.look());
        let mode = look.map(|look| if look.may_write() { Mode::Write } else { Mode::Read });
        let is_plain = hold.is_none() && !local.kept;
        let plain_because = if is_plain { self.plain_because(&local, now) } else { None };
        Status {
            readers: look.map_or(0, |look| look.readers()),
            writer: look.is_some_and(|look| look.has_writer()),
            waiting: local.queue.len(),
            hold: mode,
            plain_because,
        }
    }

    // Requests.

    /// The fast path: a share of the hold, without a message, an allocation or a wait.
    pub(crate) fn enter(&self, mode: Mode, now: Moment) -> Option<Share> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref()?.enter(mode, now)
    }

    /// Acquires the lock by a request to the server.
    ///
    /// Cancel safe: dropping the future releases what it was granted.
    pub(crate) async fn take(&self, mode: Mode, until: Option<Moment>) -> Result<Granted> {
        let taken = self.take_plain(mode, WaitPolicy::Queue { until }).await?;
        let taken = taken.ok_or_else(|| Error::invalid("a queue does not refuse"))?;
        Ok(Granted::Plain(taken))
    }

    /// Acquires the lock if nobody is in the way, apart from clients that have it cached.
    pub(crate) async fn try_take(
        self: &Arc<Entry>,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Option<Granted>> {
        let timeout = timeout.unwrap_or(self.client.settings.call_timeout);
        let now = self.client.clock.now();
        let until = now.after(timeout);
        if let Some(share) = self.enter(mode, now) {
            return Ok(Some(Granted::Local(share)));
        }
        if self.excludes(mode) {
            return Ok(None);
        }
        telemetry::plain_try();
        let for_cached = self.client.settings.cache.try_wait;
        let taken = self.take_plain(mode, WaitPolicy::Try { until, for_cached }).await?;
        Ok(taken.map(Granted::Plain))
    }

    async fn take_plain(&self, mode: Mode, policy: WaitPolicy) -> Result<Option<Arc<Acquisition>>> {
        let _here = Plain::new(&self.plain);
        let options = LeaseOptions { renewal: Renewal::Automatic, ..self.options(false) };
        acquire::take(&self.client, &self.lock, mode, &options, policy).await
    }

    pub(super) fn options(&self, cached: bool) -> LeaseOptions {
        LeaseOptions {
            renewal: Renewal::Manual,
            replicas: self.client.settings.cache.replicas,
            cached,
            ..LeaseOptions::of(&self.client.settings)
        }
    }

    /// A plain lease that was acquired here was released.
    pub(crate) fn plain_released(&self) {
        let now = self.client.clock.now();
        self.local().policy.used_plainly(now);
    }

    /// Whether a local guard or request is in the way of a try. Readers never are in the way of a
    /// reader: the server may grant what a closed gate does not.
    fn excludes(&self, mode: Mode) -> bool {
        let excludes = |hold: &Arc<Hold>| match mode {
            Mode::Read => hold.gate.look().has_writer(),
            Mode::Write => !hold.gate.look().is_unused(),
        };
        let (local, current) = (self.local(), self.current());
        local.draining.iter().chain(&current).any(excludes) || local.queue.excludes(mode)
    }

    /// Begins a request that the fast path did not serve.
    pub(crate) fn begin(self: &Arc<Entry>, mode: Mode, now: Moment) -> Result<Begun<'_>> {
        let mut local = self.local();
        let head = local.queue.head();
        if head.is_none()
            && let Some(share) = self.enter(mode, now)
        {
            return Ok(Begun::Share(share));
        }
        if let Some(why) = self.refusal(&mut local, now) {
            return Ok(Begun::Plain(why));
        }
        let limit = self.client.settings.max_waiters;
        if local.queue.len() as u64 >= limit {
            let message = format!("{limit} wait here already, which is the limit");
            return Err(Error::new(ErrorKind::TooManyWaiters, message));
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = local.queue.push(mode, sender);
        // A request behind others is served when they are.
        if local.queue.head() != head {
            self.new_head(local, mode, now);
        }
        Ok(Begun::Waits(Place { entry: self, mode, ticket, turn: Some(receiver) }))
    }

    /// The queue has a new head, or one of another mode: the hold serves it, or the keeper is
    /// woken.
    fn new_head(self: &Arc<Entry>, mut local: MutexGuard<'_, Local>, mode: Mode, now: Moment) {
        let mut grants = Vec::new();
        let hold = self.current();
        if let Some(hold) = &hold {
            hold.gate.word.set_queued(true);
            self.advance(&mut local, hold, now, &mut grants);
        }
        let starts = !std::mem::replace(&mut local.kept, true);
        drop(local);
        grant(grants);
        if starts {
            keeper::start(self);
        } else if hold.is_none_or(|hold| !hold.goes_on_to_serve(mode, now)) {
            self.wake();
        }
    }

    /// Why a request must go to the server by itself, if it must. Subscribes for a lock that is
    /// worth caching.
    fn refusal(&self, local: &mut Local, now: Moment) -> Option<PlainBecause> {
        if local.kept {
            return local.policy.is_in_penalty(now).then_some(PlainBecause::CalledBack);
        }
        let why = self.plain_because(local, now);
        if why == Some(PlainBecause::Unsubscribed) && local.subscribed.is_none() {
            local.subscribed = Some(self.client.wait_in_slot(self.lock.slot));
            return self.plain_because(local, now);
        }
        why
    }

    /// Why no hold is acquired: the lock is not worth it, or could not be recalled.
    fn plain_because(&self, local: &Local, now: Moment) -> Option<PlainBecause> {
        let times = Times::of(self.options(true).lease);
        if local.policy.is_in_penalty(now) {
            Some(PlainBecause::CalledBack)
        } else if self.is_disowned() || !local.policy.caches(now, times.contact) {
            Some(PlainBecause::Unused)
        } else if !self.hears_recalls(local) {
            Some(PlainBecause::Unsubscribed)
        } else if !self.client.may_cache_more() {
            Some(PlainBecause::Limit)
        } else {
            None
        }
    }

    fn hears_recalls(&self, local: &Local) -> bool {
        local.subscribed.is_some() && self.client.router.joined_at(self.lock.slot).is_some()
    }

    // Turns.

    /// Grants to the requests whose turn it is.
    fn advance(
        &self,
        local: &mut Local,
        hold: &Arc<Hold>,
        now: Moment,
        grants: &mut Vec<(Sender, Share)>,
    ) {
        while let Some(mode) = local.queue.head() {
            let Some(share) = hold.enter_in_turn(mode, now) else {
                break;
            };
            match local.queue.pop(mode) {
                Some(sender) => grants.push((sender, share)),
                None => break,
            }
        }
        hold.gate.word.set_queued(!local.queue.is_empty());
    }

    /// Admits the requests whose turn it is.
    pub(super) fn go_on(&self, hold: &Arc<Hold>) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        self.advance(&mut self.local(), hold, now, &mut grants);
        grant(grants);
    }

    /// The last guard has left, and was to notify.
    pub(super) fn left(&self, hold: &Arc<Hold>, mode: Mode) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        let mut local = self.local();
        if mode == Mode::Write {
            local.queue.end_write();
        }
        let look = hold.gate.look();
        if look.is_open() {
            self.advance(&mut local, hold, now, &mut grants);
        }
        let goes_on = !grants.is_empty();
        drop(local);
        grant(grants);
        if !goes_on {
            hold.left.notify_one();
            self.wake();
        }
    }

    // For the keeper.

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The mode of the next local request. `None` ends the keeper. If the lock is no longer to be
    /// cached, all local requests continue by themselves.
    pub(super) fn wanted(&self) -> Option<Mode> {
        let now = self.client.clock.now();
        let mut local = self.local();
        let plain = if local.policy.is_in_penalty(now) {
            Some(PlainBecause::CalledBack)
        } else {
            (!self.hears_recalls(&local)).then_some(PlainBecause::Unsubscribed)
        };
        if plain.is_some() {
            let all = local.queue.take_all();
            local.kept = false;
            drop(local);
            turn_loose(all, plain);
            return None;
        }
        let head = local.queue.head();
        local.kept = head.is_some();
        if head.is_none() && self.is_disowned() {
            local.subscribed = None;
        }
        head
    }

    /// A recall may have been lost.
    pub(crate) fn look_for_recalls(&self) {
        if let Some(hold) = self.current() {
            hold.acquisition.look_for_recalls();
        }
    }

    pub(super) fn head(&self) -> Option<Mode> {
        self.local().queue.head()
    }

    /// The hold was acquired, and its gate is still closed: gives the head of the queue its share.
    /// False if the hold serves nobody.
    pub(super) fn begin_hold(&self, hold: &Arc<Hold>) -> bool {
        let mut local = self.local();
        let mode = match local.queue.head() {
            Some(Mode::Write) if !hold.gate.look().may_write() => Some(Mode::Read),
            head => head,
        };
        let Some((mode, sender)) =
            mode.and_then(|mode| local.queue.pop(mode).map(|sender| (mode, sender)))
        else {
            return false;
        };
        let share = hold.admit(mode);
        hold.gate.word.set_queued(!local.queue.is_empty());
        *self.place() = Some(hold.clone());
        drop(local);
        grant(vec![(sender, share)]);
        true
    }

    /// Stops new guards of this hold. True if it has no guards.
    pub(super) fn close(&self, hold: &Arc<Hold>) -> bool {
        let mut local = self.local();
        let mut current = self.place();
        if current.as_ref().is_some_and(|other| Arc::ptr_eq(other, hold)) {
            *current = None;
        }
        drop(current);
        let is_unused = hold.gate.word.close().is_unused();
        if !is_unused {
            local.draining.push(hold.clone());
        }
        is_unused
    }

    /// A closed hold has no guards left.
    pub(super) fn drained(&self, hold: &Arc<Hold>) {
        self.local().draining.retain(|other| !Arc::ptr_eq(other, hold));
    }

    pub(super) fn released(&self) {
        let now = self.client.clock.now();
        self.local().policy.released(now);
    }

    pub(super) fn called_back(&self, served: u32, took: Duration) {
        telemetry::given(&self.lock, true, took);
        let now = self.client.clock.now();
        let mut local = self.local();
        // Requests of this client that went to the server before there was a hold are served by the
        // next hold when they return.
        if self.plain.load(Ordering::Relaxed) > 0 {
            return;
        }
        let penalty = local.policy.called_back(served, took, now);
        drop(local);
        if let Some(time) = penalty {
            telemetry::penalty(&self.lock, served, time);
        }
    }

    /// Makes all local requests continue by themselves.
    pub(super) fn turn_loose(&self, kept: bool, why: Option<PlainBecause>) {
        let mut local = self.local();
        let all = local.queue.take_all();
        local.kept = kept;
        drop(local);
        turn_loose(all, why);
    }

    pub(super) fn current(&self) -> Option<Arc<Hold>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn place(&self) -> RwLockWriteGuard<'_, Option<Arc<Hold>>> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers the grants, with nothing locked. A request that is gone releases its share.
fn grant(grants: Vec<(Sender, Share)>) {
    for (sender, share) in grants {
        drop(sender.send(Turn::Share(share)));
    }
}

fn turn_loose(all: Vec<Sender>, why: Option<PlainBecause>) {
    for sender in all {
        drop(sender.send(Turn::Plain(why)));
    }
}

/// A request that is at the server by itself.
struct Plain<'a>(&'a AtomicUsize);

impl<'a> Plain<'a> {
    fn new(all: &'a AtomicUsize) -> Plain<'a> {
        all.fetch_add(1, Ordering::Relaxed);
        Plain(all)
    }
}

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in the local queue, which completes with its turn. Dropping it gives the place up.
pub(crate) struct Place<'a> {
    entry: &'a Entry,
    mode: Mode,
    ticket: u64,
    turn: Option<oneshot::Receiver<Turn>>,
}

impl Future for Place<'_> {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        let turn = match &mut self.turn {
            None => return Poll::Ready(Turn::Plain(None)),
            Some(turn) => ready!(Pin::new(turn).poll(context)),
        };
        self.turn = None;
        Poll::Ready(turn.unwrap_or(Turn::Plain(None)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let entry = self.entry;
        let sender = entry.local().queue.remove(self.mode, self.ticket);
        drop(sender);
        drop(turn); // and with it a share that was granted meanwhile
        if let Some(hold) = entry.current() {
            entry.go_on(&hold);
        }
        entry.wake();
    }
}
