//! The slot map of the cluster, and how it is kept fresh.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::{oneshot, watch};

use crate::clock::{Clock, Moment};
use crate::node::{Address, NodeError, Reply, ServerError, Words};
use crate::observe;
use crate::router::connection::Failure;
use crate::router::connections::Connections;
use crate::router::map::SlotMap;
use crate::router::translation::Translation;
use crate::router::{Slot, jittered, lock, read, write};

/// The least time from the beginning of one refresh to that of the next.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);

/// How long one node is waited for before the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);

/// Whom to ask for the slot map.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    Anyone,
    /// This one knows best: it was just named as an owner.
    First(Address),
    /// Not this one, unless nobody else answers: it is in trouble.
    Another(Address),
}

/// The slot map, shared by all calls.
#[derive(Debug)]
pub(crate) struct Topology {
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
    seeds: Vec<Address>,
    translation: Translation,
    response_timeout: Duration,
    map: RwLock<SlotMap>,
    changes: watch::Sender<u64>,
    refreshing: Mutex<Refreshing>,
}

#[derive(Debug, Default)]
struct Refreshing {
    under_way: Option<Shared<BoxFuture<'static, ()>>>,
    not_before: Moment,
}

impl Topology {
    pub(crate) fn new(
        connections: Arc<Connections>,
        clock: Arc<dyn Clock>,
        seeds: Vec<Address>,
        translation: Translation,
        response_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Topology {
            connections,
            clock,
            seeds,
            translation,
            response_timeout,
            map: RwLock::new(SlotMap::empty()),
            changes: watch::Sender::new(0),
            refreshing: Mutex::default(),
        })
    }

    pub(crate) fn translation(&self) -> &Translation {
        &self.translation
    }

    pub(crate) fn owner(&self, slot: Slot) -> Option<Address> {
        read(&self.map).owner(slot).cloned()
    }

    pub(crate) fn masters(&self) -> Vec<Address> {
        read(&self.map).masters()
    }

    /// Counts how often a slot has changed its owner.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes a server's word for the owner of a slot. The whole map is fetched aside: slots seldom move alone.
    pub(crate) fn moved(self: &Arc<Self>, slot: Slot, to: &Address) {
        if write(&self.map).moved(slot, to.clone()) {
            self.changes.send_modify(|changes| *changes += 1);
        }
        drop(self.refresh(Whom::First(to.clone())));
    }

    /// Begins to fetch the map, unless that is under way. The answer may be awaited or dropped.
    pub(crate) fn refresh(self: &Arc<Self>, whom: Whom) -> Shared<BoxFuture<'static, ()>> {
        let mut refreshing = lock(&self.refreshing);
        if let Some(under_way) = refreshing
            .under_way
            .as_ref()
            .filter(|under_way| under_way.peek().is_none())
        {
            return under_way.clone();
        }
        let begin = refreshing.not_before.max(self.clock.now());
        refreshing.not_before = begin.after(LEAST_INTERVAL);
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.clock.sleep_until(begin).await;
            // A failure is logged there, and every call that it matters to asks again.
            let _ = this.fetch(whom).await;
            lock(&this.refreshing).under_way = None;
            let _ = tell.send(());
        });
        let under_way = told.map(drop).boxed().shared();
        refreshing.under_way = Some(under_way.clone());
        under_way
    }

    /// Ends when the map no longer has the slot at that address. Other nodes are asked for it now and then, but not at
    /// once: a server that is well answers before that.
    pub(crate) async fn owner_left(self: &Arc<Self>, slot: Slot, address: &Address) {
        let left = || read(&self.map).owner(slot) != Some(address);
        loop {
            self.clock
                .sleep_until(self.clock.now().after(jittered(2 * LEAST_INTERVAL)))
                .await;
            if left() {
                return;
            }
            self.refresh(Whom::Another(address.clone())).await;
            if left() {
                return;
            }
        }
    }

    /// Fetches the map from the first node that gives one. A slow node delays this little: soon the next one is asked too.
    pub(crate) async fn fetch(&self, whom: Whom) -> Result<(), NodeError> {
        let mut candidates = self.candidates(&whom).into_iter();
        let mut asked = FuturesUnordered::new();
        let mut last_failure = NodeError::unsent("no node is known");
        loop {
            match candidates.next() {
                Some(candidate) => asked.push(self.ask(candidate)),
                None if asked.is_empty() => {
                    observe::refresh_failed(&last_failure);
                    return Err(last_failure);
                }
                None => {}
            }
            let patience = self.clock.sleep_until(self.clock.now().after(STAGGER));
            tokio::select! {
                biased;
                Some((node, outcome)) = asked.next() => match outcome {
                    Ok(map) => {
                        self.install(&node, map);
                        return Ok(());
                    }
                    Err(failure) => last_failure = failure,
                },
                () = patience => {}
            }
        }
    }

    /// Closes connections to nodes that are no longer part of the cluster.
    pub(crate) fn forget_strangers(&self) {
        let map = read(&self.map).clone();
        self.connections
            .retain(|address| map.nodes().contains(address) || self.seeds.contains(address));
    }

    /// Whether this is a node of the cluster.
    pub(crate) fn knows(&self, address: &Address) -> bool {
        read(&self.map).nodes().contains(address)
    }

    fn install(&self, node: &Address, map: SlotMap) {
        let changed = {
            let mut current = write(&self.map);
            let changed = !current.agrees(&map);
            *current = map;
            changed
        };
        observe::refreshed(node, changed);
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Whom to ask, in this order: nodes that are connected, other known nodes, seeds.
    fn candidates(&self, whom: &Whom) -> Vec<Address> {
        let mut known = read(&self.map).nodes().to_vec();
        fastrand::shuffle(&mut known);
        known.sort_by_key(|address| self.connections.ready(address).is_none());
        for seed in &self.seeds {
            if !known.contains(seed) {
                known.push(seed.clone());
            }
        }
        match whom {
            Whom::Anyone => {}
            Whom::First(first) => {
                known.retain(|address| address != first);
                known.insert(0, first.clone());
            }
            Whom::Another(last) => {
                known.retain(|address| address != last);
                known.push(last.clone());
            }
        }
        known
    }

    async fn ask(&self, node: Address) -> (Address, Result<SlotMap, NodeError>) {
        let outcome = self.slots_of(&node).await;
        (node, outcome)
    }

    async fn slots_of(&self, node: &Address) -> Result<SlotMap, NodeError> {
        let connection = self.connections.connect(node).await?;
        let until = self.clock.now().after(self.response_timeout);
        let exchange = match connection
            .call(&*self.clock, &Words::new().word("CLUSTER").word("SLOTS"), until)
            .await
        {
            Ok(exchange) => exchange,
            Err(Failure::Broken(failure)) => return Err(failure),
            Err(Failure::Silent) => {
                connection.gave_up(self.clock.now(), self.response_timeout);
                return Err(NodeError::unsent(format!(
                    "{node} did not answer in {:?}",
                    self.response_timeout
                )));
            }
        };
        match exchange.value {
            Reply::Error(error) if is_alone(&error) => Ok(SlotMap::single(node.clone())),
            Reply::Error(error) => Err(NodeError {
                permanent: error.code == "NOPERM",
                source: Some(Arc::new(error)),
                ..NodeError::unsent(format!("{node} does not tell the slots of the cluster"))
            }),
            reply => match SlotMap::parse(&reply, node, &self.translation) {
                Ok(map) if map.is_empty() => Err(NodeError::unsent(format!("{node} knows no owner of any slot"))),
                Ok(map) => Ok(map),
                Err(what) => Err(NodeError::unsent(format!(
                    "{node} answers CLUSTER SLOTS with nonsense: {what}"
                ))),
            },
        }
    }
}

/// A server that is no cluster node: it serves all slots.
fn is_alone(error: &ServerError) -> bool {
    error.code == "ERR"
        && (error.detail.contains("cluster support disabled") || error.detail.starts_with("unknown command"))
}
