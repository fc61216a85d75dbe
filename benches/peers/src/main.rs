//! The locks of others, which a bench of rwlease drives line by line: `<peer> hand_offs <count>`,
//! `<peer> crowd <tasks> <writes>` and `<peer> pairs <locks> <tasks> <reads of a hundred> <ms>`, or
//! `<peer> due <locks> <pairs a second> <reads of a hundred> <ms>`. The answers are lines of
//! microseconds. Each peer uses the cluster connection of its own client crate.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use load::{Crowd, LoadRun, Lock, closed, crowd, hand_offs, open};
use rand::RngExt;
use rds_lock::{Locker, Mode};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use rslock::{LockGuard, LockManager};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// As long as this library's by default.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (server, key) = words.next().zip(words.next()).ok_or("usage: peers SERVER KEY")?;
    let rslock = [Rslock::new(&server, &key)?, Rslock::new(&server, &key)?];
    let rds = [RdsLock::connect(&server, &key).await?, RdsLock::connect(&server, &key).await?];
    answer([])?;
    for order in std::io::stdin().lock().lines() {
        let order = order?;
        match order.split_whitespace().next() {
            Some("rslock") => obey(&rslock, &order).await?,
            Some("rds_lock") => obey(&rds, &order).await?,
            _ => return Err(format!("who is {order}?").into()),
        }
    }
    Ok(())
}

async fn obey<L: Lock + Named>(locks: &[L; 2], order: &str) -> Result<(), Failure> {
    match *order.split_whitespace().skip(1).collect::<Vec<_>>() {
        ["hand_offs", count] => {
            answer(hand_offs(locks.clone(), count.parse()?, anywhere_in_a_pause).await)
        }
        ["crowd", tasks, writes] => {
            let Crowd { elapsed, waits, holds } =
                crowd(&locks[0], tasks.parse()?, writes.parse()?).await;
            answer([elapsed])?;
            answer(waits)?;
            answer(holds)
        }
        ["pairs", count, tasks, reads, ms] => {
            let named = named(&locks[0], count.parse()?, reads.parse()?);
            answer_run(closed(&named, tasks.parse()?, Duration::from_millis(ms.parse()?)).await)
        }
        ["due", count, rate, reads, ms] => {
            let named = named(&locks[0], count.parse()?, reads.parse()?);
            answer_run(open(&named, rate.parse()?, Duration::from_millis(ms.parse()?)).await)
        }
        _ => Err(format!("what is {order}?").into()),
    }
}

fn named<L: Named>(lock: &L, count: usize, reads: u8) -> Arc<[L]> {
    (0..count).map(|number| lock.named(number, reads)).collect()
}

fn answer_run(run: LoadRun) -> Result<(), Failure> {
    answer([run.elapsed])?;
    answer(run.pairs)?;
    answer(run.open)?;
    answer(run.start_delays)
}

fn answer(times: impl IntoIterator<Item = Duration>) -> Result<(), Failure> {
    let words: Vec<String> = times.into_iter().map(|time| time.as_micros().to_string()).collect();
    println!("{}", words.join(" "));
    Ok(std::io::stdout().flush()?)
}

/// They sleep up to 200 ms between two looks, or 100: the release comes at any moment of that.
fn anywhere_in_a_pause() -> Duration {
    Duration::from_millis(rand::rng().random_range(5..205))
}

/// The same kind of lock under a name of its own, which so many of a hundred want to read.
trait Named {
    fn named(&self, number: usize, reads: u8) -> Self;
}

/// `rslock`, as it is by default: a random pause of up to 200 ms. It knows no reads: who only reads
/// excludes the others too.
#[derive(Clone)]
struct Rslock {
    manager: LockManager,
    key: Arc<str>,
}

impl Rslock {
    fn new(server: &str, key: &str) -> Result<Self, Failure> {
        Ok(Rslock {
            manager: LockManager::new_cluster(vec![server])?,
            key: format!("{key}:rslock").into(),
        })
    }
}

impl Named for Rslock {
    fn named(&self, number: usize, _reads: u8) -> Self {
        let key = format!("{}:{number}", self.key).into();
        Rslock { key, ..self.clone() }
    }
}

impl Lock for Rslock {
    type Held = LockGuard;

    async fn take(&self) -> LockGuard {
        self.manager.acquire(&*self.key, LEASE).await.expect("not taken")
    }

    async fn release(held: LockGuard) {
        held.release().await;
    }
}

/// `rds_lock`, as it is by default (a pause of 100 ms), but without a limit for the wait.
#[derive(Clone)]
struct RdsLock {
    connection: ClusterConnection,
    key: Arc<str>,
    /// Of a hundred.
    reads: u8,
}

impl RdsLock {
    async fn connect(server: &str, key: &str) -> Result<Self, Failure> {
        Ok(RdsLock {
            connection: ClusterClient::new(vec![server])?.get_async_connection().await?,
            key: format!("{key}:rds_lock").into(),
            reads: 0,
        })
    }
}

impl Named for RdsLock {
    fn named(&self, number: usize, reads: u8) -> Self {
        let key = format!("{}:{number}", self.key).into();
        RdsLock { key, reads, ..self.clone() }
    }
}

impl Lock for RdsLock {
    type Held = BoxFuture<'static, ()>;

    async fn take(&self) -> Self::Held {
        let reads = rand::rng().random_range(0..100) < self.reads;
        let locker = Locker::new(self.connection.clone())
            .mode(if reads { &Mode::R } else { &Mode::W })
            .to(LEASE.as_millis() as u64)
            .rty_to(-1);
        let unlock = locker.lock(self.key.to_string()).await.expect("not taken");
        Box::pin(async move { unlock.await.expect("not released") })
    }

    async fn release(held: Self::Held) {
        held.await;
    }
}
