//! One worker cannot use one master: its way there leads through a proxy. The other workers and the
//! other masters are in reach.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Props, Touched, ensure};
use crate::scenario::Scene;
use testkit::{Cluster, ClusterConfig, Error, PollLimit, Proxy, ProxyFlow, Result};

pub const WORKER: usize = 0;
pub const NODE: usize = 0;

/// What is sent by a command that no client of the run sends.
const MARK: &str = "mark";

/// How long a reply is waited for that does not come.
const SILENCE: Duration = Duration::from_millis(300);

/// What the worker's connections to the master come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCut {
    /// Nothing arrives, in neither direction, and connections stay open.
    Both,
    /// The master carries out what the worker sends, and no reply arrives.
    Replies,
    /// Connections end at once.
    Refused,
}

impl ClientCut {
    pub fn name(self) -> &'static str {
        match self {
            ClientCut::Both => "cut client",
            ClientCut::Replies => "deaf client",
            ClientCut::Refused => "refused client",
        }
    }
}

pub async fn prepare(shape: ClusterConfig) -> Result<(Cluster, Props)> {
    let cluster = Cluster::start_with(shape).await?;
    let proxy = Proxy::start(cluster.node(NODE)).await?;
    Ok((cluster, Props { proxy: Some(proxy), ..Props::default() }))
}

pub async fn strike(scene: &mut Scene, cut: ClientCut) -> Result<Touched> {
    let names = scene.names_at(NODE).await?;
    let proxy = proxy(scene)?;
    let before = echo(proxy).await?;
    ensure(before.contains(MARK), || format!("before it, the proxy replied {before:?}"))?;
    match cut {
        ClientCut::Both => proxy.drop_all(),
        ClientCut::Replies => proxy.replies(ProxyFlow::Dropped),
        ClientCut::Refused => proxy.close(),
    }
    look(scene, cut).await?;
    Ok(Touched { names, worker: Some(WORKER), errors: &["Unavailable"], is_all_refused: true })
}

/// Sends a command by the worker's way, and one by another way.
pub async fn look(scene: &Scene, cut: ClientCut) -> Result<String> {
    let node = scene.cluster.node(NODE);
    let proxy = proxy(scene)?;
    let before = node.calls("echo").await?;
    let reply = echo(proxy).await.unwrap_or_else(|error| error.to_string());
    ensure(!reply.contains(MARK), || format!("the proxy replied {reply:?}"))?;
    let expected = u64::from(cut == ClientCut::Replies);
    let wait_limit = PollLimit::new("the server to run the command");
    let ran = loop {
        let ran = node.calls("echo").await? - before;
        if ran >= expected {
            break ran;
        }
        wait_limit.pause("it has not").await?;
    };
    ensure(ran == expected, || format!("the server ran {ran} of the commands, not {expected}"))?;
    let direct: String = node.run_words("PING").await?;
    let opened = proxy.accepted_count();
    Ok(format!(
        "by the worker's way there is {reply:?} ({ran} run), by another way {direct}; {opened} connections so far"
    ))
}

pub fn lift(scene: &Scene) -> Result {
    let proxy = proxy(scene)?;
    proxy.heal();
    proxy.cut();
    Ok(())
}

fn proxy(scene: &Scene) -> Result<&Proxy> {
    scene.props.proxy.as_ref().ok_or_else(|| Error::new("there is no proxy"))
}

/// The reply to a command, or what there is in its place.
async fn echo(proxy: &Proxy) -> Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", proxy.port())).await?;
    connection.write_all(format!("ECHO {MARK}\r\n").as_bytes()).await?;
    let mut reply = [0; 64];
    match timeout(SILENCE, connection.read(&mut reply)).await {
        Err(_) => Ok("nothing".into()),
        Ok(Ok(0)) => Ok("an end".into()),
        Ok(length) => Ok(String::from_utf8_lossy(&reply[..length?]).trim().into()),
    }
}
