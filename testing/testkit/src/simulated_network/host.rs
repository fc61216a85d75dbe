//! The machine of one client: its clock, and whether it runs.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease::embedded::EmbeddedCluster;
use rwlease::testing::{ClientHealth, Clock, Connector, start_client};
use rwlease::{Client, ClientBuilder};
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;

use super::line::SimulatedStream;
use super::{SimulatedConnector, SimulatedNetwork, lock};

/// The machine that one client runs on. A clone is the same host.
#[derive(Clone)]
pub struct SimulatedHost {
    shared: Arc<HostInner>,
}

struct HostInner {
    network: SimulatedNetwork,
    number: usize,
    clock: Arc<dyn Clock>,
    ahead: Duration,
    drift_ppm: i32,
    state: Mutex<HostState>,
    resumed: Notify,
}

#[derive(Default)]
struct HostState {
    is_paused: bool,
    is_gone: bool,
    connections: Vec<Weak<SimulatedStream>>,
}

impl SimulatedHost {
    pub(super) fn new(
        network: SimulatedNetwork,
        number: usize,
        ahead: Duration,
        drift_ppm: i32,
    ) -> Self {
        let clock = network.engine.clock();
        let (state, resumed) = Default::default();
        SimulatedHost {
            shared: Arc::new(HostInner {
                network,
                number,
                clock,
                ahead,
                drift_ppm,
                state,
                resumed,
            }),
        }
    }

    /// Its number, as it was given to [`Network::host`](super::SimulatedNetwork::host).
    pub fn number(&self) -> usize {
        self.shared.number
    }

    /// Connects a client from here.
    ///
    /// Its id comes from the seeded randomness of the thread, so a run can be repeated. A client
    /// without a label of its own has no record.
    pub async fn connect(&self, settings: ClientBuilder) -> rwlease::Result<Client> {
        let mut id = [0; 11];
        fastrand::fill(&mut id);
        let clock = Arc::new(HostClock(self.clone()));
        let health = ClientHealth::default();
        let connector: Arc<dyn Connector> =
            Arc::new(SimulatedConnector { host: self.clone(), health });
        start_client(settings, connector, clock, id, self.engine().addresses()).await
    }

    /// Returns the reading of its clock.
    pub fn now(&self) -> Duration {
        HostClock(self.clone()).now().as_duration()
    }

    /// Sleeps by the host's clock. While the host is paused, it does not wake.
    pub async fn sleep(&self, duration: Duration) {
        let clock = HostClock(self.clone());
        clock.sleep_until(clock.now().saturating_add(duration)).await;
    }

    /// Pauses the host, as `SIGSTOP` or a suspended machine does: nothing that it waits for happens
    /// until it resumes. Its clock continues, and what it has sent arrives.
    pub fn pause(&self) {
        lock(&self.shared.state).is_paused = true;
    }

    /// Resumes the host. Returns false if it was not paused.
    pub fn resume(&self) -> bool {
        let was_paused = std::mem::take(&mut lock(&self.shared.state).is_paused);
        self.shared.resumed.notify_waiters();
        was_paused
    }

    /// Stops the host forever. The servers notice that its connections are gone if it crashes
    /// `cleanly`, and otherwise never do.
    pub fn crash(&self, cleanly: bool) {
        let lines = {
            let mut state = lock(&self.shared.state);
            state.is_gone = true;
            std::mem::take(&mut state.connections)
        };
        for line in lines.iter().filter_map(Weak::upgrade) {
            line.end(cleanly);
        }
    }

    /// Cuts the host's connections to a server. What it has sent still arrives if `delivers` is
    /// set. It learns of the cut after `heard_after`, or never.
    pub fn cut_connections(&self, server: usize, delivers: bool, heard_after: Option<Duration>) {
        let lines = lock(&self.shared.state).connections.clone();
        for line in lines.iter().filter_map(Weak::upgrade) {
            if line.server == server {
                line.cut(delivers, heard_after);
            }
        }
    }

    /// Returns true unless the host was paused or stopped.
    pub fn is_running(&self) -> bool {
        let state = lock(&self.shared.state);
        !state.is_paused && !state.is_gone
    }

    pub(super) fn engine(&self) -> &EmbeddedCluster {
        &self.shared.network.engine
    }

    pub(super) fn network(&self) -> &SimulatedNetwork {
        &self.shared.network
    }

    /// Resolves when the host runs.
    pub(super) async fn wait_running(&self) {
        loop {
            let mut resumed = std::pin::pin!(self.shared.resumed.notified());
            resumed.as_mut().enable();
            if self.is_running() {
                return;
            }
            resumed.await;
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        lock(&self.shared.state).is_gone
    }

    pub(super) fn add(&self, line: &Arc<SimulatedStream>) {
        let mut state = lock(&self.shared.state);
        state.connections.retain(|line| line.strong_count() > 0);
        state.connections.push(Arc::downgrade(line));
    }
}

impl fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedHost").field("number", &self.number()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct HostClock(SimulatedHost);

impl HostClock {
    fn local(&self, engine: LocalInstant) -> LocalInstant {
        let nanos = engine.as_duration().as_nanos() as i128;
        let drifted = nanos + nanos * i128::from(self.0.shared.drift_ppm) / 1_000_000;
        LocalInstant::from_duration(
            Duration::from_nanos(drifted as u64).saturating_add(self.0.shared.ahead),
        )
    }

    /// The engine's moment at which the host's clock reads `local`, at most one nanosecond later.
    fn engine(&self, local: LocalInstant) -> LocalInstant {
        let nanos = local.as_duration().saturating_sub(self.0.shared.ahead).as_nanos();
        let nanos = nanos.min(u64::MAX.into()) as i128 * 1_000_000
            / (1_000_000 + i128::from(self.0.shared.drift_ppm));
        LocalInstant::from_duration(Duration::from_nanos((nanos as u64).saturating_add(1)))
    }
}

impl Clock for HostClock {
    fn now(&self) -> LocalInstant {
        self.local(self.0.shared.clock.now())
    }

    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            while this.now() < until {
                this.0.shared.clock.sleep_until(this.engine(until)).await;
            }
            this.0.wait_running().await;
        })
    }
}
