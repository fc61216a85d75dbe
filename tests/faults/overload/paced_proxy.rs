//! A proxy in front of each node of a cluster, which passes a fixed number of scripts a second.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::{Cluster, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long unused capacity can still be used.
const CREDIT: Duration = Duration::from_millis(50);

pub struct PacedProxies {
    /// From the port of a node to that of its proxy.
    ports: BTreeMap<u16, u16>,
    arrived: Arc<Mutex<Arrivals>>,
    _acceptors: JoinSet<()>,
}

/// What has arrived at the nodes.
#[derive(Default)]
struct Arrivals {
    connections: u64,
    /// By the number in the name of a lock: whether a script on its key has arrived.
    locks: Vec<bool>,
}

struct PacedProxy {
    node: SocketAddr,
    /// The time from one script to the next.
    pace: Duration,
    /// When the next script may pass.
    next: Mutex<Instant>,
    prefix: Vec<u8>,
    arrived: Arc<Mutex<Arrivals>>,
}

impl PacedProxies {
    /// Passes that many scripts a second to each node. Counts the keys that begin with `prefix`.
    pub async fn start(cluster: &Cluster, a_second: u32, prefix: &str) -> Result<PacedProxies> {
        let (mut ports, mut acceptors) = (BTreeMap::new(), JoinSet::new());
        let arrived = Arc::<Mutex<Arrivals>>::default();
        for node in cluster.nodes() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.insert(node.port(), listener.local_addr()?.port());
            let proxy = Arc::new(PacedProxy {
                node: node.address().parse()?,
                pace: Duration::from_secs(1) / a_second,
                next: Mutex::new(Instant::now()),
                prefix: prefix.into(),
                arrived: arrived.clone(),
            });
            acceptors.spawn(accept(listener, proxy));
        }
        Ok(PacedProxies { ports, arrived, _acceptors: acceptors })
    }

    pub fn urls(&self) -> Vec<String> {
        self.ports.values().map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// From announced addresses to those of the proxies.
    pub fn translation(&self) -> impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static {
        let ports = self.ports.clone();
        move |host, port| (host.to_owned(), ports.get(&port).copied().unwrap_or(port))
    }

    /// The number of connections so far.
    pub fn connections(&self) -> u64 {
        self.arrived.lock().unwrap().connections
    }

    /// Whether a script on the key of the lock with this number has arrived.
    pub fn has_arrived(&self, number: usize) -> bool {
        self.arrived.lock().unwrap().locks.get(number).copied().unwrap_or(false)
    }
}

async fn accept(listener: TcpListener, proxy: Arc<PacedProxy>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        proxy.arrived.lock().unwrap().connections += 1;
        connections.spawn(connect(client, proxy.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, proxy: Arc<PacedProxy>) {
    let Ok(server) = TcpStream::connect(proxy.node).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let mut to_client = to_client;
    tokio::select! {
        _ = proxy.forward(from_client, to_server) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

impl PacedProxy {
    /// Forwards each command when its turn comes.
    async fn forward(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            if from.read_buf(&mut buffer).await? == 0 {
                return to.shutdown().await;
            }
            let (mut written, mut read) = (0, 0);
            while let Some((words, length)) = command(&buffer[read..]) {
                if let Some(turn) = self.turn_of(&words) {
                    to.write_all(&buffer[written..read]).await?;
                    written = read;
                    sleep_until(turn).await;
                }
                read += length;
            }
            to.write_all(&buffer[written..read]).await?;
            buffer.drain(..read);
        }
    }

    /// When to forward the command, if that is later than now.
    fn turn_of(&self, words: &[&[u8]]) -> Option<Instant> {
        let is_script = |word: &&[u8]| word.to_ascii_lowercase().starts_with(b"eval");
        words.first().filter(|word| is_script(word))?;
        let number = words.get(3).and_then(|key| key.strip_prefix(&*self.prefix));
        let number =
            number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
        if let Some(number) = number {
            let locks = &mut self.arrived.lock().unwrap().locks;
            let length = locks.len().max(number + 1);
            locks.resize(length, false);
            locks[number] = true;
        }
        let now = Instant::now();
        let mut next = self.next.lock().unwrap();
        let turn = (*next).max(now.checked_sub(CREDIT)?);
        *next = turn + self.pace;
        (turn > now).then_some(turn)
    }
}

/// The words of the first command in a buffer, and its length. `None` if it is incomplete.
fn command(buffer: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = number(buffer, 0)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, begin) = number(buffer, at)?;
        words.push(buffer.get(begin..begin + length)?);
        at = begin + length + 2;
    }
    (at <= buffer.len()).then_some((words, at))
}

/// The number of a line `*<number>` or `$<number>`, and where the next line begins.
fn number(buffer: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = buffer.get(at + 1..)?;
    let length = line.iter().position(|byte| *byte == b'\r')?;
    let number = std::str::from_utf8(&line[..length]).ok()?.parse().ok()?;
    Some((number, at + 1 + length + 2))
}
