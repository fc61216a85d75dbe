//! The clients: how they start, end and restart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use rwlease::{Client, Redlock};
use testkit::{SimulatedHost, SimulatedNetwork};
use tokio::task::JoinHandle;

use crate::census::Census;
use crate::checker::Checker;
use crate::ledger::Book;
use crate::plan::Plan;
use crate::users::{MEMBERS, Users};

pub struct Clients {
    plan: Arc<Plan>,
    network: SimulatedNetwork,
    book: Book,
    checker: Checker,
    census: Census,
    stops: Arc<AtomicBool>,
    rng: Rng,
    hosts: BTreeMap<usize, SimulatedClient>,
    next: usize,
}

struct SimulatedClient {
    host: SimulatedHost,
    /// Set once the client is connected. A quorum has one for each member.
    locks: Arc<Mutex<Vec<Client>>>,
    users: JoinHandle<()>,
}

impl Clients {
    pub fn new(
        plan: &Plan,
        network: SimulatedNetwork,
        book: Book,
        checker: Checker,
        census: Census,
    ) -> Clients {
        let mut clients = Clients {
            plan: Arc::new(plan.clone()),
            network,
            book,
            checker,
            census,
            stops: Arc::default(),
            rng: Rng::with_seed(plan.seed ^ 0x00c1_1e75),
            hosts: BTreeMap::new(),
            next: 0,
        };
        (0..plan.clients).for_each(|_| clients.add());
        clients
    }

    /// Picks a running client at random.
    pub fn pick(&self, rng: &mut Rng) -> Option<&SimulatedHost> {
        let running: Vec<&SimulatedHost> = self
            .hosts
            .values()
            .map(|client| &client.host)
            .filter(|host| host.is_running())
            .collect();
        (!running.is_empty()).then(|| running[rng.usize(0..running.len())])
    }

    pub fn resume(&mut self, number: usize) {
        if let Some(client) = self.hosts.get(&number) {
            client.host.resume();
        }
    }

    pub fn crash(&mut self, number: usize, cleanly: bool) {
        let Some(client) = self.hosts.remove(&number) else {
            return;
        };
        client.host.crash(cleanly);
        self.book.forget_host(number);
        for locks in &*client.locks.lock().unwrap() {
            self.checker.remove_client(&locks.client_id());
        }
        // Its tasks never end, because nothing wakes them any more.
        std::mem::forget(client.users);
    }

    /// Whether the client of this acquisition runs and has not given it up.
    pub fn want(&self, id: &str) -> bool {
        self.hosts.values().any(|client| {
            client.host.is_running()
                && client.locks.lock().unwrap().iter().any(|locks| locks.wants(id))
        })
    }

    /// The running host whose client owns this acquisition.
    pub fn host_of(&self, id: &str) -> Option<usize> {
        let is_its = |locks: &Client| id.starts_with(&locks.client_id());
        let of = |client: &SimulatedClient| {
            client.host.is_running() && client.locks.lock().unwrap().iter().any(is_its)
        };
        self.hosts.iter().find(|(_, client)| of(client)).map(|(number, _)| *number)
    }

    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Whether each client has found the servers.
    pub fn are_connected(&self) -> bool {
        let wanted = if self.plan.is_quorum { MEMBERS.len() } else { 1 };
        self.hosts.values().all(|client| client.locks.lock().unwrap().len() == wanted)
    }

    /// Whether all users have finished.
    pub fn are_idle(&self) -> bool {
        self.hosts.values().all(|client| client.users.is_finished())
    }

    pub fn all(&self) -> Vec<Client> {
        self.hosts.values().flat_map(|client| client.locks.lock().unwrap().clone()).collect()
    }

    /// Starts a client.
    pub fn add(&mut self) {
        let number = self.next;
        self.next += 1;
        let ahead = Duration::from_millis(self.rng.u64(0..100_000_000));
        let drift = self.rng.i32(-self.plan.drift_ppm..=self.plan.drift_ppm);
        let host = self.network.host(number, ahead, drift);
        let seeds: Vec<u64> = (0..self.plan.users).map(|_| self.rng.u64(..)).collect();
        let locks = Arc::default();
        let (plan, book, census) = (self.plan.clone(), self.book.clone(), self.census.clone());
        let (stops, of_host) = (self.stops.clone(), host.clone());
        let connected =
            connect_all(self.plan.clone(), self.checker.clone(), Arc::clone(&locks), host.clone());
        let users = tokio::spawn(async move {
            let (locks, quorum) = connected.await;
            let users = Users { plan, locks, quorum, host: of_host, book, census, stops };
            let lives = seeds.into_iter().map(|seed| users.clone().live(seed));
            futures::future::join_all(lives).await;
        });
        self.hosts.insert(number, SimulatedClient { host, locks, users });
    }
}

/// Connects a client, or one for each member of a quorum.
async fn connect_all(
    plan: Arc<Plan>,
    checker: Checker,
    place: Arc<Mutex<Vec<Client>>>,
    host: SimulatedHost,
) -> (Client, Option<Redlock>) {
    let prefixes = if plan.is_quorum { &MEMBERS[..] } else { &[PREFIX] };
    let mut all = Vec::new();
    for prefix in prefixes {
        let locks = connect_in_the_end(&plan, &host, prefix).await;
        checker.add_client(&locks, host.number());
        place.lock().unwrap().push(locks.clone());
        all.push(locks);
    }
    let quorum = plan.is_quorum.then(|| Redlock::new(all.clone()).unwrap());
    (all.swap_remove(0), quorum)
}

async fn connect_in_the_end(plan: &Plan, host: &SimulatedHost, prefix: &str) -> Client {
    loop {
        match connect(plan, host, prefix).await {
            Ok(locks) => return locks,
            Err(_) => host.sleep(Duration::from_millis(50)).await,
        }
    }
}

const PREFIX: &str = "rwlease:";

async fn connect(plan: &Plan, host: &SimulatedHost, prefix: &str) -> rwlease::Result<Client> {
    let mut settings = Client::builder();
    if let Some(folder) = &plan.scripts {
        settings = settings.scripts_from(folder).unwrap();
    }
    let settings = settings
        .key_prefix(prefix)
        .safety_margin(plan.margin)
        .lease(plan.lease)
        .max_queue_len(plan.max_queue_len)
        .poll_interval(plan.poll_interval)
        .waiter_ttl(plan.waiter_ttl)
        .claim_timeout(plan.window)
        .call_timeout(Duration::from_secs(4))
        .connect_timeout(Duration::from_millis(500))
        .response_timeout(Duration::from_millis(400));
    host.connect(settings).await
}
