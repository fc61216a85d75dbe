//! What all locks of one client share: the router, the clock, the settings, and the registry of acquisitions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acquisition::{Acquisition, Holding, Leaving, State};
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{ClientId, LockKey, OwnerId, Scripts};
use crate::router::{Router, Slot};
use crate::settings::Settings;

/// How long a subscription is kept when nobody waits in its slot.
const IDLE_SUBSCRIPTION: Duration = Duration::from_secs(60);

/// How long after a lease or a place in the queue has surely ended a release is still tried.
const LEAVING_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) router: Arc<Router>,
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

#[derive(Debug, Default)]
struct Registry {
    acquisitions: HashMap<u64, Arc<Acquisition>>,
    /// When the worker must look at which acquisition. An entry that no longer applies is passed over.
    due: BTreeSet<(Moment, u64)>,
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
    count: usize,
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
        router: Arc<Router>,
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

    /// Registers a new owner, before anything is sent for it.
    pub(crate) fn register(&self, lock: &LockKey) -> Result<Arc<Acquisition>> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let acquisition = Arc::new(Acquisition::new(self.id.owner(count), count, lock.clone()));
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
        acquisition.changed.notify_waiters();
        let mut registry = self.registry();
        registry.acquisitions.remove(&acquisition.count);
        if registry.acquisitions.is_empty() && (registry.closed || registry.unowned) {
            drop(registry);
            self.drained.notify_waiters();
            self.wake.notify_one();
        }
    }

    /// Leaves the release of this owner to the worker. Works anywhere, and never waits.
    pub(crate) fn abandon(&self, acquisition: &Acquisition) {
        let now = self.clock.now();
        let pace = &self.settings.pace;
        {
            let mut state = acquisition.state();
            let (loose, over) = match &*state {
                State::Asking(asking) => (asking.loose, now.after(pace.liveness + self.settings.call_timeout)),
                State::Held(holding) => (holding.loose, holding.ends.after(holding.margin)),
                State::Leaving(_) | State::Ended => return,
            };
            let give_up = loose.map_or(over, |loose| over.max(loose)).after(LEAVING_GRACE);
            *state = State::Leaving(Leaving {
                loose,
                ghost_until: None,
                give_up,
                due: now,
            });
        }
        acquisition.changed.notify_waiters();
        self.schedule(acquisition, now);
    }

    /// Puts a lease into the worker's hands: its renewals and its end.
    pub(crate) fn hold(&self, acquisition: &Acquisition, holding: Holding) {
        let due = holding
            .renew_at
            .map_or(holding.ends, |renew_at| renew_at.min(holding.ends));
        *acquisition.state() = State::Held(holding);
        self.schedule(acquisition, due);
    }

    /// Has the worker look at this acquisition at `due`.
    pub(crate) fn schedule(&self, acquisition: &Acquisition, due: Moment) {
        let mut registry = self.registry();
        registry.due.insert((due, acquisition.count));
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

    #[cfg(feature = "embedded")]
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// Whom a push is for.
    pub(crate) fn find(&self, owner: &str) -> Option<Arc<Acquisition>> {
        let count = OwnerId::count_of(owner, &self.id)?;
        self.registry().acquisitions.get(&count).cloned()
    }

    /// Everyone of this client in a slot, in the order in which they came.
    pub(crate) fn in_slot(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        let mut all = self.all();
        all.retain(|one| one.lock.slot == slot);
        all
    }

    /// Every acquisition there is, in the same order.
    pub(crate) fn all(&self) -> Vec<Arc<Acquisition>> {
        let mut all: Vec<_> = self.registry().acquisitions.values().cloned().collect();
        all.sort_by_key(|acquisition| acquisition.count);
        all
    }

    /// Someone begins to wait in the slot: the client subscribes there. Ends when the result is dropped.
    pub(crate) fn wait_in(self: &Arc<Self>, slot: Slot) -> WaitingIn {
        let now = self.clock.now();
        let mut registry = self.registry();
        let waiting = registry.waiting.entry(slot).or_insert(Waiting {
            count: 0,
            idle_since: now,
        });
        waiting.count += 1;
        let first = waiting.count == 1;
        drop(registry);
        if first {
            self.router.subscriptions().want(slot, self.id.channel(slot));
        }
        WaitingIn {
            client: self.clone(),
            slot,
        }
    }

    /// Gives up subscriptions that nobody has waited for in a while.
    pub(crate) fn drop_idle_subscriptions(&self) {
        let now = self.clock.now();
        let mut idle = Vec::new();
        self.registry().waiting.retain(|slot, waiting| {
            let keep = waiting.count > 0 || now.since(waiting.idle_since) < IDLE_SUBSCRIPTION;
            if !keep {
                idle.push(*slot);
            }
            keep
        });
        for slot in idle {
            self.router.subscriptions().unwant(slot);
        }
    }

    /// Takes what is due by `horizon`.
    pub(crate) fn take_work(&self, horizon: Moment) -> Work {
        let mut registry = self.registry();
        let registry = &mut *registry;
        let mut due = Vec::new();
        while let Some((moment, count)) = registry.due.first().copied()
            && moment <= horizon
        {
            registry.due.pop_first();
            due.extend(registry.acquisitions.get(&count).cloned());
        }
        due.dedup_by_key(|acquisition| acquisition.count);
        let pumps = std::mem::take(&mut registry.pumps);
        let finished = registry.unowned && registry.acquisitions.is_empty() && pumps.is_empty();
        Work { due, pumps, finished }
    }

    /// When the worker must wake by itself; from here on earlier needs wake it.
    pub(crate) fn sleep_until(&self, at_most: Moment) -> Moment {
        let mut registry = self.registry();
        let until = registry
            .due
            .first()
            .map_or(at_most, |(moment, _)| (*moment).min(at_most));
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

/// Held by each one who waits in a slot.
#[derive(Debug)]
pub(crate) struct WaitingIn {
    client: Arc<Client>,
    slot: Slot,
}

impl Drop for WaitingIn {
    fn drop(&mut self) {
        let now = self.client.clock.now();
        if let Some(waiting) = self.client.registry().waiting.get_mut(&self.slot) {
            waiting.count -= 1;
            waiting.idle_since = now;
        }
    }
}
