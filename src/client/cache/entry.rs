//! One cached lock of this client: its hold, and the local requests for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::{Notify, oneshot};

use crate::client::Client;
use crate::client::acquisition::{Acquisition, out_of_time};
use crate::client::cache::hold::{Hold, Share};
use crate::client::cache::policy::Policy;
use crate::client::cache::queue::{Queue, Sender, Turn};
use crate::client::cache::{Times, keeper};
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::client::{WaitingIn, acquire};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{LockKey, Mode};
use crate::slot::Slot;

/// One for each lock that this client caches; it is found once, when a handle is made.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) client: Arc<Client>,
    pub(super) lock: LockKey,
    /// The hold whose gate is open, or opens soon.
    current: RwLock<Option<Arc<Hold>>>,
    local: Mutex<Local>,
    /// Wakes the keeper.
    wake: Notify,
    /// Handles of users. Without any, an idle hold is given back at once.
    handles: AtomicUsize,
}

#[derive(Debug, Default)]
struct Local {
    queue: Queue,
    policy: Policy,
    /// The keeper runs.
    kept: bool,
    /// Closed holds with guards.
    draining: usize,
    /// While the client subscribes in the lock's slot, so that a hold can be called back there.
    subscribed: Option<WaitingIn>,
}

/// What a request got.
#[derive(Debug)]
pub(crate) enum Granted {
    Local(Share),
    /// An acquisition of its own.
    Plain(Arc<Acquisition>),
}

/// How a lock stands in this client.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) readers: u64,
    pub(crate) writer: bool,
    pub(crate) waiting: usize,
    pub(crate) hold: Option<Mode>,
    pub(crate) plain_because: Option<&'static str>,
}

/// How a request begins.
enum Begun {
    Share(Share),
    Plain,
    Waits(u64, oneshot::Receiver<Turn>),
}

impl Entry {
    pub(crate) fn new(client: Arc<Client>, lock: LockKey) -> Entry {
        Entry {
            client,
            lock,
            current: RwLock::default(),
            local: Mutex::default(),
            wake: Notify::new(),
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

    /// What is said in an error about this lock.
    pub(crate) fn about(&self, error: Error) -> Error {
        self.lock.with_lock(error)
    }

    pub(crate) fn status(&self) -> Status {
        let now = self.client.clock.now();
        let local = self.local();
        let hold = self.current();
        let look = hold.as_ref().map(|hold| hold.look());
        let mode = look.map(|look| if look.may_write() { Mode::Write } else { Mode::Read });
        let plain_because = match (&hold, &local.subscribed) {
            (Some(_), _) => None,
            _ if local.policy.is_in_penalty(now) => Some("others called it back too soon"),
            (None, Some(_)) if self.client.router.joined_at(self.lock.slot).is_none() => {
                Some("there is no subscription by which it could be called back")
            }
            _ if !self.client.may_cache_more() => Some("as many locks are cached as may be"),
            _ => None,
        };
        Status {
            readers: look.map_or(0, |look| look.readers()),
            writer: look.is_some_and(|look| look.has_writer()),
            waiting: local.queue.len(),
            hold: mode,
            plain_because,
        }
    }

    // Requests.

    /// The fast way: out of the hold, without a message, an allocation or a wait.
    pub(crate) fn enter(&self, mode: Mode) -> Option<Share> {
        let hold = self.current()?;
        hold.enter(mode, self.client.clock.now())
    }

    /// Takes the lock, and waits for its turn: locally where a hold can serve it.
    ///
    /// Cancel safe: dropped at any point, its place is given up, or what it was granted is given
    /// back.
    pub(crate) async fn take(
        self: &Arc<Entry>,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Granted> {
        let until = timeout.map(|timeout| self.client.clock.now().after(timeout));
        match self.begin(mode)? {
            Begun::Share(share) => return Ok(Granted::Local(share)),
            Begun::Waits(ticket, turn) => {
                let mut place = Place { entry: self, mode, ticket, turn: Some(turn) };
                if let Turn::Share(share) = place.turn(until).await? {
                    return Ok(Granted::Local(share));
                }
            }
            Begun::Plain => {}
        }
        let taken = self.take_plain(mode, WaitPolicy::Queue { until }).await?;
        let taken = taken.ok_or_else(|| Error::invalid("a queue does not refuse"))?;
        Ok(Granted::Plain(taken))
    }

    /// Takes the lock if nobody is in the way but clients that have it cached.
    pub(crate) async fn try_take(
        self: &Arc<Entry>,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Option<Granted>> {
        let timeout = timeout.unwrap_or(self.client.settings.call_timeout);
        let until = self.client.clock.now().after(timeout);
        if let Some(share) = self.enter(mode) {
            return Ok(Some(Granted::Local(share)));
        }
        if self.is_in_use() {
            return Ok(None);
        }
        let for_cached = self.client.settings.cache.try_wait;
        let taken = self.take_plain(mode, WaitPolicy::Try { until, for_cached }).await?;
        Ok(taken.map(Granted::Plain))
    }

    async fn take_plain(&self, mode: Mode, policy: WaitPolicy) -> Result<Option<Arc<Acquisition>>> {
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

    /// A plain lease that was taken here is given back.
    pub(crate) fn plain_released(&self) {
        let now = self.client.clock.now();
        self.local().policy.released(now);
    }

    fn is_in_use(&self) -> bool {
        let used = self.current().is_some_and(|hold| !hold.look().is_unused());
        let local = self.local();
        used || local.draining > 0 || !local.queue.is_empty()
    }

    fn begin(self: &Arc<Entry>, mode: Mode) -> Result<Begun> {
        let now = self.client.clock.now();
        let mut grants = Vec::new();
        let mut local = self.local();
        let hold = self.current();
        if let Some(hold) = &hold
            && local.queue.is_empty()
            && let Some(share) = hold.enter(mode, now)
        {
            return Ok(Begun::Share(share));
        }
        if local.policy.is_in_penalty(now) || (!local.kept && !self.may_cache(&mut local, now)) {
            return Ok(Begun::Plain);
        }
        let limit = self.client.settings.max_waiters;
        if local.queue.len() as u64 >= limit {
            let message = format!("{limit} wait here already, which is the limit");
            return Err(Error::new(ErrorKind::TooManyWaiters, message));
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = local.queue.push(mode, sender);
        if let Some(hold) = &hold {
            hold.word.set_queued(true);
            self.advance(&mut local, hold, now, &mut grants);
        }
        let starts = !std::mem::replace(&mut local.kept, true);
        drop(local);
        grant(grants);
        if starts {
            tokio::spawn(keeper::keep(self.clone()));
        } else {
            self.wake();
        }
        Ok(Begun::Waits(ticket, receiver))
    }

    /// Whether a hold is worth acquiring, and can be called back.
    fn may_cache(&self, local: &mut Local, now: Moment) -> bool {
        let times = Times::of(self.options(true).lease);
        if self.is_disowned() || !local.policy.caches(now, times.contact) {
            return false;
        }
        let subscribed = &mut local.subscribed;
        subscribed.get_or_insert_with(|| self.client.wait_in_slot(self.lock.slot));
        self.client.router.joined_at(self.lock.slot).is_some() && self.client.may_cache_more()
    }

    // Turns.

    /// Grants those whose turn it is.
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
        hold.word.set_queued(!local.queue.is_empty());
    }

    /// Lets those in whose turn it is.
    pub(super) fn go_on(&self, hold: &Arc<Hold>) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        self.advance(&mut self.local(), hold, now, &mut grants);
        grant(grants);
    }

    /// The last guard has left, and somebody wants to know.
    pub(super) fn left(&self, hold: &Arc<Hold>, mode: Mode) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        let mut local = self.local();
        if mode == Mode::Write {
            local.queue.end_write();
        }
        let look = hold.look();
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

    /// The mode of the local request whose turn it is. `None` ends the keeper.
    pub(super) fn wanted(&self) -> Option<Mode> {
        let now = self.client.clock.now();
        let mut local = self.local();
        if local.policy.is_in_penalty(now) {
            let all = local.queue.take_all();
            local.kept = false;
            drop(local);
            turn_loose(all);
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
    pub(crate) fn look_for_recalls(&self, slot: Slot) {
        if let Some(hold) = self.current().filter(|_| self.lock.slot == slot) {
            hold.acquisition.look_for_recalls();
        }
    }

    pub(super) fn head(&self) -> Option<Mode> {
        self.local().queue.head()
    }

    /// The hold is there, its gate still closed: the head's share comes out of it. False if it
    /// serves nobody.
    pub(super) fn begin_hold(&self, hold: &Arc<Hold>) -> bool {
        let mut local = self.local();
        let mode = match local.queue.head() {
            Some(Mode::Write) if !hold.look().may_write() => Some(Mode::Read),
            head => head,
        };
        let Some((mode, sender)) =
            mode.and_then(|mode| local.queue.pop(mode).map(|sender| (mode, sender)))
        else {
            return false;
        };
        let share = hold.admit(mode);
        hold.word.set_queued(!local.queue.is_empty());
        *self.place() = Some(hold.clone());
        drop(local);
        grant(vec![(sender, share)]);
        true
    }

    /// No new guards by this hold. True if no guard is out.
    pub(super) fn close(&self, hold: &Arc<Hold>) -> bool {
        let mut local = self.local();
        let mut current = self.place();
        if current.as_ref().is_some_and(|other| Arc::ptr_eq(other, hold)) {
            *current = None;
        }
        drop(current);
        let is_unused = hold.word.close().is_unused();
        local.draining += usize::from(!is_unused);
        is_unused
    }

    /// A closed hold has no guards any more.
    pub(super) fn drained(&self) {
        self.local().draining -= 1;
    }

    pub(super) fn released(&self) {
        let now = self.client.clock.now();
        self.local().policy.released(now);
    }

    pub(super) fn called_back(&self, served: u32, took: Duration) {
        let now = self.client.clock.now();
        self.local().policy.called_back(served, took, now);
    }

    /// All local requests go on by themselves.
    pub(super) fn turn_loose(&self, kept: bool) {
        let mut local = self.local();
        let all = local.queue.take_all();
        local.kept = kept;
        drop(local);
        turn_loose(all);
    }

    fn current(&self) -> Option<Arc<Hold>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn place(&self) -> RwLockWriteGuard<'_, Option<Arc<Hold>>> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells them, with nothing locked. Who is gone gives its share back.
fn grant(grants: Vec<(Sender, Share)>) {
    for (sender, share) in grants {
        drop(sender.send(Turn::Share(share)));
    }
}

fn turn_loose(all: Vec<Sender>) {
    for sender in all {
        drop(sender.send(Turn::Plain));
    }
}

/// A place in the local queue; dropped, it is given up.
struct Place<'a> {
    entry: &'a Entry,
    mode: Mode,
    ticket: u64,
    turn: Option<oneshot::Receiver<Turn>>,
}

impl Place<'_> {
    async fn turn(&mut self, until: Option<Moment>) -> Result<Turn> {
        let Some(turn) = &mut self.turn else {
            return Ok(Turn::Plain);
        };
        let turn = match until {
            None => turn.await,
            Some(until) => match select(turn, self.entry.client.clock.sleep_until(until)).await {
                Either::Left((turn, _)) => turn,
                Either::Right(_) => return Err(out_of_time()),
            },
        };
        self.turn = None;
        Ok(turn.unwrap_or(Turn::Plain))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let entry = self.entry;
        entry.local().queue.remove(self.mode, self.ticket);
        drop(turn); // and with it a share that was granted meanwhile
        if let Some(hold) = entry.current() {
            entry.go_on(&hold);
        }
        entry.wake();
    }
}
