//! A simulated network between clients and the servers of an engine, in which messages are delayed
//! and lost.
//!
//! It behaves as TCP does. Each message of a connection arrives once, in the order of sending. If a
//! message is lost, all later messages are lost too, and the connection breaks. Its ends may learn
//! that late, or never. A message that a client sent on an abandoned connection can arrive after
//! messages on the next connection. Only [`Delivery::duplicate_after`] goes further than TCP.

mod host;
mod line;
mod node;
mod subscription;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::testing::{
    ClientHealth, CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands,
    OpenedPubSub, embedded_connector,
};
use rwlease_core::resp::{Address, Command};

use line::SimulatedStream;
use node::SimulatedCommands;
use subscription::SimulatedPubSub;

pub use host::SimulatedHost;

/// Decides the fate of each message in a [`SimulatedNetwork`].
pub trait NetworkModel: Send + Sync + 'static {
    /// Called when a message is about to be sent.
    fn deliver(&self, message: &NetworkMessage<'_>) -> Delivery;
}

/// A message.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct NetworkMessage<'a> {
    /// The number of the client's host.
    pub host: usize,
    /// The number of the server.
    pub server: usize,
    /// What kind of message it is.
    pub kind: MessageKind,
    commands: &'a [Command],
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// A new connection.
    Dial,
    /// Commands and their replies.
    Commands,
    /// A subscription that is made or ended.
    Subscribe,
    /// A notice of a subscription, such as a push, which travels from the server to the client.
    Push,
}

/// The fate of a message and of the reply to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// How long the message takes to the server.
    pub request_delay: Duration,
    /// How long the reply (or a notice) takes to the client.
    pub reply_delay: Duration,
    /// The message itself is lost, with everything that follows it.
    pub loses_request: bool,
    /// The reply (or a notice) is lost, with everything that follows it.
    pub loses_reply: bool,
    /// If something was lost, how much later the client learns that the connection broke. `None`:
    /// never.
    pub break_noticed_after: Option<Duration>,
    /// The commands arrive and run a second time, this long after the first. The replies to the
    /// second run are dropped.
    pub duplicate_after: Option<Duration>,
}

/// A network of one engine. A clone is the same network.
#[derive(Clone)]
pub struct SimulatedNetwork {
    engine: EmbeddedCluster,
    weather: Arc<dyn NetworkModel>,
    /// Servers whose connections lead to a server of another cluster, given by its number.
    detours: Arc<Mutex<BTreeMap<usize, (EmbeddedCluster, usize)>>>,
}

impl SimulatedNetwork {
    /// Returns a network to all servers of an engine. The engine's time must be moved [by
    /// hand](rwlease::embedded::EmbeddedClusterBuilder::manual_time).
    pub fn new(engine: &EmbeddedCluster, weather: Arc<dyn NetworkModel>) -> Self {
        SimulatedNetwork { engine: engine.clone(), weather, detours: Arc::default() }
    }

    /// Returns a host for one client. Its clock is ahead of the engine's, and runs faster or slower
    /// by some parts in a million.
    pub fn host(&self, number: usize, ahead: Duration, drift_ppm: i32) -> SimulatedHost {
        SimulatedHost::new(self.clone(), number, ahead, drift_ppm)
    }

    /// Leads new connections to a server of this network to a server of another
    /// engine, as if that one had received the address. `None` ends that. Existing connections stay
    /// as they are.
    pub fn redirect_connections(&self, server: usize, stranger: Option<(&EmbeddedCluster, usize)>) {
        let mut detours = lock(&self.detours);
        match stranger {
            Some((engine, number)) => detours.insert(server, (engine.clone(), number)),
            None => detours.remove(&server),
        };
    }

    /// The connector for that address, and the address as the connector knows it.
    fn connector_to(&self, address: &Address) -> (Arc<dyn Connector>, Address) {
        let detour = self.engine.find(address).and_then(|at| lock(&self.detours).get(&at).cloned());
        detour
            .and_then(|(engine, number)| {
                let address = engine.addresses().get(number)?.clone();
                Some((embedded_connector(&engine), address))
            })
            .unwrap_or_else(|| (embedded_connector(&self.engine), address.clone()))
    }
}

impl NetworkMessage<'_> {
    /// Returns the words of the commands, if this is a message of commands.
    pub fn commands(&self) -> impl Iterator<Item = Vec<&[u8]>> {
        self.commands.iter().map(|command| command.iter().collect())
    }
}

impl fmt::Debug for NetworkMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkMessage")
            .field("host", &self.host)
            .field("server", &self.server)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects from one host.
struct SimulatedConnector {
    host: SimulatedHost,
    health: ClientHealth,
}

impl SimulatedConnector {
    /// Makes a connection: the request travels to the server, and the result back.
    async fn dial<T>(
        &self,
        address: &Address,
        open: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<(Arc<SimulatedStream>, T), ConnectionError> {
        let server = self.host.network().engine.find(address);
        let server = server
            .ok_or_else(|| ConnectionError::not_sent("no embedded server has this address"))?;
        let line = SimulatedStream::new(self.host.clone(), server);
        let fate = line.delivery_of(MessageKind::Dial, &[]);
        let clock = self.host.network().engine.clock();
        self.host.wait_running().await;
        clock.sleep_until(clock.now().saturating_add(fate.request_delay)).await;
        if fate.loses_request || fate.loses_reply {
            return std::future::pending().await;
        }
        let opened = open.await;
        clock.sleep_until(clock.now().saturating_add(fate.reply_delay)).await;
        self.host.wait_running().await;
        self.host.add(&line);
        Ok((line, opened?))
    }
}

impl Connector for SimulatedConnector {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        Box::pin(async move {
            let open = async {
                let (there, address) = self.host.network().connector_to(address);
                there.connect(&address, None).await
            };
            let (line, node) = self.dial(address, open).await?;
            Ok(Arc::new(SimulatedCommands::new(line, node)) as Arc<dyn CommandConnection>)
        })
    }

    fn health(&self) -> ClientHealth {
        self.health.clone()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        Box::pin(async move {
            let open = async {
                let (there, address) = self.host.network().connector_to(address);
                there.subscribe(&address, None).await
            };
            let (line, subscribed) = self.dial(address, open).await?;
            Ok(SimulatedPubSub::open(line, subscribed))
        })
    }
}
