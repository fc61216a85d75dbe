//! A fleet: real clients on the embedded servers, under simulated time.
//!
//! `tests/simulation/scale.rs` runs a small one.

// The bench and the test each compile this as their own module, and need only a part of it.
#![allow(dead_code, unused_imports)]

mod counts;
mod fleet;
mod ledger;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use rwlease::Slot;
use rwlease::embedded::{EmbeddedCluster, FaultInjector, ServedCommand, SimulatedNetwork};

use counts::{FixedLatency, MessageCounter};
use fleet::Fleet;
use ledger::HolderLedger;

pub use counts::{CountedMessage, ServerCounts};
pub use ledger::Outcome;
pub use plan::Plan;

/// Time advances in multiples of this, so that events at about the same time share one step.
const GRAIN: Duration = Duration::from_micros(250);

/// A slot is migrating for this long before its keys move, and for as long afterwards.
const OPEN: Duration = Duration::from_millis(7);

/// The fleet counts as started this long after its last client.
pub const CALM: Duration = Duration::from_secs(5);

pub struct Simulation {
    engine: EmbeddedCluster,
    counter: MessageCounter,
    book: HolderLedger,
    fleet: Fleet,
}

impl Simulation {
    /// Connects all clients. Each acquires the locks that it holds, within one renewal interval.
    pub async fn start(plan: &Plan) -> Simulation {
        fastrand::seed(plan.seed);
        let engine =
            EmbeddedCluster::builder().masters(plan.masters).replicas(1).manual_time().build();
        let counter = MessageCounter::new(2 * usize::from(plan.masters));
        engine.set_observer(counter.clone());
        let network = SimulatedNetwork::new(&engine, Arc::new(FixedLatency(counter.clone())));
        let book = HolderLedger::new(plan.crowds);
        let fleet = Fleet::start(plan, &network, &book);
        let simulation = Simulation { engine, counter, book, fleet };
        simulation.run(plan.renewal() + CALM).await;
        simulation
    }

    /// The counts since the last call.
    pub fn take_counts(&self) -> ServerCounts {
        self.counter.take()
    }

    /// The results of the locks since the last call.
    pub fn take_outcome(&self) -> Outcome {
        self.book.take()
    }

    /// How many of the locks that are held all the time are held now.
    pub fn held(&self) -> usize {
        self.fleet.held()
    }

    pub async fn run(&self, length: Duration) {
        let until = self.engine.now() + length;
        loop {
            settle().await;
            let now = self.engine.now();
            if now >= until {
                return;
            }
            let next = self.engine.time_to_next_wake().unwrap_or(length).min(until - now);
            let grains = next.as_nanos().div_ceil(GRAIN.as_nanos()).max(1) as u32;
            self.engine.advance(GRAIN * grains);
        }
    }

    /// The number of contended locks that a master serves.
    pub fn crowds_at(&self, master: usize) -> usize {
        let faults = self.faults();
        self.fleet.crowds().filter(|slot| faults.master_of(*slot) == master).count()
    }

    /// Promotes a master's replica, without a loss of writes.
    pub async fn order_failover(&self, master: usize) {
        self.faults().promote(master, 0).expect("it has a replica");
    }

    /// Kills a master, and promotes its replica after the outage.
    pub async fn kill(&self, master: usize, outage: Duration) {
        self.faults().stop(master);
        self.run(outage).await;
        self.faults().promote(master, 0).expect("it has a replica");
    }

    /// Moves `slots` slots, one after another: the first ones of each master, to the next master.
    /// Returns the time that it took, and the number of contended locks that moved.
    pub async fn reshard(&self, slots: usize) -> (Duration, usize) {
        let faults = self.faults();
        let owners: Vec<(Slot, usize)> =
            all_slots().map(|slot| (slot, faults.master_of(slot))).collect();
        let shares: Vec<&[(Slot, usize)]> =
            owners.chunk_by(|left, right| left.1 == right.1).collect();
        let (began, mut crowds) = (self.engine.now(), 0);
        for (at, share) in shares.iter().enumerate() {
            let (_, to) = shares[(at + 1) % shares.len()][0];
            let count = slots * (at + 1) / shares.len() - slots * at / shares.len();
            for (slot, _) in &share[..count] {
                assert!(faults.begin_move(*slot, to));
                self.run(OPEN).await;
                while faults.move_key(*slot) {}
                self.run(OPEN).await;
                assert!(faults.finish_move(*slot));
                crowds += self.fleet.crowds().filter(|crowd| crowd == slot).count();
            }
        }
        (self.engine.now() - began, crowds)
    }

    fn faults(&self) -> FaultInjector {
        self.engine.faults()
    }
}

impl Drop for Simulation {
    /// Breaks the reference cycle between the engine and its watcher.
    fn drop(&mut self) {
        self.engine.set_observer(|_: &ServedCommand<'_>| {});
    }
}

/// Runs every task until all of them wait. Only then does Tokio's own time advance, which nothing
/// else uses.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn all_slots() -> impl Iterator<Item = Slot> {
    (0..16_384).filter_map(Slot::new)
}

/// A runtime with paused time, for one simulation.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}
