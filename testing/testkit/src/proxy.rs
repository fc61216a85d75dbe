//! A proxy in front of one server that makes the network bad: late, stuck, silent, cut, or cut at
//! one chosen command. It can also send what the server did not.
//!
//! Clients of a cluster follow the addresses that the nodes announce. So for a cluster there is a
//! proxy for each node, and a translation of addresses for the client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Cluster, Result, Server};

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyFlow {
    #[default]
    Open,
    /// Each piece is delayed by this much.
    Slow(Duration),
    /// Requests of scripts pass at this interval, over all connections.
    Paced(Duration),
    /// Held back until the flow changes.
    Paused,
    /// Dropped. The end of a connection is not passed on either, so that it is half-open.
    Dropped,
}

/// Where a connection is cut at a trapped command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoint {
    /// The server never sees the command.
    BeforeIt,
    /// The server has run the command; its reply never arrives.
    AfterIt,
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<ProxyState>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug)]
struct ProxyState {
    target: SocketAddr,
    rules: watch::Sender<Rules>,
    trap: Mutex<Option<CommandTrap>>,
    /// Goes to the client in front of the next reply.
    stray: Mutex<Vec<u8>>,
    accepted: AtomicU64,
    /// When the next script of a paced flow may pass.
    next_script: Mutex<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    requests: ProxyFlow,
    replies: ProxyFlow,
    is_closed: bool,
    /// Connections of an earlier era are cut.
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Requests,
    Replies,
}

#[derive(Debug)]
struct CommandTrap {
    word: Vec<u8>,
    cut: CutPoint,
    sprung: oneshot::Sender<()>,
}

impl Proxy {
    pub async fn start(server: &Server) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(ProxyState {
            target: server.address().parse()?,
            rules: watch::Sender::new(Rules::default()),
            trap: Mutex::new(None),
            stray: Mutex::default(),
            accepted: AtomicU64::new(0),
            next_script: Mutex::new(Instant::now()),
        });
        let acceptor = tokio::spawn(accept(listener, shared.clone()));
        Ok(Proxy { port, shared, acceptor })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections clients have opened.
    pub fn accepted_count(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Sets the flow of what clients send from now on.
    pub fn requests(&self, flow: ProxyFlow) {
        self.shared.rules.send_modify(|rules| rules.requests = flow);
    }

    /// Sets the flow of what the server sends from now on.
    pub fn replies(&self, flow: ProxyFlow) {
        self.shared.rules.send_modify(|rules| rules.replies = flow);
    }

    /// Makes both flows normal, for new connections too.
    pub fn heal(&self) {
        self.shared.rules.send_modify(|rules| {
            *rules = Rules { generation: rules.generation, ..Rules::default() }
        });
    }

    /// Drops both directions: connections stay open, new ones are accepted, and nothing ever
    /// arrives.
    pub fn drop_all(&self) {
        self.requests(ProxyFlow::Dropped);
        self.replies(ProxyFlow::Dropped);
    }

    /// Ends all connections. New ones can be made.
    pub fn cut(&self) {
        self.shared.rules.send_modify(|rules| rules.generation += 1);
    }

    /// Ends all connections, and ends new ones at once, until [`heal`](Self::heal).
    pub fn close(&self) {
        self.shared.rules.send_modify(|rules| rules.is_closed = true);
        self.cut();
    }

    /// Sends these bytes in front of the next reply that is passed on, as if the server had sent
    /// them.
    pub fn insert(&self, bytes: impl Into<Vec<u8>>) {
        *locked(&self.shared.stray) = bytes.into();
    }

    /// Cuts the connection on which the next request with this word (in any case) is sent. The
    /// receiver fires when that has happened. Other requests in flight on the connection are cut
    /// off too.
    pub fn trap(&self, word: &str, cut: CutPoint) -> oneshot::Receiver<()> {
        let (sprung, receiver) = oneshot::channel();
        *locked(&self.shared.trap) =
            Some(CommandTrap { word: word.to_ascii_lowercase().into_bytes(), cut, sprung });
        receiver
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.cut();
    }
}

/// A proxy in front of each node of a cluster, by the nodes' numbers.
#[derive(Debug)]
pub struct Proxies {
    proxies: Vec<Proxy>,
    ports: BTreeMap<u16, u16>,
}

impl Proxies {
    pub async fn start(cluster: &Cluster) -> Result<Proxies> {
        let mut proxies = Vec::new();
        let mut ports = BTreeMap::new();
        for node in cluster.nodes() {
            let proxy = Proxy::start(node).await?;
            ports.insert(node.port(), proxy.port());
            proxies.push(proxy);
        }
        Ok(Proxies { proxies, ports })
    }

    /// The proxy of the node with this number.
    pub fn at(&self, number: usize) -> &Proxy {
        &self.proxies[number]
    }

    pub fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// From announced addresses to those of the proxies.
    pub fn translation(
        &self,
    ) -> impl Fn(&str, u16) -> (String, u16) + Clone + Send + Sync + 'static {
        let ports = self.ports.clone();
        move |host, port| (host.to_string(), ports.get(&port).copied().unwrap_or(port))
    }
}

/// Notified when the next reply on a connection is lost, and the connection with it.
type CutSignal = Mutex<Option<oneshot::Sender<()>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProxyState {
    /// Takes the trap if the request has its word. Returns the receiver of the notice if the
    /// connection is to be cut before the request.
    fn spring_trap(&self, request: &[u8], doom: &CutSignal) -> Option<oneshot::Sender<()>> {
        let mut trap = locked(&self.trap);
        let word = &trap.as_ref()?.word;
        if !request.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)) {
            return None;
        }
        let CommandTrap { cut, sprung, .. } = trap.take()?;
        match cut {
            CutPoint::BeforeIt => Some(sprung),
            CutPoint::AfterIt => {
                *locked(doom) = Some(sprung);
                None
            }
        }
    }
}

impl ProxyState {
    /// Writes the bytes, and waits before each script for its turn. Capacity that is unused for a
    /// moment can still be used.
    async fn write_paced(
        &self,
        mut bytes: &[u8],
        pace: Duration,
        to: &mut OwnedWriteHalf,
    ) -> std::io::Result<()> {
        const SCRIPT: &[u8] = b"EVALSHA";
        const CREDIT: Duration = Duration::from_millis(50);
        while let Some(at) = bytes.windows(SCRIPT.len()).position(|word| word == SCRIPT) {
            to.write_all(&bytes[..at]).await?;
            let turn = {
                let mut next = locked(&self.next_script);
                let turn = (*next).max(Instant::now() - CREDIT);
                *next = turn + pace;
                turn
            };
            sleep_until(turn).await;
            to.write_all(SCRIPT).await?;
            bytes = &bytes[at + SCRIPT.len()..];
        }
        to.write_all(bytes).await
    }
}

async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if !shared.rules.borrow().is_closed {
            tokio::spawn(connect(client, shared.clone()));
        }
    }
}

/// One connection, for as long as both sides and the rules let it live.
async fn connect(client: TcpStream, shared: Arc<ProxyState>) {
    let mut rules = shared.rules.subscribe();
    let era = rules.borrow_and_update().generation;
    let Ok(server) = TcpStream::connect(shared.target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let doom = Mutex::new(None);
    tokio::select! {
        _ = rules.wait_for(|rules| rules.generation != era) => {}
        _ = forward(Direction::Requests, from_client, to_server, &shared, &doom) => {}
        _ = forward(Direction::Replies, from_server, to_client, &shared, &doom) => {}
    }
}

/// Ends when the connection must be cut.
async fn forward(
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    doom: &CutSignal,
) -> std::io::Result<()> {
    let mut rules = shared.rules.subscribe();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut piece).await?;
        let cut = match direction {
            Direction::Requests => shared.spring_trap(&piece[..length], doom),
            Direction::Replies => locked(doom).take(),
        };
        if let Some(sprung) = cut {
            let _ = sprung.send(());
            return Ok(());
        }
        if pass(&mut rules, direction, length == 0).await {
            if length == 0 {
                return to.shutdown().await;
            }
            let mut bytes = match direction {
                Direction::Requests => Vec::new(),
                Direction::Replies => std::mem::take(&mut *locked(&shared.stray)),
            };
            bytes.extend_from_slice(&piece[..length]);
            let flow = rules.borrow().requests;
            match (direction, flow) {
                (Direction::Requests, ProxyFlow::Paced(pace)) => {
                    shared.write_paced(&bytes, pace, &mut to).await?;
                }
                _ => to.write_all(&bytes).await?,
            }
        }
    }
}

/// Waits as the flow demands. Returns whether to pass on the bytes (or the end of the connection).
/// The end of a lost direction is never passed on, but waits until the flow changes.
async fn pass(rules: &mut watch::Receiver<Rules>, direction: Direction, is_end: bool) -> bool {
    let flow = |rules: &Rules| match direction {
        Direction::Requests => rules.requests,
        Direction::Replies => rules.replies,
    };
    let is_decided = |rules: &Rules| match flow(rules) {
        ProxyFlow::Paused => false,
        ProxyFlow::Dropped => !is_end,
        ProxyFlow::Open | ProxyFlow::Slow(_) | ProxyFlow::Paced(_) => true,
    };
    let decided = match rules.wait_for(is_decided).await {
        Ok(rules) => flow(&rules),
        Err(_closed) => ProxyFlow::Dropped,
    };
    if let ProxyFlow::Slow(delay) = decided {
        sleep(delay).await;
    }
    decided != ProxyFlow::Dropped
}
