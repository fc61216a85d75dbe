//! Tracks the locks on which users rely, and the stores that the locks protect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oracle::history::conflicts;
use rwlease::guard::LeaseWatcher;
use rwlease::{Lease, LeaseTransfer, LockMode, RedlockGuard};

use crate::census::Census;
use crate::history::Chronicle;
use crate::plan::Plan;
use crate::verdict::Court;

/// How long after a broken assumption a grant may still result from the state before it.
pub const AFTERMATH: Duration = Duration::from_secs(3);

/// The most by which a lease lasts longer by its server's clock than its holder relies on it.
const AT_MOST_OFF: Duration = Duration::from_millis(500);

/// How long after its last contact a client may grant a cached lock by itself.
const FRESH: Duration = Duration::from_secs(3);

/// Clones share the book.
#[derive(Clone, Debug)]
pub struct Book {
    pages: Arc<Mutex<Pages>>,
    court: Court,
    census: Census,
    /// Judges as if no assumption had been broken.
    is_strict: bool,
    /// The semaphore's limit, or the upper one of two.
    most_permits: u32,
}

#[derive(Debug, Default)]
struct Pages {
    beliefs: BTreeMap<u64, Belief>,
    /// Leases whose users have left. Clones of them may still say that they are held, until they
    /// are given back.
    observers: Vec<Belief>,
    next: u64,
    /// For each lock: until when no grant is trusted, and until when only grants that a replica has
    /// confirmed are.
    doubtful_until: BTreeMap<usize, Doubt>,
    /// The greatest token of a write in each store.
    stores: BTreeMap<usize, u64>,
    /// Locks whose tokens mean nothing because a clock was set back.
    spoilt: BTreeSet<usize>,
    /// The greatest token of each lock that a server has reported as minted.
    fences: BTreeMap<usize, u64>,
    /// When a server last reported that this client holds the lock.
    contacts: BTreeMap<(usize, String), Duration>,
    chronicle: Chronicle,
    /// Requests under way: their locks, and their start. Those of a crashed client stay.
    asking: BTreeMap<u64, (Vec<usize>, Duration)>,
    /// Acquisitions that their holders keep until their leases end.
    kept: BTreeSet<String>,
    /// Tickets of locks that were handed on and not yet taken up.
    tickets: Vec<(usize, LeaseTransfer)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    all: Duration,
    unreplicated: Duration,
}

/// A hold on which a user relies.
pub trait LeaseView: std::fmt::Debug + Send + 'static {
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    /// The acquisition of the lease, if it is one lease.
    fn id(&self) -> Option<String> {
        None
    }
    /// The mode that it shows, if it shows one.
    fn mode(&self) -> Option<LockMode> {
        None
    }
}

impl LeaseView for Lease {
    fn is_held(&self) -> bool {
        Lease::is_held(self)
    }

    fn remaining(&self) -> Duration {
        Lease::remaining(self)
    }

    fn id(&self) -> Option<String> {
        Some(Lease::id(self).to_string())
    }

    fn mode(&self) -> Option<LockMode> {
        Lease::mode(self)
    }
}

impl LeaseView for LeaseWatcher {
    fn is_held(&self) -> bool {
        LeaseWatcher::is_held(self)
    }

    fn remaining(&self) -> Duration {
        LeaseWatcher::remaining(self)
    }
}

impl LeaseView for Arc<RedlockGuard> {
    fn is_held(&self) -> bool {
        RedlockGuard::is_held(self)
    }

    fn remaining(&self) -> Duration {
        RedlockGuard::remaining(self)
    }
}

/// The lock that is held, its mode, and how it was granted.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub lock: usize,
    pub host: usize,
    pub mode: LockMode,
    pub token: u64,
    /// A replica has confirmed it, and confirms each renewal.
    pub is_replicated: bool,
    /// Users of the same host may share its token.
    pub is_shared: bool,
    /// It was taken up. It has the token of the lease that was handed on.
    pub is_handed: bool,
    /// The permits of the semaphore; 0 for a lock.
    pub permits: u32,
    /// When it was requested.
    pub since: Duration,
}

#[derive(Debug)]
struct Belief {
    claim: Claim,
    held: Box<dyn LeaseView>,
    /// It began while an assumption was broken. Only tokens protect from it.
    is_doubtful: bool,
    was_lost: bool,
    /// The lease was already lost when the guard arrived.
    is_late: bool,
    granted: Duration,
    /// When its user last relied on it.
    seen: Duration,
}

impl Book {
    pub fn new(court: Court, census: Census, plan: &Plan) -> Book {
        let (is_strict, pages) = (plan.is_strict, Pages::new(plan.is_peaceful()));
        let most_permits = plan.limits()[1];
        Book { pages: Arc::new(Mutex::new(pages)), court, census, is_strict, most_permits }
    }

    /// A user begins to rely on a lease. Returns the number for `leave`.
    pub fn enter(&self, claim: Claim, held: impl LeaseView) -> u64 {
        let now = self.court.now();
        let mut pages = self.pages.lock().unwrap();
        let doubt = pages.doubtful_until.get(&claim.lock).copied().unwrap_or_default();
        let is_doubtful = now < doubt.all || (now < doubt.unreplicated && !claim.is_replicated);
        pages.next += 1;
        let number = pages.next;
        let belief = Belief {
            claim,
            is_late: !held.is_held(),
            held: Box::new(held),
            is_doubtful,
            was_lost: false,
            granted: now,
            seen: now,
        };
        pages.beliefs.insert(number, belief);
        number
    }

    /// The holder keeps the acquisition until its lease ends.
    pub fn keep(&self, id: String) {
        self.pages.lock().unwrap().kept.insert(id);
    }

    pub fn is_kept(&self, id: &str) -> bool {
        self.pages.lock().unwrap().kept.contains(id)
    }

    /// Adds a ticket for any user to take up.
    pub fn post(&self, lock: usize, ticket: LeaseTransfer) {
        self.pages.lock().unwrap().tickets.push((lock, ticket));
    }

    /// Returns the oldest ticket, if there is one. With `leaves`, the ticket stays.
    pub fn ticket(&self, leaves: bool) -> Option<(usize, LeaseTransfer)> {
        let mut pages = self.pages.lock().unwrap();
        let first = pages.tickets.first().cloned();
        if first.is_some() && !leaves {
            drop(pages.tickets.remove(0));
        }
        first
    }

    /// The virtual time of the run.
    pub fn now(&self) -> Duration {
        self.court.now()
    }

    /// A request begins. Returns the number for `has_asked`.
    pub fn asks(&self, locks: &[usize]) -> u64 {
        let now = self.court.now();
        let mut pages = self.pages.lock().unwrap();
        pages.next += 1;
        let number = pages.next;
        pages.asking.insert(number, (locks.to_vec(), now));
        number
    }

    /// A request has ended.
    pub fn has_asked(&self, number: u64) {
        self.pages.lock().unwrap().asking.remove(&number);
    }

    /// A request failed, as far as its caller knows.
    pub fn attempted(&self, lock: usize, since: Duration) {
        let now = self.court.now();
        self.pages.lock().unwrap().chronicle.attempted(lock, since, now);
    }

    /// A try was refused. It `may_wait` for holders that only cache the lock.
    pub fn refused(&self, lock: usize, mode: LockMode, since: Duration, may_wait: bool) {
        let now = self.court.now();
        self.pages.lock().unwrap().chronicle.refused((lock, mode), since, now, may_wait);
    }

    /// The server has reported that this acquisition is released.
    pub fn given_back(&self, id: &str) {
        let now = self.court.now();
        self.pages.lock().unwrap().chronicle.given_back(id, now);
    }

    /// Judges the whole history at the end of a run.
    pub fn judge_history(&self) {
        let mut pages = self.pages.lock().unwrap();
        let pages = &mut *pages;
        let left = std::mem::take(&mut pages.beliefs);
        left.into_values().for_each(|belief| pages.record(&belief, self.is_strict));
        let now = self.court.now();
        for (locks, since) in std::mem::take(&mut pages.asking).into_values() {
            locks.into_iter().for_each(|lock| pages.chronicle.attempted(lock, since, now));
        }
        pages.chronicle.judge(&pages.spoilt, &self.court, &self.census);
    }

    /// A server has reported this token as the last one that it has minted for the lock.
    pub fn saw_fence(&self, lock: usize, fence: u64) {
        let mut pages = self.pages.lock().unwrap();
        let greatest = pages.fences.entry(lock).or_default();
        *greatest = fence.max(*greatest);
    }

    fn fence(&self, lock: usize) -> u64 {
        self.pages.lock().unwrap().fences.get(&lock).copied().unwrap_or(0)
    }

    /// Checks the token of a grant that the client has made by itself.
    pub fn check_token(&self, claim: &Claim) {
        let fence = self.fence(claim.lock);
        if claim.token > fence {
            self.court.accuse("no token is past the last one of its server", || {
                format!("{claim:?} after {fence}")
            });
        }
    }

    /// A server has confirmed to this client that it holds the lock.
    pub fn saw_contact(&self, lock: usize, client: &str) {
        let now = self.court.now();
        self.pages.lock().unwrap().contacts.insert((lock, client.to_owned()), now);
    }

    /// A client may grant a lock by itself only after a recent contact with the server.
    pub fn check_contact(&self, lock: usize, since: Duration, client: &str) {
        let now = self.court.now();
        let last = self.pages.lock().unwrap().contacts.get(&(lock, client.to_owned())).copied();
        if since == now && last.is_none_or(|last| now - last > FRESH) {
            self.court.accuse("no grant without contact", || {
                format!("lock {lock} by {client} after {last:?}")
            });
        }
    }

    /// Checks the term of a leader that a server has named.
    pub fn check_term(&self, lock: usize, term: u64) {
        let fence = self.fence(lock);
        if term > fence {
            self.court.accuse("no term is past the last one of its server", || {
                format!("lock {lock}: {term} after {fence}")
            });
        }
    }

    /// A guard has ended, and so must its watch.
    pub fn check_over(&self, watch: &LeaseWatcher) {
        if watch.is_held() {
            self.court.accuse("a watch is over when its guard is", || {
                format!("token {}", watch.fencing_token())
            });
        }
    }

    /// Whether a user of this host relies on the lock for writing.
    pub fn is_written(&self, lock: usize, host: usize) -> bool {
        let pages = self.pages.lock().unwrap();
        pages.beliefs.values().any(|Belief { claim, .. }| {
            (claim.lock, claim.host, claim.mode) == (lock, host, LockMode::Write)
        })
    }

    /// Whether a user of this host relies on the lock.
    pub fn is_used(&self, lock: usize, host: usize) -> bool {
        let pages = self.pages.lock().unwrap();
        pages.beliefs.values().any(|Belief { claim, .. }| (claim.lock, claim.host) == (lock, host))
    }

    /// A user now relies on `permits` of its permits only.
    pub fn release_permits(&self, number: u64, permits: u32) {
        if let Some(belief) = self.pages.lock().unwrap().beliefs.get_mut(&number) {
            belief.claim.permits = permits;
        }
    }

    /// A user no longer relies on a lease.
    pub fn leave(&self, number: u64) {
        let now = self.court.now();
        let mut pages = self.pages.lock().unwrap();
        if let Some(mut belief) = pages.beliefs.remove(&number) {
            if belief.held.is_held() && !belief.was_lost {
                belief.seen = now;
            }
            pages.record(&belief, self.is_strict);
            if belief.held.id().is_some() {
                pages.observers.push(belief);
            }
        }
    }

    /// The users of a host have ended.
    pub fn forget_host(&self, host: usize) {
        let mut pages = self.pages.lock().unwrap();
        let all = std::mem::take(&mut pages.beliefs);
        let (gone, kept) = all.into_iter().partition(|(_, belief)| belief.claim.host == host);
        pages.beliefs = kept;
        pages.observers.retain(|belief| belief.claim.host != host);
        let gone: BTreeMap<u64, Belief> = gone;
        gone.values().for_each(|belief| pages.record(belief, self.is_strict));
    }

    /// An assumption is broken for this lock. The present holds, and those granted until then, may
    /// overlap. With `spares`, those that a replica has confirmed may not.
    pub fn doubt(&self, lock: usize, until: Duration, spares: bool) {
        let mut pages = self.pages.lock().unwrap();
        let pages = &mut *pages;
        let doubt = pages.doubtful_until.entry(lock).or_default();
        let end = if spares { &mut doubt.unreplicated } else { &mut doubt.all };
        *end = until.max(*end);
        let doubted = |belief: &&mut Belief| {
            belief.claim.lock == lock && !(spares && belief.claim.is_replicated)
        };
        let beliefs = pages.beliefs.values_mut().chain(&mut pages.observers).filter(doubted);
        beliefs.for_each(|belief| belief.is_doubtful = true);
    }

    /// A replica that has confirmed leases serves this lock from now on. It must have them for as
    /// long as their holders rely on them. `leases` are the remaining times of its leases.
    pub fn judge_confirmed(&self, lock: usize, leases: &BTreeMap<String, Duration>) {
        let pages = self.pages.lock().unwrap();
        let confirmed = pages.beliefs.values().filter(|belief| {
            let Claim { lock: of, is_replicated, .. } = belief.claim;
            of == lock && is_replicated && !belief.is_doubtful && belief.held.is_held()
        });
        for belief in confirmed {
            self.census.count("a confirmed lease stood when others were lost");
            let there = belief.held.id().and_then(|id| leases.get(&id));
            if there.is_none_or(|lasts| *lasts < belief.held.remaining()) {
                self.court.accuse("what a replica confirmed is not gone", || {
                    format!("{}, of which it has {there:?}", belief.tell())
                });
            }
        }
    }

    /// The tokens of this lock no longer protect its store.
    pub fn spoil(&self, lock: usize) {
        self.pages.lock().unwrap().spoilt.insert(lock);
    }

    /// Checks that users rely on at most one writer, and on no reader beside it. A user that has
    /// lost a lease must never rely on it again. A lease that is given back counts until its clones
    /// say that it has ended.
    pub fn judge(&self) {
        let now = self.court.now();
        let mut pages = self.pages.lock().unwrap();
        for belief in pages.beliefs.values_mut() {
            let is_held = belief.held.is_held();
            if is_held && belief.was_lost {
                self.court.accuse("what is lost stays lost", || belief.tell());
            }
            belief.was_lost = !is_held;
            if is_held {
                belief.seen = now;
            }
        }
        let Pages { beliefs, observers, .. } = &mut *pages;
        let users: BTreeSet<_> = beliefs.values().filter_map(|belief| belief.held.id()).collect();
        observers.retain(|gone| {
            gone.held.is_held() && gone.held.id().is_some_and(|id| !users.contains(&id))
        });
        let held = beliefs
            .values()
            .chain(observers.iter())
            .filter(|belief| (self.is_strict || !belief.is_doubtful) && belief.held.is_held());
        let held: Vec<&Belief> = held.collect();
        let numbered = held.iter().enumerate();
        let relied: Vec<oracle::history::Belief> = numbered
            .map(|(id, belief)| oracle::history::Belief {
                id,
                lock: belief.claim.lock,
                writes: belief.mode() == LockMode::Write,
                permits: belief.claim.permits.into(),
            })
            .collect();
        for (rule, guilty) in conflicts(&relied, self.most_permits.into()) {
            self.court.accuse(rule, || guilty.iter().map(|id| held[*id].tell() + "; ").collect());
        }
    }

    /// Writes to the store that a lock protects, as a holder.
    pub fn write(&self, number: u64) {
        let mut pages = self.pages.lock().unwrap();
        let pages = &mut *pages;
        let Some(belief) = pages.beliefs.get(&number) else {
            return;
        };
        let greatest = pages.stores.entry(belief.claim.lock).or_default();
        if belief.claim.token < *greatest {
            self.census.count("the store refused a stale token");
            // While a holder holds, the store must not have a greater token.
            if belief.held.is_held()
                && !pages.spoilt.contains(&belief.claim.lock)
                && (self.is_strict || !belief.is_doubtful)
            {
                self.court.accuse("a holder's token is not stale", || {
                    format!("{} after {greatest}", belief.tell())
                });
            }
        } else {
            *greatest = belief.claim.token;
        }
    }
}

impl Pages {
    fn new(is_peaceful: bool) -> Pages {
        Pages { chronicle: Chronicle::new(is_peaceful), ..Pages::default() }
    }

    fn record(&mut self, belief: &Belief, is_strict: bool) {
        let Belief { claim, granted, seen, .. } = belief;
        let id = belief.held.id();
        let is_kept = id.as_ref().is_some_and(|id| self.kept.contains(id));
        let stays = if is_kept { belief.held.remaining() + AT_MOST_OFF } else { Duration::ZERO };
        // A doubtful hold counts as an attempt, because only its token protects from it. So does
        // one that was taken up, because it has the token of another lease.
        if belief.is_late || claim.is_handed || (belief.is_doubtful && !is_strict) {
            self.chronicle.attempted(claim.lock, claim.since, *seen + stays);
        } else {
            self.chronicle.held(id, claim, (*granted, *seen), stays);
        }
    }
}

impl Belief {
    /// A downgrade makes a write a read as soon as the lease says so.
    fn mode(&self) -> LockMode {
        match self.held.mode() {
            Some(LockMode::Read) => LockMode::Read,
            _ => self.claim.mode,
        }
    }

    fn tell(&self) -> String {
        let Claim { lock, host, mode, token, permits, .. } = self.claim;
        let permits = if permits > 0 { format!("{permits} permits, ") } else { String::new() };
        format!(
            "host {host} ({mode:?}, {permits}token {token}, {:?} left) of lock {lock}",
            self.held.remaining()
        )
    }
}
