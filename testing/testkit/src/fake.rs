//! A server that says anything at any time: before it is asked, twice, never. It can
//! stand in front of a real server, which answers whatever the test does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Result, Server};

/// What a client did.
#[derive(Clone, Debug)]
pub struct ClientAct {
    /// The number of its connection, from zero.
    pub connection: usize,
    /// The words of its command. None when it has connected.
    pub words: Vec<String>,
}

/// What the server does then.
#[derive(Clone, Debug)]
pub enum ServerAct {
    /// It sends these bytes.
    Bytes(Vec<u8>),
    /// It sends what the server behind it answers.
    Forward,
    Pause(Duration),
    Close,
}

/// A port with such a server. Open connections go on when this is dropped.
#[derive(Debug)]
pub struct Fake {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl ClientAct {
    pub fn is_opened(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the command begins with these words, in any case.
    pub fn is(&self, words: &str) -> bool {
        let mut own = self.words.iter();
        words.split(' ').all(|word| own.next().is_some_and(|own| own.eq_ignore_ascii_case(word)))
    }
}

impl ServerAct {
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Vec<ServerAct> {
        vec![ServerAct::Bytes(bytes.into())]
    }

    /// The rest of a habit that answers only some commands of the server behind it.
    pub fn forward(heard: &ClientAct) -> Vec<ServerAct> {
        if heard.is_opened() { Vec::new() } else { vec![ServerAct::Forward] }
    }
}

impl Fake {
    /// A server that has only its habit: what it does for what a client did.
    pub async fn start(
        habit: impl Fn(&ClientAct) -> Vec<ServerAct> + Send + Sync + 'static,
    ) -> Result<Fake> {
        Self::open(None, habit).await
    }

    /// One in front of a real server.
    pub async fn before(
        server: &Server,
        habit: impl Fn(&ClientAct) -> Vec<ServerAct> + Send + Sync + 'static,
    ) -> Result<Fake> {
        Self::open(Some(server), habit).await
    }

    async fn open(
        server: Option<&Server>,
        habit: impl Fn(&ClientAct) -> Vec<ServerAct> + Send + Sync + 'static,
    ) -> Result<Fake> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let behind = server.map(|server| server.address().parse()).transpose()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, habit) = (connections.clone(), Arc::new(habit));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (number, habit) = (count.fetch_add(1, Ordering::SeqCst), habit.clone());
                tokio::spawn(async move { serve(client, number, behind, &*habit).await });
            }
        });
        Ok(Fake { address, connections, task })
    }

    /// Says this to everybody who connects, and closes.
    pub async fn greeting(text: &'static str) -> Result<Fake> {
        Self::start(move |_| vec![ServerAct::Bytes(text.into()), ServerAct::Close]).await
    }

    /// Says this to the first command, and closes.
    pub async fn answering(text: &'static str) -> Result<Fake> {
        Self::start(move |heard| match heard.is_opened() {
            true => Vec::new(),
            false => vec![ServerAct::Bytes(text.into()), ServerAct::Close],
        })
        .await
    }

    /// Says this to each command.
    pub async fn repeating(text: &'static str) -> Result<Fake> {
        Self::start(move |heard| match heard.is_opened() {
            true => Vec::new(),
            false => ServerAct::bytes(text),
        })
        .await
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How often somebody has connected.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    client: TcpStream,
    number: usize,
    behind: Option<SocketAddr>,
    habit: &(impl Fn(&ClientAct) -> Vec<ServerAct> + Sync),
) -> Result {
    client.set_nodelay(true)?;
    let server = match behind {
        Some(address) => Some(TcpStream::connect(address).await?),
        None => None,
    };
    let mut talk = Talk { client, server, due: 0 };
    let opened = ClientAct { connection: number, words: Vec::new() };
    if !talk.act(habit(&opened), &[]).await? {
        return Ok(());
    }
    let (mut heard, mut said) = (Vec::new(), Vec::new());
    loop {
        // What the server behind owes comes first, so that replies keep their order.
        while talk.due == 0
            && let Some(length) = frame(&heard)
        {
            let raw: Vec<u8> = heard.drain(..length).collect();
            let heard = ClientAct { connection: number, words: words(&raw) };
            if !talk.act(habit(&heard), &raw).await? {
                return Ok(());
            }
        }
        let Talk { client, server, .. } = &mut talk;
        let answer = async {
            match server {
                Some(server) => server.read_buf(&mut said).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            read = client.read_buf(&mut heard) => read?,
            read = answer => read?,
        };
        if read == 0 {
            return Ok(());
        }
        while let Some(length) = frame(&said) {
            let reply: Vec<u8> = said.drain(..length).collect();
            talk.client.write_all(&reply).await?;
            talk.due -= usize::from(reply[0] != b'>' && talk.due > 0);
        }
    }
}

/// One connection.
struct Talk {
    client: TcpStream,
    server: Option<TcpStream>,
    /// The number of replies that the server behind owes.
    due: usize,
}

impl Talk {
    /// Returns whether the connection goes on.
    async fn act(&mut self, says: Vec<ServerAct>, raw: &[u8]) -> Result<bool> {
        for say in says {
            match say {
                ServerAct::Bytes(bytes) => self.client.write_all(&bytes).await?,
                ServerAct::Forward => {
                    if let Some(server) = &mut self.server {
                        server.write_all(raw).await?;
                        // These are answered by pushes.
                        let is_pushed = words(raw)[0].to_ascii_lowercase().ends_with("subscribe");
                        self.due += usize::from(!is_pushed);
                    }
                }
                ServerAct::Pause(pause) => sleep(pause).await,
                ServerAct::Close => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The length of the first command or reply in these bytes, if it is whole. What is none counts up
/// to its end.
fn frame(bytes: &[u8]) -> Option<usize> {
    let kind = *bytes.first()?;
    if !b"+-:_,#(!=$*~>%|".contains(&kind) {
        return Some(bytes.len());
    }
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let count = std::str::from_utf8(&bytes[1..line - 2]).ok().and_then(|text| text.parse().ok());
    let count: i64 = count.unwrap_or(0);
    let elements = match kind {
        b'$' | b'=' | b'!' if count < 0 => return Some(line),
        b'$' | b'=' | b'!' => {
            let end = line + count as usize + 2;
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => count,
        b'%' | b'|' => 2 * count,
        _ => 0,
    };
    (0..elements).try_fold(line, |at, _| Some(at + frame(&bytes[at..])?))
}

/// The words of a command. The text, of what is none.
fn words(raw: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(raw);
    let mut words: Vec<String> = text.split("\r\n").skip(2).step_by(2).map(String::from).collect();
    if words.is_empty() {
        words.push(text.trim_end().to_owned());
    }
    words
}
