//! The order of grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::RwLock;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::queue::{Look, Queue, until, until_listening};
use super::{client, hearing, shared, soon};
use crate::support::Result;

/// How often a request of the other kind must be seen waiting in a stream.
const ROUNDS: usize = 40;

/// The holds in the order of their grants: each has a greater token than the one before it.
type Log = Arc<Mutex<Vec<(u64, &'static str)>>>;

#[derive(Clone, Copy)]
enum Mode {
    Read,
    Write,
}

/// Acquires, notes the grant, holds for a moment, releases.
async fn hold(lock: RwLock, mode: Mode, name: &'static str, log: Log) -> Result {
    let note = |token| log.lock().expect("a holder panicked").push((token, name));
    match mode {
        Mode::Read => {
            let guard = soon(async { lock.read().await }).await??;
            note(guard.token());
            sleep(Duration::from_millis(5)).await;
            let _ = guard.release().await?;
        }
        Mode::Write => {
            let guard = soon(async { lock.write().await }).await??;
            note(guard.token());
            let _ = guard.release().await?;
        }
    }
    Ok(())
}

fn sorted(log: &Log) -> Vec<&'static str> {
    let mut log = log.lock().expect("a holder panicked").clone();
    log.sort_unstable();
    log.into_iter().map(|(_, name)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_are_granted_in_queue_order() -> Result {
    const NAMES: [&str; 12] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"];
    let cluster = shared().await?;
    let clients = [hearing(cluster).await?, hearing(cluster).await?, hearing(cluster).await?];
    let first = clients[0].rwlock("in order")?;
    let held = first.write().await?;
    let (log, mut tasks) = (Log::default(), JoinSet::new());
    for (at, name) in NAMES.into_iter().enumerate() {
        let lock = clients[at % 3].rwlock("in order")?;
        tasks.spawn(hold(lock, Mode::Write, name, log.clone()));
        until(cluster, &first, "one more waits", |queue| queue.waiters().len() == at + 1).await?;
    }
    until_listening(cluster, &first, NAMES.len()).await?;
    let _ = held.release().await?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    assert_eq!(sorted(&log), NAMES);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_waiting_when_a_write_ends_are_granted_before_the_next_writer() -> Result {
    use Mode::{Read, Write};
    let cluster = shared().await?;
    let clients = [hearing(cluster).await?, hearing(cluster).await?];
    let first = clients[0].rwlock("phases")?;
    let held = first.write().await?;
    let (log, mut tasks) = (Log::default(), JoinSet::new());
    let lock = clients[0].rwlock("phases")?;
    let reader = tokio::spawn(async move { lock.read().await });
    until(cluster, &first, "the first waits", |queue| queue.waiters().len() == 1).await?;
    let queue = [("w1", Write), ("r2", Read), ("w2", Write), ("r3", Read)];
    for (at, (name, mode)) in queue.into_iter().enumerate() {
        let lock = clients[at % 2].rwlock("phases")?;
        tasks.spawn(hold(lock, mode, name, log.clone()));
        until(cluster, &first, "one more waits", |queue| queue.waiters().len() == at + 2).await?;
    }
    until_listening(cluster, &first, queue.len() + 1).await?;
    let _ = held.release().await?;
    let after = Queue::of(cluster, &first).await?;
    assert!(after.writer().is_none(), "three readers were let in: {after:?}");
    let reading = soon(reader).await???;
    log.lock().expect("a holder panicked").push((reading.token(), "r1"));
    // Another reader comes while these read, and finds writers waiting.
    tasks.spawn(hold(first.clone(), Read, "r4", log.clone()));
    until(cluster, &first, "writers and a reader wait", |queue| queue.waiters().len() == 3).await?;
    let _ = reading.release().await?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let order = sorted(&log);
    assert_eq!(order[..4], ["r1", "r2", "r3", "w1"], "{order:?}");
    // It came while the first readers read, so it is granted when w1 ends.
    assert_eq!(order[4..], ["r4", "w2"], "{order:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steady_stream_of_readers_does_not_overtake_a_waiting_writer() -> Result {
    nobody_overtakes("read, read, read", Mode::Read).await
}

#[tokio::test(flavor = "multi_thread")]
async fn steady_stream_of_writers_does_not_overtake_a_waiting_reader() -> Result {
    nobody_overtakes("write, write, write", Mode::Write).await
}

/// In a stream of requests of one kind, a queued request of the other kind is the next to be
/// granted, again and again. The server gives out no token between the query that finds it queued
/// and its grant.
async fn nobody_overtakes(name: &str, stream: Mode) -> Result {
    let cluster = shared().await?;
    let clients = [client(cluster).await?, client(cluster).await?];
    let (log, over, mut tasks) = (Log::default(), Arc::new(AtomicBool::new(false)), JoinSet::new());
    for at in 0..6 {
        let (lock, log, over) = (clients[at % 2].rwlock(name)?, log.clone(), over.clone());
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                hold(lock.clone(), stream, "of the stream", log.clone()).await?;
            }
            Result::Ok(())
        });
    }
    let (kind, waits): (_, fn(&Queue) -> bool) = match stream {
        Mode::Read => (Mode::Write, Queue::has_waiting_writer),
        Mode::Write => (Mode::Read, Queue::has_waiting_reader),
    };
    let lock = client(cluster).await?.rwlock(name)?;
    let mut look = Look::at(cluster, &lock).await?;
    let (own, mut seen) = (Log::default(), Vec::new());
    while seen.len() < ROUNDS {
        let waiting = tokio::spawn(hold(lock.clone(), kind, "of the other kind", own.clone()));
        let found = loop {
            let queue = look.now().await?;
            if waits(&queue) {
                break Some(queue.fence());
            } else if waiting.is_finished() {
                break None; // it was granted before a query saw it
            }
        };
        waiting.await??;
        let token = own.lock().expect("a holder panicked").last().map(|one| one.0);
        seen.extend(found.zip(token));
    }
    over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let log = log.lock().expect("a holder panicked");
    assert!(log.len() > ROUNDS, "that was no stream: {}", log.len());
    let overtook = |(found, own): (u64, u64)| {
        log.iter().filter(|(token, _)| (found + 1..own).contains(token)).count()
    };
    assert_eq!(seen.into_iter().map(overtook).sum::<usize>(), 0);
    Ok(())
}
