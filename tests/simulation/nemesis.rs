//! Faults of servers and clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use oracle::LockHash;
use rwlease::Slot;
use rwlease::embedded::{EmbeddedCluster, FaultInjector};

use crate::census::Census;
use crate::checker::Checker;
use crate::clients::Clients;
use crate::foreign_servers::Strangers;
use crate::ledger::{AFTERMATH, Book};
use crate::plan::{Fault, Plan};
use crate::users::key;
use crate::verdict::Court;

/// How long a client may rely on its bounds of a clock that was set.
const OLD_BOUNDS: Duration = Duration::from_secs(13);

/// By how much a key may expire too early: its grace of 10 s, minus small skews.
const GRACE_MS: i64 = 9_000;

const MASTERS: usize = 3;
pub const SERVERS: usize = 2 * MASTERS;

pub struct Nemesis {
    plan: Plan,
    rng: Rng,
    engine: EmbeddedCluster,
    faults: FaultInjector,
    book: Book,
    checker: Checker,
    court: Court,
    census: Census,
    /// The current masters.
    masters: [usize; MASTERS],
    offsets: [i64; SERVERS],
    strangers: Strangers,
    /// When the last stranger leaves.
    strange_until: Duration,
    /// Masters with a fault under way.
    busy: BTreeSet<usize>,
    moving: BTreeMap<usize, (Slot, usize, usize)>,
    later: BTreeMap<(Duration, u64), Repair>,
    repairs: u64,
}

/// The end of a fault, or its next step.
#[derive(Clone, Copy, Debug)]
enum Repair {
    Resume(usize),
    Thaw(usize),
    Start(usize),
    Promote {
        master: usize,
        lose: usize,
        died: bool,
    },
    /// A lagging replica receives the missed writes, and continues to lag.
    Refresh(usize),
    CatchUp(usize),
    /// A master dies, and then its lagging replica replaces it.
    Die(usize),
    PromoteLagging(usize),
    Rejoin {
        old: usize,
        master: usize,
    },
    Memory(usize),
    ClusterUp(usize),
    /// A server gets its address back.
    Return(usize),
    MoveKey(usize),
    FinishMove(usize),
    Replace,
}

impl Nemesis {
    pub fn new(
        plan: &Plan,
        engine: &EmbeddedCluster,
        strangers: Strangers,
        book: Book,
        checker: Checker,
        court: Court,
        census: Census,
    ) -> Nemesis {
        let mut rng = Rng::with_seed(plan.seed ^ 0x0e3e_5150);
        let mut offsets = [0; SERVERS];
        for (server, offset) in offsets.iter_mut().enumerate() {
            *offset = rng.i64(-plan.skew_ms()..=plan.skew_ms());
            engine.faults().set_clock(server, *offset);
        }
        census.count_if(Fault::Skew.name(), plan.has(Fault::Skew));
        Nemesis {
            plan: plan.clone(),
            rng,
            faults: engine.faults(),
            engine: engine.clone(),
            book,
            checker,
            court,
            census,
            strangers,
            strange_until: Duration::ZERO,
            masters: [0, 1, 2],
            offsets,
            busy: BTreeSet::new(),
            moving: BTreeMap::new(),
            later: BTreeMap::new(),
            repairs: 0,
        }
    }

    /// When the next repair is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    /// Does the repairs that are due.
    pub fn repair(&mut self, now: Duration, clients: &mut Clients) {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let repair = entry.remove();
            self.mend(repair, now, clients);
        }
    }

    /// Ends all faults now.
    pub fn repair_all(&mut self, now: Duration, clients: &mut Clients) {
        self.strange_until = now;
        while let Some((_, repair)) = self.later.pop_first() {
            let repair = match repair {
                // So soon after the death, the replica's clock may be behind its tokens. So the
                // master itself returns.
                Repair::Promote { master, died: true, .. } | Repair::PromoteLagging(master) => {
                    Repair::Start(master)
                }
                Repair::Die(master) => Repair::CatchUp(master),
                Repair::Refresh(_) => continue,
                repair => repair,
            };
            self.mend(repair, now, clients);
        }
    }

    /// Causes one fault of the plan.
    pub fn strike(&mut self, now: Duration, clients: &mut Clients) {
        let kinds: Vec<Fault> =
            self.plan.faults.iter().copied().filter(|fault| self.is_mine(*fault)).collect();
        if kinds.is_empty() {
            return;
        }
        let is_usual = self.plan.is_about_replicas && self.plan.has(Fault::LaggingFailover);
        let fault = match is_usual && self.rng.bool() {
            true => Fault::LaggingFailover,
            false => kinds[self.rng.usize(0..kinds.len())],
        };
        if self.cause(fault, now, clients) {
            // Whether a failover loses writes is known only when the replica replaces the master.
            if !matches!(fault, Fault::LossyFailover | Fault::LaggingFailover) {
                self.census.count(fault.name());
            }
            self.court.note(fault, || format!("FAULT {}", fault.name()));
        }
    }

    fn is_mine(&self, fault: Fault) -> bool {
        use Fault::*;
        !matches!(fault, LoseRequest | LoseReply | Delay | Double | LosePush | Cancel | Drop | Skew)
    }

    fn cause(&mut self, fault: Fault, now: Duration, clients: &mut Clients) -> bool {
        let server = self.any_server();
        match fault {
            Fault::Cut => {
                let delivers = self.rng.bool();
                let heard = self.rng.bool().then(|| self.ms(0..500));
                clients.pick(&mut self.rng).is_some_and(|host| {
                    host.cut_connections(server, delivers, heard);
                    true
                })
            }
            Fault::Pause => {
                let Some(host) = clients.pick(&mut self.rng) else {
                    return false;
                };
                host.pause();
                let (number, pause) = (host.number(), self.ms(5..4_000));
                self.then(now + pause, Repair::Resume(number));
                true
            }
            Fault::Crash => {
                let Some(number) = clients.pick(&mut self.rng).map(|host| host.number()) else {
                    return false;
                };
                let cleanly = self.rng.bool();
                clients.crash(number, cleanly);
                let pause = self.ms(100..3_000);
                self.then(now + pause, Repair::Replace);
                true
            }
            Fault::KillConnections => {
                self.faults.kill_connections(server);
                true
            }
            Fault::FlushScripts => {
                self.faults.flush_scripts(server);
                true
            }
            Fault::FullMemory => {
                self.faults.set_out_of_memory(server, true);
                self.checker.set_full_memory(server, true);
                let pause = self.ms(20..2_000);
                self.then(now + pause, Repair::Memory(server));
                true
            }
            Fault::ClusterDown => {
                self.faults.set_cluster_down(server, true);
                let pause = self.ms(20..1_500);
                self.then(now + pause, Repair::ClusterUp(server));
                true
            }
            Fault::Move => self.begin_move(now),
            Fault::ClockStep => {
                let step = [100, 2_000, 60_000][self.rng.usize(0..3)];
                let step = self.rng.i64(-step..=step);
                self.step_clock(server, step, now);
                true
            }
            Fault::Freeze => self.with_master(|this, master| {
                this.faults.pause(master);
                let pause = this.ms(20..3_000);
                this.then(now + pause, Repair::Thaw(master));
            }),
            Fault::Restart => self.with_master(|this, master| {
                this.faults.stop(master);
                let pause = this.ms(20..2_000);
                this.then(now + pause, Repair::Start(master));
            }),
            // A client that knows no server yet could not tell a stranger from a server.
            Fault::Stranger => {
                clients.are_connected()
                    && self.with_master(|this, master| {
                        this.faults.stop(master);
                        this.strangers.come(master, this.rng.bool());
                        let until = now + this.ms(100..4_000);
                        this.strange_until = until.max(this.strange_until);
                        this.then(until, Repair::Return(master));
                    })
            }
            Fault::Failover => self.with_master(|this, master| {
                this.promote(master, 0, now);
                this.busy.remove(&master);
            }),
            Fault::LossyFailover => self.with_master(|this, master| {
                this.faults.stop(master);
                let (pause, lose) = (this.ms(1_000..3_000), this.rng.usize(1..40));
                this.then(now + pause, Repair::Promote { master, lose, died: true });
            }),
            Fault::TwoMasters => self.with_master(|this, master| {
                this.faults.isolate(master);
                let pause = this.ms(0..500);
                // What the replica loses are the writes from now on, however many they are.
                this.then(now + pause, Repair::Promote { master, lose: 1, died: false });
            }),
            Fault::Lag => self.with_master_of_a_lock(|this, master| {
                this.set_lagging(master, true);
                let (refresh, pause) = (this.ms(10..1_000), this.ms(50..2_500));
                if refresh < pause {
                    this.then(now + refresh, Repair::Refresh(master));
                }
                this.then(now + pause, Repair::CatchUp(master));
            }),
            Fault::LaggingFailover => self.with_master_of_a_lock(|this, master| {
                this.set_lagging(master, true);
                let longest = [200, 800, 2_500][this.rng.usize(0..3)];
                let pause = this.ms(20..longest);
                this.then(now + pause, Repair::Die(master));
            }),
            _ => false,
        }
    }

    /// Makes a master's replica lag, or catch up.
    fn set_lagging(&self, master: usize, lags: bool) {
        for replica in self.faults.replicas(master) {
            match lags {
                true => self.faults.lag_replica(replica),
                false => self.faults.sync_replica(replica),
            }
        }
        self.checker.set_lagging(master, lags);
    }

    fn mend(&mut self, repair: Repair, now: Duration, clients: &mut Clients) {
        self.court.note("repair", || format!("REPAIR {repair:?}"));
        match repair {
            Repair::Resume(number) => clients.resume(number),
            Repair::Replace if now < self.strange_until => self.then(self.strange_until, repair),
            Repair::Replace => clients.add(),
            Repair::Return(server) => {
                self.strangers.go(server);
                self.mend(Repair::Start(server), now, clients);
            }
            Repair::Thaw(server) => {
                self.faults.resume(server);
                self.busy.remove(&server);
            }
            Repair::Start(server) => {
                self.set_lagging(server, false);
                self.faults.start(server);
                self.busy.remove(&server);
            }
            Repair::Memory(server) => {
                self.faults.set_out_of_memory(server, false);
                self.checker.set_full_memory(server, false);
            }
            Repair::ClusterUp(server) => self.faults.set_cluster_down(server, false),
            Repair::MoveKey(slot) => self.move_key(slot, now),
            Repair::FinishMove(slot) => self.finish_move(slot, now),
            Repair::Refresh(master) => {
                self.set_lagging(master, false);
                self.set_lagging(master, true);
            }
            Repair::CatchUp(master) => {
                self.set_lagging(master, false);
                self.busy.remove(&master);
            }
            Repair::Die(master) => {
                self.faults.stop(master);
                // The pause lets the replica's clock pass the last token. It often ends before the
                // leases do.
                let longest = [300, 600, 2_000][self.rng.usize(0..3)];
                let pause = self.ms(250..longest);
                self.then(now + pause, Repair::PromoteLagging(master));
            }
            Repair::PromoteLagging(master) => {
                self.replace_the_dead(master, 1, now, Fault::LaggingFailover);
                self.checker.set_lagging(master, false);
            }
            Repair::Promote { master, lose, died: true } => {
                self.replace_the_dead(master, lose, now, Fault::LossyFailover)
            }
            Repair::Promote { master, lose, died: false } => {
                let locks = self.locks_of(master);
                if let Some(new) = self.promote(master, lose, now) {
                    self.judge_confirmed(&locks, new);
                    let pause = self.ms(100..2_500);
                    for lock in locks {
                        self.checker.split(lock, true);
                        self.checker.expect_in_doubt(lock);
                        self.book.doubt(lock, now + pause + AFTERMATH, !self.plan.is_out_of_time());
                    }
                    self.busy.insert(new);
                    self.then(now + pause, Repair::Rejoin { old: master, master: new });
                } else {
                    self.faults.rejoin(master);
                    self.busy.remove(&master);
                }
            }
            Repair::Rejoin { old, master } => {
                self.faults.rejoin(old);
                self.busy.remove(&old);
                self.busy.remove(&master);
                for lock in self.locks_of(master) {
                    self.book.doubt(lock, now + AFTERMATH, !self.plan.is_out_of_time());
                    self.checker.forget(lock);
                    self.checker.split(lock, false);
                    self.checker.forgive(lock);
                    if self.plan.is_out_of_time() {
                        self.book.spoil(lock);
                    }
                }
            }
        }
    }

    /// Promotes the replica of a dead master, and restarts that master as a replica.
    fn replace_the_dead(&mut self, master: usize, lose: usize, now: Duration, fault: Fault) {
        let locks = self.locks_of(master);
        let before = self.contents(&locks, master);
        let new = self.promote(master, lose, now);
        let after = new.and_then(|new| self.contents(&locks, new));
        if let Some(new) = new.filter(|_| fault == Fault::LaggingFailover) {
            self.judge_confirmed(&locks, new);
        }
        if before.zip(after).is_some_and(|(before, after)| before != after) {
            self.census.count(fault.name());
        }
        self.faults.start(master);
        self.busy.remove(&master);
    }

    /// The new master must have what replicas have confirmed.
    fn judge_confirmed(&self, locks: &[usize], new: usize) {
        let now = server_ms(&self.engine, new);
        let hashes = self.contents(locks, new).unwrap_or_default();
        for (lock, hash) in locks.iter().zip(hashes) {
            self.book.judge_confirmed(*lock, &leases_in(&hash, now));
        }
    }

    /// Promotes a replica of a master.
    fn promote(&mut self, master: usize, lose: usize, now: Duration) -> Option<usize> {
        let locks = self.locks_of(master);
        let new = self.faults.promote(master, lose)?;
        if let Some(place) = self.masters.iter_mut().find(|place| **place == master) {
            *place = new;
        }
        for lock in locks {
            if lose == 0 {
                self.checker.forget_at(lock, new);
                self.checker.has_moved(lock, master, new);
            } else {
                self.checker.forget(lock);
                self.checker.expect_in_doubt(lock);
            }
            if lose > 0 || self.plan.is_out_of_time() {
                self.book.doubt(lock, now + AFTERMATH, !self.plan.is_out_of_time());
            }
            if self.plan.has(Fault::ClockStep) || (lose > 0 && self.plan.is_out_of_time()) {
                self.lose_history(lock);
            }
        }
        Some(new)
    }

    fn begin_move(&mut self, now: Duration) -> bool {
        let lock = self.rng.usize(0..self.plan.locks);
        let slot = Slot::of(key(lock).as_bytes());
        let (from, to) = (self.faults.master_of(slot), self.masters[self.rng.usize(0..MASTERS)]);
        if from == to
            || self.busy.contains(&from)
            || self.busy.contains(&to)
            || !self.faults.begin_move(slot, to)
        {
            return false;
        }
        self.busy.insert(from);
        self.busy.insert(to);
        let id = usize::from(slot.get());
        self.moving.insert(id, (slot, from, to));
        self.locks_in(slot).for_each(|lock| self.checker.forget_at(lock, to));
        let (mut at, span) = (now, [1, 100, 600][self.rng.usize(0..3)]);
        for _ in 0..self.rng.usize(0..3) {
            at += self.ms(0..span);
            self.then(at, Repair::MoveKey(id));
        }
        at += self.ms(0..span);
        self.then(at, Repair::FinishMove(id));
        true
    }

    fn move_key(&mut self, slot: usize, now: Duration) {
        let Some(&(slot, from, to)) = self.moving.get(&slot) else {
            return;
        };
        if self.faults.move_key(slot) {
            self.note_moved(slot, from, to, now);
        }
    }

    fn finish_move(&mut self, id: usize, now: Duration) {
        let Some((slot, from, to)) = self.moving.remove(&id) else {
            return;
        };
        self.busy.remove(&from);
        self.busy.remove(&to);
        self.faults.finish_move(slot);
        for lock in self.locks_in(slot) {
            self.checker.has_moved(lock, from, to);
        }
        self.note_moved(slot, from, to, now);
    }

    fn note_moved(&self, slot: Slot, from: usize, to: usize, now: Duration) {
        let behind = self.offsets[from] - self.offsets[to];
        for lock in self.locks_in(slot) {
            // A key moves with its remaining time to live. So it may expire too early by that
            // difference, even long afterwards.
            if behind >= GRACE_MS {
                self.book.doubt(lock, Duration::MAX, false);
            }
            if self.plan.is_out_of_time() {
                self.book.doubt(lock, now + AFTERMATH, false);
            }
            if self.plan.has(Fault::ClockStep) {
                self.lose_history(lock);
            }
        }
    }

    /// A lock may start again with lower tokens, because its key has expired by the other server's
    /// clock, or because its last writes are lost.
    fn lose_history(&self, lock: usize) {
        self.checker.forgive(lock);
        self.book.spoil(lock);
    }

    fn step_clock(&mut self, server: usize, step: i64, now: Duration) {
        let locks = self.locks_of(server);
        for lock in &locks {
            self.book.doubt(*lock, now + OLD_BOUNDS, false);
        }
        if step < 0 {
            for lock in self.plan.all() {
                self.checker.expect_in_doubt(lock);
                let key = key(lock);
                let known = (0..SERVERS).any(|server| {
                    self.engine.execute(server, &[b"EXISTS", key.as_bytes()]) == ["1"]
                });
                if !known || !locks.contains(&lock) {
                    self.lose_history(lock);
                }
            }
        }
        self.tell_time(server);
        self.offsets[server] += step;
        self.faults.set_clock(server, self.offsets[server]);
        self.tell_time(server);
    }

    /// Tells the checker the time of a server whose clock is about to be set, or was set. Keys may
    /// have expired by it.
    fn tell_time(&self, server: usize) {
        self.checker.clock_was(server, server_ms(&self.engine, server));
    }

    /// Picks a server, sometimes one without slots. A replica keeps the fault when it becomes a
    /// master.
    fn any_server(&mut self) -> usize {
        match self.rng.u8(0..6) {
            0 => self.rng.usize(0..SERVERS),
            _ => self.masters[self.rng.usize(0..MASTERS)],
        }
    }

    fn with_master(&mut self, act: impl FnOnce(&mut Self, usize)) -> bool {
        let master = self.masters[self.rng.usize(0..MASTERS)];
        self.with(master, act)
    }

    /// Acts on a master of a lock, which has something to lose.
    fn with_master_of_a_lock(&mut self, act: impl FnOnce(&mut Self, usize)) -> bool {
        let lock = self.rng.usize(0..self.plan.locks);
        let master = self.faults.master_of(Slot::of(key(lock).as_bytes()));
        self.with(master, act)
    }

    /// Acts on a master, unless a fault of it is under way.
    fn with(&mut self, master: usize, act: impl FnOnce(&mut Self, usize)) -> bool {
        let is_free = self.busy.insert(master);
        if is_free {
            act(self, master);
        }
        is_free
    }

    fn locks_of(&self, server: usize) -> Vec<usize> {
        let master = |lock: usize| self.faults.master_of(Slot::of(key(lock).as_bytes()));
        self.plan.all().filter(|lock| master(*lock) == server).collect()
    }

    /// The hashes of these locks at a server, if it answers.
    fn contents(&self, locks: &[usize], server: usize) -> Option<Vec<Vec<String>>> {
        let said = |lock: &usize| self.engine.execute(server, &[b"HGETALL", key(*lock).as_bytes()]);
        let all: Vec<_> = locks.iter().map(said).collect();
        let is_error = |said: &Vec<String>| said.first().is_some_and(|word| word.starts_with('-'));
        (!all.iter().any(is_error)).then_some(all)
    }

    fn locks_in(&self, slot: Slot) -> impl Iterator<Item = usize> + use<> {
        self.plan.all().filter(move |lock| Slot::of(key(*lock).as_bytes()) == slot)
    }

    fn then(&mut self, due: Duration, repair: Repair) {
        self.repairs += 1;
        self.later.insert((due, self.repairs), repair);
    }

    fn ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_micros(self.rng.u64(range.start * 1000..range.end * 1000))
    }
}

/// The remaining times of the leases in a hash, by their ids. `words` are its fields and values.
fn leases_in(words: &[String], now: u64) -> BTreeMap<String, Duration> {
    let stored = words.as_chunks::<2>().0.iter().cloned().map(|[field, value]| (field, value));
    let hash = LockHash::decode(stored.collect(), None, now);
    let leases = hash.records().filter_map(|record| {
        let left = record.deadline.checked_sub(now)?;
        Some((record.id.clone(), Duration::from_millis(left)))
    });
    leases.collect()
}

/// The reading of a server's clock.
pub fn server_ms(engine: &EmbeddedCluster, server: usize) -> u64 {
    let time = engine.execute(server, &[b"TIME"]);
    let part = |at: usize| time.get(at).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    part(0) * 1000 + part(1) / 1000
}
