//! A shard channel is subscribed on a connection that carries commands (RESP3), and its slot moves:
//! the server notifies the client. The commands have nothing to do with that slot.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, cmd};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const MOVES: usize = 5;
const TASKS: usize = 16;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let mut seen = Vec::new();
    for number in 0..MOVES {
        let channel = format!("channel{number}");
        let slot = cluster.slot_of(&channel).await?;
        let node = cluster.master_of(slot).await?;
        let (pushes, _told) = mpsc::unbounded_channel();
        let mut connection = connect(&cluster, node, pushes).await?;
        cmd("SSUBSCRIBE").arg(&channel).exec_async(&mut connection).await?;

        let (stop, stopped) = watch::channel(false);
        let asking: JoinSet<Seen> =
            (0..TASKS).map(|task| ask(connection.clone(), task, stopped.clone())).collect();
        cluster.move_slot(slot, 1 - node).await?;
        stop.send_replace(true);
        seen.extend(asking.join_all().await);
    }
    Ok(seen.into_iter().sum())
}

async fn connect(
    cluster: &Cluster,
    node: usize,
    pushes: mpsc::UnboundedSender<redis::PushInfo>,
) -> Result<MultiplexedConnection> {
    let client = Client::open(format!("{}?protocol=resp3", cluster.node(node).url()))?;
    let config = AsyncConnectionConfig::new().set_push_sender(pushes);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Each asks for a word of its own; an error does not count.
async fn ask(
    mut connection: MultiplexedConnection,
    task: usize,
    stopped: watch::Receiver<bool>,
) -> Seen {
    let mut seen = Seen::default();
    let mut count = 0;
    while !*stopped.borrow() {
        count += 1;
        let word = format!("{task}:{count}");
        let answer: RedisResult<String> = cmd("ECHO").arg(&word).query_async(&mut connection).await;
        seen.note(answer.is_ok_and(|answer| answer != word));
    }
    seen
}
