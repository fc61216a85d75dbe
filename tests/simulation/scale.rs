//! A small fleet of clients under simulated time. The formulas of `docs/scale.md` bound its calls,
//! even in an ordered failover and while slots move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::{EmbeddedCluster, ServedCommand};
use rwlease::{Client, Slot, WriteGuard};
use testkit::{
    Delivery, MessageKind, NetworkMessage, NetworkModel, SimulatedHost, SimulatedNetwork,
};

use crate::census::Census;

const MASTERS: u16 = 10;
const CLIENTS: u64 = 50;
/// Locks that each client holds all the time.
const HELD: u64 = 8;
const HELD_PREFIX: char = 'h';
/// The locks of the uncontended pairs of a client, which makes one every two seconds on average.
const NAMES: u64 = 10;
const PAUSE: Duration = Duration::from_secs(2);
/// Contended locks, and the tasks that contend for each of them.
const CROWDS: u64 = 20;
const CROWD: u64 = 5;
const HOLD: Duration = Duration::from_secs(2);
/// How long an uncontended lock is held.
const SHORT: Duration = Duration::from_millis(5);
/// The pause after a failed request.
const REST: Duration = Duration::from_millis(100);
/// The locks of a client: held ones, those of its pairs, and contended ones.
const LOCKS: u64 = HELD + NAMES + CROWDS * CROWD / CLIENTS;
/// The nodes that a client queries for one fetch of the slot map.
const SAMPLE: u64 = 5;
/// Scripts that the fleet uses.
const SCRIPTS: u64 = 3;
const LEASE: Duration = Duration::from_secs(30);
const LENGTH: Duration = Duration::from_secs(30);
/// A slot is migrating for this long before its keys move, and for as long afterwards.
const OPEN: Duration = Duration::from_millis(7);
/// The one-way delay of a message. Time advances in multiples of it.
const LATENCY: Duration = Duration::from_micros(250);

#[test]
fn fleet_of_clients_sends_no_more_commands_than_the_model() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(run());
}

async fn run() {
    let mut fleet = Fleet::start();
    // By then all clients have started, and used all of their locks.
    fleet.run(LEASE / 3 + Duration::from_secs(5) + LENGTH).await;
    let started = fleet.counts();
    // Each client has at most one connection for commands to each server.
    assert!(started["TIME"] <= CLIENTS * 20, "{started:?}");

    fleet.run(LENGTH).await;
    let usual = fleet.counts();
    // Renewals are due after a third of a lease of 30 s, less at most a tenth of it.
    assert!((CLIENTS * HELD * 3..=CLIENTS * HELD * 4).contains(&usual["renewals"]), "{usual:?}");
    // A fetch is due every 15 to 30 s.
    assert!((CLIENTS * SAMPLE..=CLIENTS * SAMPLE * 2).contains(&usual["maps"]), "{usual:?}");
    assert_eq!([usual["MOVED"], usual["ASK"], usual["errors"]], [0; 3], "{usual:?}");

    fleet.engine.faults().promote(0, 0).expect("it has a replica");
    fleet.run(LENGTH).await;
    let failover = fleet.counts();
    assert_bounded(&failover, LENGTH);
    // One call of a client sends the text of a script, and the others wait for it.
    assert!((1..=CLIENTS * SCRIPTS).contains(&failover["NOSCRIPT"]), "{failover:?}");

    let begun = fleet.engine.now();
    fleet.reshard().await;
    fleet.run(LENGTH).await;
    let moves = fleet.counts();
    assert_bounded(&moves, fleet.engine.now() - begun);
    // Each lock moves at most once, with a tenth of the slots.
    assert!((1..=CLIENTS * LOCKS / 5).contains(&moves["MOVED"]), "{moves:?}");
    // Breaks the reference cycle between the engine and its observer.
    fleet.engine.set_observer(|_: &ServedCommand<'_>| {});
}

/// A client fetches the slot map every 15 s at most, and once for each call and each subscription
/// that meets a moved slot. It renews each subscription at most once, with one query, and probes it
/// after each 10 s of silence.
fn assert_bounded(counts: &Counts, length: Duration) {
    let rounds = |seconds: u64| length.as_secs() / seconds + 1;
    let channels = CROWDS * CROWD;
    let found = counts["MOVED"] + channels;
    assert!(counts["maps"] <= (CLIENTS * rounds(15) + found) * SAMPLE, "{counts:?}");
    assert!(counts["subscriptions"] <= channels * (2 + rounds(10)), "{counts:?}");
    assert_eq!(counts["errors"], 0, "{counts:?}");
}

type Counts = BTreeMap<&'static str, u64>;

struct Fleet {
    engine: EmbeddedCluster,
    census: Census,
    /// The counts at the last look.
    seen: Counts,
    guards: Guards,
}

/// The guards that clients hold all the time.
type Guards = Arc<Mutex<Vec<WriteGuard>>>;

impl Fleet {
    /// Starts the clients, each at its own time within the first third of a lease.
    fn start() -> Fleet {
        fastrand::seed(23);
        let engine = EmbeddedCluster::builder().masters(MASTERS).replicas(1).manual_time().build();
        let (census, guards) = (Census::default(), Guards::default());
        engine.set_observer(command_counter(census.clone()));
        let network = SimulatedNetwork::new(&engine, Arc::new(FixedLatency(census.clone())));
        for number in 0..CLIENTS {
            let host = network.host(number as usize, Duration::ZERO, 0);
            tokio::spawn(start_client(number, host, census.clone(), guards.clone()));
        }
        Fleet { engine, census, seen: Counts::new(), guards }
    }

    /// Returns the counts since the last call. No lease may have been lost, and no request failed.
    fn counts(&mut self) -> Counts {
        let all = self.census.all();
        let names = [
            "TIME",
            "renewals",
            "maps",
            "subscriptions",
            "MOVED",
            "ASK",
            "NOSCRIPT",
            "errors",
            "lost",
            "failed",
        ];
        let at = |counts: &Counts, name| counts.get(name).copied().unwrap_or(0);
        let counts =
            names.into_iter().map(|name| (name, at(&all, name) - at(&self.seen, name))).collect();
        self.seen = all;
        let held = self.guards.lock().unwrap().iter().filter(|guard| guard.is_held()).count();
        assert_eq!([at(&counts, "lost"), at(&counts, "failed")], [0; 2], "{counts:?}");
        assert_eq!(held as u64, CLIENTS * HELD);
        counts
    }

    async fn run(&self, length: Duration) {
        let until = self.engine.now() + length;
        loop {
            // Runs every task until all of them wait. Only then does Tokio's own time advance,
            // which nothing else uses.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = self.engine.now();
            if now >= until {
                return;
            }
            let next = self.engine.time_to_next_wake().unwrap_or(length).min(until - now);
            self.engine
                .advance(LATENCY * next.as_nanos().div_ceil(LATENCY.as_nanos()).max(1) as u32);
        }
    }

    /// Moves every tenth slot to the next master, one slot after another.
    async fn reshard(&self) {
        let faults = self.engine.faults();
        let slots = || (0..16_384).filter_map(Slot::new);
        let masters: Vec<usize> = slots()
            .map(|slot| faults.master_of(slot))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for slot in slots().step_by(10) {
            let from = masters.iter().position(|master| *master == faults.master_of(slot));
            let to = masters[(from.expect("it is one of them") + 1) % masters.len()];
            assert!(faults.begin_move(slot, to));
            self.run(OPEN).await;
            while faults.move_key(slot) {}
            self.run(OPEN).await;
            assert!(faults.finish_move(slot));
        }
    }
}

/// Connects a client at its own time, and starts its tasks.
async fn start_client(number: u64, host: SimulatedHost, census: Census, guards: Guards) {
    host.sleep((LEASE / 3).mul_f64(fastrand::f64())).await;
    let lost = census.clone();
    let settings = Client::builder().lease(LEASE).on_lease_lost(move |_| lost.count("lost"));
    let locks = host.connect(settings).await.expect("all servers are well");
    for at in 0..HELD {
        let lock = locks.rwlock(format!("{HELD_PREFIX}{number}:{at}")).unwrap();
        let guard = lock.write().await.expect("nobody else wants it");
        guards.lock().unwrap().push(guard);
    }
    let name = move |at: u64| format!("s{number}:{}", at % NAMES);
    let pause = || PAUSE.mul_f64(2.0 * fastrand::f64());
    tokio::spawn(pairs(locks.clone(), host.clone(), census.clone(), name, pause, SHORT));
    // Tasks are assigned to the clients in turn.
    for task in (number..CROWDS * CROWD).step_by(CLIENTS as usize) {
        let name = move |_| format!("c{}", task / CROWD);
        let none = || Duration::ZERO;
        tokio::spawn(pairs(locks.clone(), host.clone(), census.clone(), name, none, HOLD));
    }
}

/// Acquires and releases one lock after another.
async fn pairs(
    locks: Client,
    host: SimulatedHost,
    census: Census,
    name: impl Fn(u64) -> String,
    pause: impl Fn() -> Duration,
    hold: Duration,
) {
    for at in 0.. {
        host.sleep(pause()).await;
        let pair = async {
            let guard = locks.rwlock(name(at))?.write().await?;
            host.sleep(hold).await;
            guard.release().await
        };
        if pair.await.is_err() {
            census.count("failed");
            host.sleep(REST).await;
        }
    }
}

/// Counts the commands that servers serve, and their errors.
fn command_counter(census: Census) -> impl FnMut(&ServedCommand<'_>) {
    let renew = rwlease::scripts().find(|script| script.name() == "renew").expect("it has one");
    let held = format!("rwlease:{HELD_PREFIX}").into_bytes();
    move |served| {
        let reply = served.reply();
        let counted = if let Some(error) = reply.first().and_then(|word| word.strip_prefix('-')) {
            match error.split(' ').next() {
                Some("MOVED") => "MOVED",
                Some("ASK") => "ASK",
                Some("NOSCRIPT") => "NOSCRIPT",
                _ => "errors",
            }
        } else {
            match served.words() {
                [b"EVALSHA", digest, _, key, ..]
                    if *digest == renew.digest().as_bytes() && key.starts_with(&held) =>
                {
                    "renewals"
                }
                [b"TIME"] => "TIME",
                [b"CLUSTER", b"SLOTS"] => "maps",
                _ => return,
            }
        };
        census.count(counted);
    }
}

/// A network in which every message has the same delay, and none is lost.
struct FixedLatency(Census);

impl NetworkModel for FixedLatency {
    fn deliver(&self, message: &NetworkMessage<'_>) -> Delivery {
        // `SSUBSCRIBE`, `SUNSUBSCRIBE`, and the query of each connection for subscriptions.
        if matches!(message.kind, MessageKind::Subscribe) {
            self.0.count("subscriptions");
        }
        Delivery { request_delay: LATENCY, reply_delay: LATENCY, ..Delivery::default() }
    }
}
