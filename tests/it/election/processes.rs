//! Leaders in separate processes, which are killed and stopped.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use redis::cmd;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use rwlease::guard::LeaderWatcher;
use rwlease::{Client, Election, ErrorKind, FencingToken, LeaderGuard, Lease};
use tokio::time::timeout;

use crate::fixture::LONG;
use crate::waiting::child_process::{self, Child};
use testkit::{Cluster, ClusterConfig, ConnectBuilder, PollLimit, Result};

const LEASE: Duration = Duration::from_secs(1);

/// The number of candidates at a time, and of leaders that are struck.
const CANDIDATES: usize = 4;
const STRIKES: usize = 6;

/// The list in which leaders note when they led.
const SEEN: &str = "what leaders saw";

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

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_stopped_leaders_never_lead_concurrently() -> Result {
    const TEST: &str = "election::processes::killed_and_stopped_leaders_never_lead_concurrently";
    if child_process::is(TEST) {
        return stand_again_and_again().await;
    }
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let (_locks, leader) = leader(&cluster.urls(), "struck").await?;
    let mut candidates = BTreeMap::new();
    for _ in 0..CANDIDATES {
        let (id, candidate) = start(TEST, &cluster).await?;
        candidates.insert(id, candidate);
    }
    let mut watch = leader.observe().poll_interval(Duration::from_millis(20));
    let mut led = next_leader(&mut watch, 0).await?;
    for strike in 0..STRIKES {
        until_seen(&cluster, led.1).await?;
        let (id, mut struck) = candidates.remove_entry(&led.0).expect("a candidate leads");
        if strike % 2 == 0 {
            struck.kill().await?;
            led = next_leader(&mut watch, led.1).await?;
            let (id, candidate) = start(TEST, &cluster).await?;
            candidates.insert(id, candidate);
        } else {
            struck.freeze()?;
            led = next_leader(&mut watch, led.1).await?;
            struck.thaw()?;
            candidates.insert(id, struck);
        }
    }
    let seen = until_seen(&cluster, led.1).await?;
    assert!(seen.len() > STRIKES, "{seen:?}");
    let mut before: Option<(u64, Span)> = None;
    for (term, span) in seen {
        if let Some((older, last)) = before {
            assert!(
                last.last_asked <= span.first_answered,
                "{older} led at {}, and {term} from {} on",
                last.last_asked,
                span.first_answered
            );
        }
        before = Some((term, span));
    }
    Ok(())
}

async fn start(test: &str, cluster: &Cluster) -> Result<(String, Child)> {
    let mut candidate = Child::start(test, cluster)?;
    Ok((candidate.told().await?, candidate))
}

/// The leader after that term.
async fn next_leader(watch: &mut LeaderWatcher, after: u64) -> Result<(String, u64)> {
    loop {
        if let Some(leader) = timeout(LONG, watch.changed()).await?? {
            assert!(leader.term.get() > after, "terms rise");
            return Ok((leader.client_id().to_owned(), leader.term.get()));
        }
    }
}

/// A candidate, which leads whenever it can and notes when it saw that it led.
async fn stand_again_and_again() -> Result {
    let urls = child_process::urls()?;
    let (locks, leader) = leader(&urls, "struck").await?;
    let mut store = connect(&urls).await?;
    child_process::tell(&locks.client_id());
    loop {
        let led = lead(&leader).await?.run_while_leader(async |lease| -> Result {
            loop {
                note(&mut store, &lease).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        match led.await {
            Ok(stopped) => return stopped,
            Err(lost) => assert_eq!(lost.kind(), ErrorKind::LeaseLost),
        }
    }
}

/// Notes the term, the time before it checked whether it leads, and the time after.
async fn note(store: &mut redis::aio::MultiplexedConnection, lease: &Lease) -> Result {
    let (asked, leads, answered) = (now(), lease.is_held(), now());
    if leads {
        let line = format!("{} {asked} {answered}", lease.fencing_token().map_or(0, u64::from));
        let () = cmd("RPUSH").arg(SEEN).arg(line).query_async(store).await?;
    }
    Ok(())
}

/// A leader knew that it led at some moment before `first_answered`, and at some moment after
/// `last_asked`.
#[derive(Debug)]
struct Span {
    first_answered: u64,
    last_asked: u64,
}

async fn seen(cluster: &Cluster) -> Result<BTreeMap<u64, Span>> {
    let lines: Vec<String> = cluster.node(0).run(cmd("LRANGE").arg(SEEN).arg(0).arg(-1)).await?;
    let mut spans = BTreeMap::new();
    for line in lines {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        let (term, asked, answered) = (next(), next(), next());
        let first = Span { first_answered: answered, last_asked: asked };
        let span: &mut Span = spans.entry(term).or_insert(first);
        span.first_answered = span.first_answered.min(answered);
        span.last_asked = span.last_asked.max(asked);
    }
    Ok(spans)
}

/// Waits until the leader of this term has noted that it leads.
async fn until_seen(cluster: &Cluster, term: u64) -> Result<BTreeMap<u64, Span>> {
    let wait_limit = PollLimit::new(format!("a leader in term {term}"));
    loop {
        let seen = seen(cluster).await?;
        if seen.contains_key(&term) {
            return Ok(seen);
        }
        wait_limit.pause(format!("{seen:?}")).await?;
    }
}

/// The monotonic clock, which all processes of the machine share, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
