//! A process that is stopped for longer than its lease.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rwlease::Lease;

use super::bench::{Bench, soon};
use crate::support::connect;

/// The URL of the server, set only for the child.
const CHILD: &str = "RWLEASE_TEST_CHILD";

/// The least time for which the child is stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// A pause of the child that is longer than this means that it was stopped.
const PAUSE: Duration = Duration::from_millis(700);

/// A store that refuses tokens older than its last one.
const STORE: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or '0') then return 'refused' end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 'stored'";

fn store(token: u64, value: &str) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(STORE).arg(1).arg("the store").arg(token).arg(value);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_process_finds_its_lease_lost_and_its_write_refused() {
    let bench = Bench::new().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holding::stopped::lease_holder_in_the_child_process", "--nocapture"])
        .env(CHILD, bench.server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let (tell, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    let line = |word: &str| {
        loop {
            let line = lines.recv_timeout(Duration::from_secs(30)).unwrap();
            if let Some(rest) = line.split_once(word).map(|(_, rest)| rest.trim().to_owned()) {
                return rest;
            }
        }
    };
    let old: u64 = line("child holds").parse().unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let stopped = Instant::now();
    let lock = bench.locks.rwlock("stopped").unwrap();
    let guard = soon("the lease's end", lock.write().into_future()).await.unwrap();
    assert!(guard.token() > old);
    let stored: String = bench.server.run(&store(guard.token(), "new")).await.unwrap();
    assert_eq!(stored, "stored");
    tokio::time::sleep_until((stopped + STOPPED).into()).await;
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(line("child woke"), "Lost false 0ns");
    assert_eq!(line("child writes"), "refused");
    child.wait().unwrap();
    let value: String =
        bench.server.run(redis::cmd("HGET").arg("the store").arg("value")).await.unwrap();
    assert_eq!(value, "new");
}

/// Not a test: the process that is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn lease_holder_in_the_child_process() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    let locks = connect(&[&url]).await.unwrap();
    let lock = locks.rwlock("stopped").unwrap();
    let guard = lock.write().lease(Duration::from_secs(1)).await.unwrap();
    let lease = guard.clone();
    let token = guard.token();
    tokio::task::spawn_blocking(move || wait_to_be_stopped(&lease)).await.unwrap();
    let client = redis::Client::open(url).unwrap();
    let mut store_connection = client.get_multiplexed_async_connection().await.unwrap();
    let said: String = store(token, "old").query_async(&mut store_connection).await.unwrap();
    println!("\nchild writes {said}");
}

/// Prints the state of the lease as the first thing after a jump of time. It starts to watch for
/// the jump before it prints that it may be stopped.
fn wait_to_be_stopped(lease: &Lease) {
    let start = Instant::now();
    let mut last = start;
    println!("\nchild holds {}", lease.token());
    while last.duration_since(start) < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        if now.duration_since(last) > PAUSE {
            println!(
                "\nchild woke {:?} {} {:?}",
                lease.state(),
                lease.is_held(),
                lease.remaining()
            );
            return;
        }
        last = now;
    }
}
