//! What all locks of one client share: the router, the clock, the settings, and the registry of acquisitions.

pub(crate) mod acquire;
pub(crate) mod acquisition;
pub(crate) mod deadline;
pub(crate) mod in_doubt;
pub(crate) mod lost;
pub(crate) mod polling;
pub(crate) mod request;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod telemetry;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::acquisition::{Acquisition, Errand, ErrandKind, Holding, Leaving, State};
use crate::client::schedule::Agenda;
use crate::client::settings::Settings;
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Reply;
use crate::protocol::{ClientId, LockKey, Mode, OwnerId, Scripts};
use crate::router::{Call, Route};
use crate::slot::Slot;

/// How long a subscription is kept when nobody waits in its slot.
const IDLE_SUBSCRIPTION: Duration = Duration::from_secs(60);

/// How long after a lease or a place in the queue has surely ended a release is still tried.
pub(crate) const LEAVING_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) router: Route,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) scripts: &'static Scripts,
    id: ClientId,
    next: AtomicU64,
    registry: Mutex<Registry>,
    /// Wakes the worker.
    pub(crate) wake: Notify,
    /// Told when the last acquisition is over.
    pub(crate) drained: Notify,
}

/// What a user holds of a client. When the last one is gone, the worker ends as soon as nothing is left to do.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Client>);

#[derive(Debug, Default)]
struct Registry {
    acquisitions: HashMap<u64, Arc<Acquisition>>,
    /// When the worker must look at which acquisition.
    agenda: Agenda,
    pumps: Vec<LockKey>,
    waiting: BTreeMap<Slot, Waiting>,
    /// The moment that the worker sleeps until.
    sleeps_until: Option<Moment>,
    closed: bool,
    /// The last handle is gone: the worker ends when all is done.
    unowned: bool,
}

/// The waiters of this client in one slot.
#[derive(Debug)]
struct Waiting {
    /// The numbers of their owners.
    waiters: BTreeSet<u64>,
    idle_since: Moment,
}

/// What the worker has to do now.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) due: Vec<Arc<Acquisition>>,
    pub(crate) pumps: Vec<LockKey>,
    pub(crate) finished: bool,
}

impl Client {
    pub(crate) fn new(
        router: Route,
        clock: Arc<dyn Clock>,
        settings: Settings,
        scripts: &'static Scripts,
        id: ClientId,
    ) -> Self {
        Client {
            router,
            clock,
            settings,
            scripts,
            id,
            next: AtomicU64::new(0),
            registry: Mutex::default(),
            wake: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// A new owner that is not registered: of a lock that this client does not look after.
    #[cfg(feature = "legacy")]
    pub(crate) fn stranger(&self) -> OwnerId {
        self.id.owner(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Registers a new owner, before anything is sent for it.
    pub(crate) fn register(&self, lock: &LockKey, lease: Duration) -> Result<Arc<Acquisition>> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let acquisition = Arc::new(Acquisition::new(self.id.owner(count), count, lock.clone(), lease));
        let mut registry = self.registry();
        if registry.closed {
            return Err(lock.blame(Error::new(ErrorKind::Cancelled, "the client is shut down")));
        }
        registry.acquisitions.insert(count, acquisition.clone());
        Ok(acquisition)
    }

    /// Nothing more can come of this owner.
    pub(crate) fn forget(&self, acquisition: &Acquisition) {
        *acquisition.state() = State::Ended;
        acquisition.tell_end();
        let mut registry = self.registry();
        registry.acquisitions.remove(&acquisition.count);
        registry.agenda.forget(acquisition.count);
        if registry.acquisitions.is_empty() && (registry.closed || registry.unowned) {
            drop(registry);
            self.drained.notify_waiters();
            self.wake.notify_one();
        }
    }

    /// Leaves the release of this owner to the worker. Works anywhere, and never waits.
    pub(crate) fn abandon(&self, acquisition: &Acquisition) {
        let now = self.clock.now();
        crate::client::worker::notice_loss(self, acquisition, now);
        let pace = &self.settings.pace;
        {
            let mut state = acquisition.state();
            let (loose, over) = match &*state {
                State::Asking(asking) => (asking.loose, now.after(pace.liveness + self.settings.call_timeout)),
                State::Held(holding) => {
                    holding.end("dropped", now);
                    (holding.loose(), acquisition.over(holding, now))
                }
                State::Leaving(_) | State::Ended => return,
            };
            let over = loose.map_or(over, |loose| over.max(acquisition.ghost_ends(loose)));
            let give_up = over.after(LEAVING_GRACE);
            *state = State::Leaving(Leaving {
                loose,
                ghost_until: None,
                give_up,
                due: now,
                sent: false,
                failures: 0,
            });
        }
        acquisition.tell_end();
        self.schedule(acquisition, now);
    }

    /// Puts a lease into the worker's hands: its renewals and its end. False if it was given up meanwhile.
    pub(crate) fn hold(&self, acquisition: &Acquisition, holding: Holding) -> bool {
        let due = holding.next_due();
        match &mut *acquisition.state() {
            state @ State::Asking(_) => *state = State::Held(holding),
            _ => return false,
        }
        self.schedule(acquisition, due);
        true
    }

    /// Has the worker turn a write into a read; whoever waits for that listens to `changed`.
    pub(crate) fn downgrade(&self, acquisition: &Acquisition) {
        let now = self.clock.now();
        acquisition.with_holding(|holding| {
            if holding.mode == Mode::Write && holding.errand.is_none() && !holding.lost {
                holding.errand = Some(Errand::new(ErrandKind::Downgrade, now, None));
            }
        });
        self.schedule(acquisition, now);
    }

    /// Leaves the end of a wait for an upgrade to the worker. The read stays.
    pub(crate) fn end_wait(&self, acquisition: &Acquisition) {
        let now = self.clock.now();
        acquisition.with_holding(|holding| {
            if let Some(asking) = holding.upgrade.take() {
                holding.errand = Some(Errand::new(ErrandKind::EndWait, now, asking.loose));
            }
        });
        self.schedule(acquisition, now);
    }

    /// Has the worker look at this acquisition at `due`, or before.
    pub(crate) fn schedule(&self, acquisition: &Acquisition, due: Moment) {
        let mut registry = self.registry();
        if !registry.acquisitions.contains_key(&acquisition.count) {
            return;
        }
        registry.agenda.note(acquisition.count, due);
        let sleeps_past = registry.sleeps_until.is_none_or(|until| due < until);
        drop(registry);
        if sleeps_past {
            self.wake.notify_one();
        }
    }

    /// Has the worker go on with what a call left over.
    pub(crate) fn pump(&self, lock: &LockKey) {
        let mut registry = self.registry();
        if !registry.pumps.iter().any(|other| other.key == lock.key) {
            registry.pumps.push(lock.clone());
        }
        drop(registry);
        self.wake.notify_one();
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// Whom a push is for.
    pub(crate) fn find(&self, owner: &str) -> Option<Arc<Acquisition>> {
        let count = OwnerId::count_of(owner, &self.id)?;
        self.registry().acquisitions.get(&count).cloned()
    }

    /// Everyone of this client who waits in a slot, in the order in which they came.
    pub(crate) fn waiters_in(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        let registry = self.registry();
        let waiting = registry.waiting.get(&slot).into_iter();
        waiting
            .flat_map(|waiting| &waiting.waiters)
            .filter_map(|count| registry.acquisitions.get(count).cloned())
            .collect()
    }

    /// Every acquisition there is, in the same order.
    pub(crate) fn all(&self) -> Vec<Arc<Acquisition>> {
        let mut all: Vec<_> = self.registry().acquisitions.values().cloned().collect();
        all.sort_by_key(|acquisition| acquisition.count);
        all
    }

    /// Someone begins to wait: the client subscribes in the lock's slot. Ends when the result is dropped.
    pub(crate) fn wait_in(self: &Arc<Self>, acquisition: &Acquisition) -> WaitingIn {
        let now = self.clock.now();
        let slot = acquisition.lock.slot;
        let mut registry = self.registry();
        let waiting = registry.waiting.entry(slot).or_insert_with(|| Waiting {
            waiters: BTreeSet::new(),
            idle_since: now,
        });
        waiting.waiters.insert(acquisition.count);
        if waiting.waiters.len() == 1 {
            // Before anybody else can find the slot idle, so that the two wishes come in the right order.
            self.router.want(slot, self.id.channel(slot));
        }
        drop(registry);
        WaitingIn {
            client: self.clone(),
            slot,
            count: acquisition.count,
        }
    }

    /// Gives up subscriptions that nobody has waited for in a while.
    pub(crate) fn drop_idle_subscriptions(&self) {
        let now = self.clock.now();
        self.registry().waiting.retain(|slot, waiting| {
            let keep = !waiting.waiters.is_empty() || now.since(waiting.idle_since) < IDLE_SUBSCRIPTION;
            if !keep {
                self.router.unwant(*slot);
            }
            keep
        });
    }

    /// Takes what is due by `horizon`.
    pub(crate) fn take_work(&self, horizon: Moment) -> Work {
        let mut registry = self.registry();
        let registry = &mut *registry;
        let mut due = Vec::new();
        while let Some(count) = registry.agenda.take(horizon) {
            due.extend(registry.acquisitions.get(&count).cloned());
        }
        let pumps = std::mem::take(&mut registry.pumps);
        let finished = registry.unowned && registry.acquisitions.is_empty() && pumps.is_empty();
        Work { due, pumps, finished }
    }

    /// Asks a question about a lock: a call that changes nothing.
    pub(crate) async fn ask(&self, lock: &LockKey, question: &Call) -> Result<Reply> {
        let until = self.clock.now().after(self.settings.call_timeout);
        let answer = self.router.call(question, until).await;
        answer.map(|answer| answer.reply).map_err(|error| lock.blame(error))
    }

    /// When the worker must wake by itself; from here on earlier needs wake it.
    pub(crate) fn sleep_until(&self, at_most: Moment) -> Moment {
        let mut registry = self.registry();
        let until = registry.agenda.first().map_or(at_most, |due| due.min(at_most));
        registry.sleeps_until = Some(until);
        until
    }

    /// No more locks are taken.
    pub(crate) fn close(&self) {
        self.registry().closed = true;
    }

    /// The last handle of the client is gone.
    pub(crate) fn disown(&self) {
        self.registry().unowned = true;
        self.wake.notify_one();
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.registry().acquisitions.is_empty()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Handle {
    type Target = Arc<Client>;

    fn deref(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.disown();
    }
}

/// Held by each one who waits in a slot.
#[derive(Debug)]
pub(crate) struct WaitingIn {
    client: Arc<Client>,
    slot: Slot,
    count: u64,
}

impl Drop for WaitingIn {
    fn drop(&mut self) {
        let now = self.client.clock.now();
        if let Some(waiting) = self.client.registry().waiting.get_mut(&self.slot) {
            waiting.waiters.remove(&self.count);
            waiting.idle_since = now;
        }
    }
}
