//! One run: its parts, and the loop that advances the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use oracle::{Holder, LockHash};
use rwlease::Slot;
use rwlease::embedded::{EmbeddedCluster, ServedCommand};
use testkit::SimulatedNetwork;

use crate::census::Census;
use crate::checker::Checker;
use crate::clients::Clients;
use crate::foreign_servers::Strangers;
use crate::ledger::Book;
use crate::nemesis::{Nemesis, server_ms};
use crate::network_model::Storm;
use crate::panics;
use crate::plan::{Fault, Plan};
use crate::users::key;
use crate::verdict::{Court, Violation};
use crate::watchdog;

/// How long after the last fault everything must work normally again.
const RECOVERY: Duration = Duration::from_secs(5);

/// A lock can be free until a living waiter polls: a third of the waiter's time to live, and this
/// for the check.
const LOOK: Duration = Duration::from_millis(130);

/// How long a client may keep a lease that none of its users needs: until a contact that still
/// reports it as used, the next one, which does not, and the release.
const UNUSED: Duration = Duration::from_millis(2_000);

/// The same for a recalled lease.
const CALLED_BACK: Duration = Duration::from_millis(1_200);

/// How long users may take to finish after the last fault.
const LAST_WAITS: Duration = Duration::from_secs(120);

/// How long a client may take to release everything.
const LAST_LEASES: Duration = Duration::from_secs(60);

/// The longest rest of a lease.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The most by which the key of an unused lock outlives the last lease, and the last place in its
/// queue: the grace and the slack.
const LIFE_OF_THE_IDLE: Duration = Duration::from_secs(20);

/// Added to these limits if clocks are set. A key may expire by a clock that was ahead by some
/// steps of a minute.
const CLOCKS_THAT_WERE_SET: Duration = Duration::from_secs(600);

/// The most steps in one millisecond. A run with more would never end.
const MOST_STEPS: u32 = 20_000;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub plan: Plan,
    pub violation: Option<Violation>,
    pub counts: BTreeMap<&'static str, u64>,
    pub steps: u64,
    pub scripts: u64,
    pub most_calls: u32,
    pub digest: u64,
    pub history: Vec<String>,
    pub time: Duration,
}

/// Runs a plan to its end, or to the first violation.
pub fn run(plan: &Plan) -> Outcome {
    fastrand::seed(plan.seed);
    panics::watch();
    let _watched = watchdog::watch(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { World::new(plan).run().await })
}

struct World {
    plan: Plan,
    engine: EmbeddedCluster,
    storm: Storm,
    book: Book,
    checker: Checker,
    court: Court,
    census: Census,
    clients: Clients,
    nemesis: Nemesis,
    rng: Rng,
    started: Duration,
    steps: u64,
    /// The current millisecond, and the number of steps in it.
    pace: (u128, u32),
    is_storm: bool,
    quiet_since: Duration,
    /// Since when each lock is free although a living waiter waits for it.
    idle_since: BTreeMap<usize, Duration>,
    /// Since when a client caches a lock that none of its users needs, and since when it is
    /// recalled.
    unused_since: BTreeMap<(usize, String, bool), Duration>,
}

impl World {
    fn new(plan: &Plan) -> World {
        let engine =
            EmbeddedCluster::builder().wait_semantics(plan.wait_covers).manual_time().build();
        let (court, census) = (Court::new(plan, engine.now()), Census::default());
        let storm = Storm::new(plan, census.clone(), court.clone());
        let book = Book::new(court.clone(), census.clone(), plan);
        let checker =
            Checker::new(court.clone(), census.clone(), storm.clone(), book.clone(), plan);
        engine.set_observer(checker.clone());
        let network = SimulatedNetwork::new(&engine, Arc::new(storm.clone()));
        let nemesis = Nemesis::new(
            plan,
            &engine,
            Strangers::new(&engine, &network, &court, &census),
            book.clone(),
            checker.clone(),
            court.clone(),
            census.clone(),
        );
        let clients = Clients::new(plan, network, book.clone(), checker.clone(), census.clone());
        let started = engine.now();
        World {
            plan: plan.clone(),
            rng: Rng::with_seed(plan.seed ^ 0x0003_021d),
            engine,
            storm,
            book,
            checker,
            court,
            census,
            clients,
            nemesis,
            started,
            steps: 0,
            pace: (0, 0),
            is_storm: false,
            quiet_since: started,
            idle_since: BTreeMap::new(),
            unused_since: BTreeMap::new(),
        }
    }

    async fn run(mut self) -> Outcome {
        self.go_until(self.started + Duration::from_millis(500)).await;
        let end = self.started + self.plan.length;
        self.checker.disturb();
        while self.engine.now() < end && !self.court.is_over() {
            self.is_storm = true;
            self.storm.set_calm(false);
            let storm = Duration::from_millis(self.rng.u64(500..6_000));
            self.go_until(self.engine.now() + storm).await;
            self.storm.set_calm(true);
            self.is_storm = false;
            let now = self.engine.now();
            self.nemesis.repair_all(now, &mut self.clients);
            self.quiet_since = now;
            let calm = if self.rng.bool() { RECOVERY * 2 } else { Duration::from_millis(300) };
            self.go_until(self.engine.now() + calm).await;
        }
        self.come_to_rest().await;
        self.engine.set_observer(|_: &ServedCommand<'_>| {}); // breaks a reference cycle
        let (scripts, most_calls) = self.checker.effort();
        Outcome {
            violation: self.court.violation(),
            counts: self.census.all(),
            steps: self.steps,
            scripts,
            most_calls,
            digest: self.court.digest(),
            history: self.court.history(),
            time: self.engine.now() - self.started,
            plan: self.plan,
        }
    }

    /// Lets all users finish, and checks that no key is left behind.
    async fn come_to_rest(&mut self) {
        self.clients.stop();
        let clocks = match self.plan.has(Fault::ClockStep) {
            true => CLOCKS_THAT_WERE_SET,
            false => Duration::ZERO,
        };
        let latest = self.engine.now() + LAST_WAITS + clocks;
        while !self.clients.are_idle() && !self.court.is_over() {
            if self.engine.now() > latest {
                self.court.accuse("nobody waits forever", || "some users still wait".into());
            }
            self.go_until(self.engine.now() + Duration::from_millis(200)).await;
        }
        // The servers' clocks decide whether a late request can still run.
        let apart = Duration::from_millis(2 * self.plan.skew_ms().unsigned_abs());
        let wait_limit = LAST_LEASES + clocks;
        let rest = self.plan.waiter_ttl.max(LONGEST_REST);
        let life = rest + LIFE_OF_THE_IDLE + apart + clocks;
        for locks in self.clients.all() {
            let left = tokio::spawn(async move { locks.shutdown(wait_limit).await });
            let latest = self.engine.now() + wait_limit + Duration::from_secs(1);
            while !left.is_finished() && self.engine.now() < latest && !self.court.is_over() {
                self.go_until(self.engine.now() + Duration::from_millis(50)).await;
            }
            if !self.court.is_over() && !left.await.unwrap().is_empty() {
                self.court.accuse("clients forget what is over", || {
                    "some masters are still known".into()
                });
            }
        }
        if self.court.is_over() {
            return;
        }
        self.go_until(self.engine.now() + life).await;
        let keys = self.engine.key_count();
        if keys > 0 {
            self.court.accuse("nothing is left behind", || format!("{keys} keys"));
        }
        if !self.plan.is_quorum {
            self.book.judge_history();
        }
    }

    /// Runs until this time.
    async fn go_until(&mut self, until: Duration) {
        let mut strike_at = self.next_strike();
        loop {
            settle().await;
            self.steps += 1;
            let now = self.engine.now();
            self.court.set_time(now);
            self.book.judge();
            self.check_pace(now);
            if let Some(panic) = panics::take() {
                self.court.accuse("nothing panics", || panic);
            }
            if self.court.is_over() || now >= until {
                return;
            }
            self.check_idle(now);
            self.nemesis.repair(now, &mut self.clients);
            if self.is_storm && now >= strike_at {
                self.nemesis.strike(now, &mut self.clients);
                strike_at = self.next_strike();
                continue; // the fault may have made tasks ready at once
            }
            let mut next = until;
            if let Some(wait) = self.engine.time_to_next_wake() {
                next = next.min(now + wait);
            }
            if let Some(due) = self.nemesis.next_due() {
                next = next.min(due);
            }
            if self.is_storm {
                next = next.min(strike_at);
            }
            self.engine.advance(next.saturating_sub(now).max(Duration::from_nanos(1)));
        }
    }

    /// Checks that the time advances.
    fn check_pace(&mut self, now: Duration) {
        let (ms, steps) = self.pace;
        self.pace = match now.as_millis() == ms {
            true => (ms, steps + 1),
            false => (now.as_millis(), 1),
        };
        if self.pace.1 > MOST_STEPS {
            self.court
                .accuse("a run ends", || format!("more than {MOST_STEPS} steps in a millisecond"));
        }
    }

    fn next_strike(&mut self) -> Duration {
        let longest = [50, 400, 1_500][self.rng.usize(0..3)];
        self.engine.now() + Duration::from_millis(self.rng.u64(1..longest))
    }

    /// Checks that no lock stays free for long while a client waits for it, unless there was a
    /// fault recently.
    fn check_idle(&mut self, now: Duration) {
        if self.is_storm || now < self.quiet_since + RECOVERY {
            self.idle_since.clear();
            self.unused_since.clear();
            return;
        }
        for lock in self.plan.all() {
            let server = self.engine.faults().master_of(Slot::of(key(lock).as_bytes()));
            let ms = server_ms(&self.engine, server);
            let Some(hash) = self.checker.seen(lock, server) else {
                continue;
            };
            let hash = LockHash { now: ms, ..hash };
            let for_write = hash.waiters.values().any(|waiter| waiter.mode != 'r');
            let cached = hash.holders().filter(|holder| holder.is_cached());
            self.check_unused(now, lock, for_write, cached);
            // An upgrader of a lock without a holder has lost its read, so it gets no grant.
            let alive = || hash.waiters.values().filter(|waiter| waiter.ends() > ms);
            let waits = alive().any(|it| it.mode != 'u' && self.clients.want(&it.id));
            let is_free = match hash.shape() {
                // There are enough permits for the largest request.
                "P" => {
                    let most = alive().map(|waiter| waiter.permits).max().unwrap_or(0);
                    hash.held_permits() + most <= hash.number("limit")
                }
                _ => hash.holders().next().is_none(),
            };
            if !waits || !is_free {
                self.idle_since.remove(&lock);
                continue;
            }
            let since = *self.idle_since.entry(lock).or_insert(now);
            if now - since > self.plan.waiter_ttl / 3 + LOOK {
                self.court.accuse("a free lock is given to who waits", || {
                    format!("lock {lock} since {since:?}: {hash:?}")
                });
            }
        }
    }

    /// Checks that no client keeps an unused lease for long.
    fn check_unused<'a>(
        &mut self,
        now: Duration,
        lock: usize,
        for_write: bool,
        cached: impl Iterator<Item = &'a Holder>,
    ) {
        // A failover can bring back a released lease. On a server whose clock is behind, that lease
        // ends late, and no client knows of it.
        let loses = [Fault::LossyFailover, Fault::LaggingFailover];
        if loses.iter().any(|fault| self.plan.has(*fault)) && self.plan.has(Fault::ClockStep) {
            return;
        }
        let mut unused = Vec::new();
        for Holder { id, state, .. } in cached {
            let host = self.clients.host_of(id);
            if host.is_some_and(|host| !self.book.is_used(lock, host)) {
                unused.push((lock, id.clone(), false));
            }
            // A lease in use is reported as used, or becomes a read. A recall for readers waits for
            // a local writer.
            let stays = |host| !for_write && self.book.is_written(lock, host);
            if *state == 'c' && host.is_some_and(|host| !stays(host)) {
                unused.push((lock, id.clone(), true));
            }
        }
        self.unused_since.retain(|of, _| of.0 != lock || unused.contains(of));
        for of in unused {
            let most = if of.2 { CALLED_BACK } else { UNUSED };
            let since = *self.unused_since.entry(of.clone()).or_insert(now);
            if now - since > most {
                let rule = match of.2 {
                    true => "a recall is obeyed",
                    false => "what is not used is given back",
                };
                self.court.accuse(rule, || format!("{} of lock {lock}, since {since:?}", of.1));
            }
        }
    }
}

/// Runs every task until all of them wait. Only then does Tokio's own time advance, which nothing
/// else uses.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
