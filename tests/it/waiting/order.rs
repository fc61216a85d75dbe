//! The order of grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::RwLock;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::queue::{Look, Queue};
use super::{client, shared, soon};
use testkit::Result;

/// How often a request of the other kind must be seen waiting in a stream.
const ROUNDS: usize = 40;

/// The tokens of the holds.
type Log = Arc<Mutex<Vec<u64>>>;

#[derive(Clone, Copy)]
enum Mode {
    Read,
    Write,
}

/// Acquires, notes the grant, holds for a moment, releases.
async fn hold(lock: RwLock, mode: Mode, log: Log) -> Result {
    let note = |token| log.lock().expect("a holder panicked").push(token);
    match mode {
        Mode::Read => {
            let guard = soon(async { lock.read().await }).await??;
            note(guard.fencing_token().get());
            sleep(Duration::from_millis(5)).await;
            let _ = guard.release().await?;
        }
        Mode::Write => {
            let guard = soon(async { lock.write().await }).await??;
            note(guard.fencing_token().get());
            let _ = guard.release().await?;
        }
    }
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
                hold(lock.clone(), stream, log.clone()).await?;
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
        let waiting = tokio::spawn(hold(lock.clone(), kind, own.clone()));
        let found = loop {
            let queue = look.now().await?;
            if waits(&queue) {
                break Some(queue.fence());
            } else if waiting.is_finished() {
                break None; // it was granted before a query saw it
            }
        };
        waiting.await??;
        let token = own.lock().expect("a holder panicked").last().copied();
        seen.extend(found.zip(token));
    }
    over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let log = log.lock().expect("a holder panicked");
    assert!(log.len() > ROUNDS, "that was no stream: {}", log.len());
    let overtook = |(found, own): (u64, u64)| {
        log.iter().filter(|token| (found + 1..own).contains(*token)).count()
    };
    assert_eq!(seen.into_iter().map(overtook).sum::<usize>(), 0);
    Ok(())
}
