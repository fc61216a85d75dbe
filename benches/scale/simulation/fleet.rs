//! The clients and the work of their tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::{SimulatedHost, SimulatedNetwork};
use rwlease::{Locks, Result, Slot, WriteGuard};

use super::counts::PREFIX;
use super::ledger::HolderLedger;
use super::plan::Plan;

/// How long an uncontended lock is held.
const SHORT: Duration = Duration::from_millis(5);

/// The pause after a failed request.
const REST: Duration = Duration::from_millis(100);

pub struct Fleet {
    crowds: usize,
    guards: Guards,
}

/// The guards that a client holds all the time.
type Guards = Arc<Mutex<Vec<WriteGuard>>>;

/// One client, as its tasks see it.
#[derive(Clone)]
struct Client {
    number: usize,
    plan: Arc<Plan>,
    host: SimulatedHost,
    locks: Locks,
    book: HolderLedger,
}

impl Fleet {
    pub fn start(plan: &Plan, network: &SimulatedNetwork, book: &HolderLedger) -> Fleet {
        let plan = Arc::new(plan.clone());
        let guards = Guards::default();
        for number in 0..plan.clients {
            let host = network.host(number, Duration::ZERO, 0);
            tokio::spawn(start_client(number, plan.clone(), host, book.clone(), guards.clone()));
        }
        Fleet { crowds: plan.crowds, guards }
    }

    /// The slots of the contended locks.
    pub fn crowds(&self) -> impl Iterator<Item = Slot> {
        (0..self.crowds).map(|crowd| Slot::of(format!("{PREFIX}{}", crowd_name(crowd))))
    }

    pub fn held(&self) -> usize {
        self.guards.lock().unwrap().iter().filter(|guard| guard.is_held()).count()
    }
}

/// Connects a client at its own time, and starts its tasks.
async fn start_client(
    number: usize,
    plan: Arc<Plan>,
    host: SimulatedHost,
    book: HolderLedger,
    guards: Guards,
) {
    host.sleep(plan.renewal().mul_f64(fastrand::f64())).await;
    let lost = book.clone();
    let settings = Locks::builder().lease(plan.lease).on_lost(move |_| lost.lost());
    let locks = settings.connect_from(&host).await.expect("all servers are well");
    let client = Client { number, plan, host, locks, book };
    for at in 0..client.plan.held {
        let lock = client.locks.rwlock(format!("h{number}:{at}")).unwrap();
        let guard = lock.write().await.expect("nobody else wants it");
        guards.lock().unwrap().push(guard);
    }
    if client.plan.pairs > 0.0 {
        tokio::spawn(client.clone().pairs());
    }
    // Tasks are assigned to the clients in turn.
    let tasks = client.plan.crowds * client.plan.crowd;
    for task in (number..tasks).step_by(client.plan.clients) {
        tokio::spawn(client.clone().contend(task / client.plan.crowd));
    }
}

impl Client {
    /// Takes and releases one lock after another.
    async fn pairs(self) {
        let pause = Duration::from_secs_f64(1.0 / self.plan.pairs);
        for at in 0.. {
            self.host.sleep(pause.mul_f64(2.0 * fastrand::f64())).await;
            let lock = self.locks.rwlock(format!("s{}:{}", self.number, at % self.plan.names));
            let (lock, since) = (lock.unwrap(), self.host.now());
            match lock.write().await {
                Ok(guard) => {
                    self.book.record_pair(self.host.now() - since);
                    self.host.sleep(SHORT).await;
                    self.give_back(guard).await;
                }
                Err(_) => self.book.failed(),
            }
        }
    }

    /// Waits for a contended lock, holds it for a while, and waits again.
    async fn contend(self, crowd: usize) {
        let lock = self.locks.rwlock(crowd_name(crowd)).unwrap();
        loop {
            let since = self.host.now();
            let Ok(guard) = lock.write().await else {
                self.book.failed();
                self.host.sleep(REST).await;
                continue;
            };
            self.book.record_grant(crowd, &guard, self.host.now() - since);
            self.host.sleep(self.plan.hold).await;
            self.book.record_release(crowd, &guard);
            self.give_back(guard).await;
        }
    }

    async fn give_back(&self, guard: WriteGuard) {
        let released: Result<_> = guard.release().await;
        if released.is_err() {
            self.book.failed();
        }
    }
}

fn crowd_name(crowd: usize) -> String {
    format!("c{crowd}")
}
