//! A proxy that passes a fixed number of scripts a second to one server, and counts them.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::support::{Result, Server};

/// How long unused capacity can still be used.
const CREDIT: Duration = Duration::from_millis(50);

pub struct PacedProxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    /// The time from one script to the next.
    pace: Option<Duration>,
    next: Mutex<Instant>,
    connections: AtomicU64,
    acquires: Mutex<Acquires>,
    /// The digest and the text of the script that acquires a lock.
    names: [String; 2],
}

#[derive(Default)]
struct Acquires {
    keys: HashSet<Vec<u8>>,
    copies: u64,
}

impl PacedProxy {
    pub async fn start(server: &Server, a_second: Option<u32>) -> Result<PacedProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let acquire = rwlease::scripts().find(|script| script.name() == "acquire_write");
        let acquire = acquire.expect("a script that acquires");
        let shared = Arc::new(Shared {
            server: server.address().parse()?,
            pace: a_second.map(|scripts| Duration::from_secs(1) / scripts),
            next: Mutex::new(Instant::now()),
            connections: AtomicU64::new(0),
            acquires: Mutex::default(),
            names: [acquire.digest().to_owned(), acquire.text().to_owned()],
        });
        let acceptor = tokio::spawn(accept(listener, shared.clone()));
        Ok(PacedProxy { port, shared, acceptor })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The counts of this proxy. They remain readable after the proxy is dropped.
    pub fn account(&self) -> ProxyCounters {
        ProxyCounters(self.shared.clone())
    }
}

impl Drop for PacedProxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

#[derive(Clone)]
pub struct ProxyCounters(Arc<Shared>);

impl ProxyCounters {
    /// The number of connections so far.
    pub fn connections(&self) -> u64 {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Acquires that arrived more than once.
    pub fn duplicate_acquires(&self) -> u64 {
        locked(&self.0.acquires).copies
    }

    /// Returns true if an acquire of this key has arrived.
    pub fn has_acquire_for(&self, key: &str) -> bool {
        locked(&self.0.acquires).keys.contains(key.as_bytes())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connect(client, shared.clone()));
    }
}

async fn connect(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(shared.server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = shared.forward(from_client, to_server) => {}
        _ = copy(from_server, to_client) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await.map(drop)
}

impl Shared {
    /// Forwards each command when its turn comes.
    async fn forward(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let mut buffer = Vec::new();
        let mut piece = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            buffer.extend_from_slice(&piece[..length]);
            let (mut written, mut read) = (0, 0);
            while let Some((words, end)) = command(&buffer[read..]) {
                if let Some(turn) = self.forward_at(&words) {
                    to.write_all(&buffer[written..read]).await?;
                    written = read;
                    sleep_until(turn).await;
                }
                read += end;
            }
            to.write_all(&buffer[written..read]).await?;
            buffer.drain(..read);
        }
    }

    /// The time at which to forward this command, if it is later than now.
    fn forward_at(&self, words: &[&[u8]]) -> Option<Instant> {
        let is_script = |word: &&[u8]| {
            word.eq_ignore_ascii_case(b"EVALSHA") || word.eq_ignore_ascii_case(b"EVAL")
        };
        if !words.first().is_some_and(is_script) {
            return None;
        }
        if let [_, script, _, key, ..] = words
            && self.names.iter().any(|name| name.as_bytes() == *script)
        {
            let mut acquires = locked(&self.acquires);
            if !acquires.keys.insert(key.to_vec()) {
                acquires.copies += 1;
            }
        }
        let now = Instant::now();
        let mut next = locked(&self.next);
        let turn = (*next).max(now.checked_sub(CREDIT)?);
        *next = turn + self.pace?;
        (turn > now).then_some(turn)
    }
}

/// The words of the first command in a buffer, and the offset of its end; `None` if it is
/// incomplete.
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

/// The number of a line `*<number>` or `$<number>`, and the offset of the next line.
fn number(buffer: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = buffer.get(at + 1..)?;
    let length = line.iter().position(|byte| *byte == b'\r')?;
    let number = std::str::from_utf8(&line[..length]).ok()?.parse().ok()?;
    Some((number, at + 1 + length + 2))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
