//! The time of a pair of acquire and release, by what must confirm it: `cargo bench -p
//! rwlease-bench --bench confirmation`. It needs a server with `WAITAOF`
//! (`RWLEASE_SERVER=target/servers/redis-8.2`).

use std::time::{Duration, Instant};

use common::{Table, median};
use futures::future::try_join_all;
use rwlease::{Client, Fsync, RwLock};
use testkit::{ConnectBuilder, Result, ServerSettings, StandaloneServer};

/// How long each cell is measured.
const TIME: Duration = Duration::from_secs(5);
const TASKS: [usize; 2] = [1, 64];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::new(&["confirmed by", "ms a pair, 1 task", "ms a pair, 64 tasks"]);
    for appendfsync in ["always", "everysec"] {
        let settings = ServerSettings::default().line("appendonly yes");
        let settings = settings.line(format!("appendfsync {appendfsync}"));
        let master = StandaloneServer::start_with(settings.clone()).await?;
        let follow = settings.line(format!("replicaof 127.0.0.1 {}", master.port()));
        let _replica = StandaloneServer::start_with(follow).await?;
        master.wait_for_replica().await?;
        if appendfsync == "always" {
            println!("{}, a master and a replica, local processes.\n", master.version());
        }
        for (name, replicas, fsync) in [
            ("the master's memory", 0, Fsync::None),
            ("`min_replicas(1)`", 1, Fsync::None),
            ("`fsync(Fsync::Master)`", 0, Fsync::Master),
            ("`min_replicas(1).fsync(Fsync::All)`", 1, Fsync::All),
        ] {
            let builder = Client::builder().min_replicas(replicas).fsync(fsync);
            let client = builder.connect_to(&[master.url()]).await?;
            let mut cells = vec![format!("{name}, `appendfsync {appendfsync}`")];
            for tasks in TASKS {
                cells.push(format!("{:.2}", median(pairs(&client, tasks).await?)));
            }
            table.add(cells);
        }
    }
    println!("{table}");
    Ok(())
}

/// The times of pairs by so many tasks, in ms. Each task has its own lock.
async fn pairs(client: &Client, tasks: usize) -> Result<Vec<f64>> {
    let locks = (0..tasks).map(|task| client.rwlock(format!("bench{task}")));
    let locks: Vec<RwLock> = locks.collect::<rwlease::Result<_>>()?;
    try_join_all(locks.iter().map(pair)).await?;
    let until = Instant::now() + TIME;
    let run = |lock| async move {
        let mut times = Vec::new();
        while Instant::now() < until {
            times.push(pair(lock).await?.as_secs_f64() * 1e3);
        }
        Ok::<_, rwlease::Error>(times)
    };
    Ok(try_join_all(locks.iter().map(run)).await?.concat())
}

async fn pair(lock: &RwLock) -> rwlease::Result<Duration> {
    let start = Instant::now();
    let _ = lock.write().await?.release().await?;
    Ok(start.elapsed())
}
