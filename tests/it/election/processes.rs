//! A leader in a process of its own, which is stopped.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use redis::cmd;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use rwlease::{Client, Election, ErrorKind, FencingToken, LeaderGuard};
use tokio::time::timeout;

use crate::fixture::LONG;
use crate::waiting::child_process::{self, Child};
use testkit::{Cluster, ClusterConfig, ConnectBuilder, Result};

const LEASE: Duration = Duration::from_secs(1);

async fn leader(urls: &[String], name: &str) -> Result<(Client, Election)> {
    let locks = Client::builder().lease(LEASE).connect_to(urls).await?;
    let leader = locks.election(name)?;
    Ok((locks, leader))
}

/// On a busy machine, an answer can arrive after so short a lease has ended.
async fn lead(leader: &Election) -> Result<LeaderGuard> {
    loop {
        match leader.campaign().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => continue,
            outcome => return Ok(outcome?),
        }
    }
}

/// A store that refuses tokens older than its last one.
const STORE: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or '0') then return 'refused' end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 'stored'";

fn store(token: FencingToken, value: &str) -> redis::Cmd {
    let mut command = cmd("EVAL");
    command.arg(STORE).arg(1).arg("the store").arg(token.get()).arg(value);
    command
}

/// Its lease is lost when it wakes, its work is not resumed, and the store refuses its late write.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_leader_does_no_more_work_when_it_wakes() -> Result {
    const TEST: &str = "election::processes::stopped_leader_does_no_more_work_when_it_wakes";
    if child_process::is(TEST) {
        let urls = child_process::urls()?;
        let (_locks, leader) = leader(&urls, "stopped").await?;
        let lead = lead(&leader).await?;
        let term = lead.term();
        let led = lead.run_while_leader(async |lease| {
            child_process::tell(&term.to_string());
            stop();
            child_process::tell(&format!("woke, {:?}, {:?}", lease.state(), lease.remaining()));
            yield_at_once().await;
            child_process::tell("works on");
        });
        assert_eq!(led.await.unwrap_err().kind(), ErrorKind::LeaseLost);
        let said: String = store(term, "old").query_async(&mut connect(&urls).await?).await?;
        child_process::tell(&format!("lost the lead, {said}"));
        return Ok(());
    }
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let (_locks, leader) = leader(&cluster.urls(), "stopped").await?;
    let mut stopped = Child::start(TEST, &cluster)?;
    let term: FencingToken = stopped.told().await?.parse()?;
    let lead = timeout(LONG, lead(&leader)).await??;
    assert!(lead.term() > term);
    assert_eq!(cluster.node(0).run::<String>(&store(lead.term(), "new")).await?, "stored");
    stopped.thaw()?;
    assert_eq!(stopped.told().await?, "woke, Lost, 0ns");
    assert_eq!(stopped.told().await?, "lost the lead, refused");
    let (well, said) = stopped.end().await?;
    assert!(well, "{said}");
    assert!(lead.is_leading());
    let value: String = cluster.node(0).run(cmd("HGET").arg("the store").arg("value")).await?;
    assert_eq!(value, "new");
    Ok(())
}

/// A plain connection to the first server.
async fn connect(urls: &[String]) -> Result<redis::aio::MultiplexedConnection> {
    Ok(redis::Client::open(urls[0].as_str())?.get_multiplexed_async_connection().await?)
}

/// Stops this process. Returns after the process continues.
fn stop() {
    let mut last = now();
    kill_process(getpid(), Signal::STOP).unwrap();
    // Another thread may have received the signal, so this one may run on for a moment.
    loop {
        let before = std::mem::replace(&mut last, now());
        if last - before > (LEASE / 2).as_nanos() as u64 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Yields once, and continues before the runtime checks its timers.
async fn yield_at_once() {
    let mut is_woken = false;
    poll_fn(|context| {
        let poll = if is_woken { Poll::Ready(()) } else { Poll::Pending };
        is_woken = true;
        context.waker().wake_by_ref();
        poll
    })
    .await
}

/// The monotonic clock, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
