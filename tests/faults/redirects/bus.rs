//! A cluster whose nodes reach each other only through this process. It can cut one of them off
//! from the others, and clients still reach all.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use testkit::{Cluster, ClusterConfig, Result, Server, ServerSettings};

/// The bytes of the sender's id in the header of a packet of the cluster bus.
const SENDER: std::ops::Range<usize> = 40..80;

/// The ids of the nodes that are cut off.
type CutOff = BTreeSet<String>;

/// The links between the nodes of a cluster.
#[derive(Debug)]
pub struct Bus(watch::Sender<CutOff>);

impl Bus {
    /// Starts a cluster. Set a long node timeout, so that its nodes do not notice soon that others
    /// are unreachable.
    pub async fn cluster(shape: ClusterConfig) -> Result<(Bus, Cluster)> {
        let settings = ServerSettings { cluster: true, ..shape.settings };
        let settings = settings.line(format!("cluster-node-timeout {}", shape.node_timeout));
        let count = shape.masters * (1 + shape.replicas_of_each);
        let nodes = try_join_all((0..count).map(|_| Server::start(&settings))).await?;
        let bus = Bus(watch::Sender::new(CutOff::new()));
        for node in &nodes {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let port = listener.local_addr()?.port();
            node.run_words::<()>(&format!("CONFIG SET cluster-announce-bus-port {port}")).await?;
            let id = node.run_words("CLUSTER MYID").await?;
            tokio::spawn(carry(listener, id, node.bus_port(), bus.0.subscribe()));
        }
        Ok((bus, Cluster::join(nodes, shape.masters).await?))
    }

    /// Cuts one node off from all others. Data in flight is dropped.
    pub fn cut_off(&self, id: &str) {
        self.0.send_modify(|ids| {
            ids.insert(id.to_owned());
        });
    }
}

/// Forwards the connections of other nodes to one node.
async fn carry(
    listener: TcpListener,
    to: String,
    port: u16,
    cut_off: watch::Receiver<CutOff>,
) -> Result {
    let to: Arc<str> = to.into();
    loop {
        let (from, _) = listener.accept().await?;
        tokio::spawn(link(from, to.clone(), port, cut_off.clone()));
    }
}

/// Forwards one connection between two nodes, until one of them is cut off.
async fn link(
    mut from: TcpStream,
    to: Arc<str>,
    port: u16,
    mut cut_off: watch::Receiver<CutOff>,
) -> Result {
    let mut header = [0; SENDER.end];
    from.read_exact(&mut header).await?;
    let sender = String::from_utf8_lossy(&header[SENDER]).into_owned();
    let is_cut = |ids: &CutOff| ids.contains(&sender) || ids.contains(&*to);
    if is_cut(&cut_off.borrow()) {
        return Ok(());
    }
    let mut node = TcpStream::connect(("127.0.0.1", port)).await?;
    node.write_all(&header).await?;
    tokio::select! {
        carried = copy_bidirectional(&mut from, &mut node) => { carried?; }
        cut = cut_off.wait_for(is_cut) => { cut?; }
    }
    Ok(())
}
