//! What a client costs its runtime, and what a busy runtime costs a client.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease::Client;
use tokio::time::{Instant, sleep};

use crate::fixture::{MS, SECOND, client, engine, single};
use testkit::{ConnectBuilder, StandaloneServer};

/// Counts how often a future is polled.
async fn counted<T>(polls: Arc<AtomicU64>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::Relaxed);
        work.as_mut().poll(context)
    })
    .await
}

/// In real time: without a pause between renewals, simulated time would stand still. A busy machine
/// renews less often, never more.
#[tokio::test]
async fn lease_of_any_length_is_renewed_thrice_in_its_time_at_most() {
    for lease in [10, 20, 40, 59, 60, 61, 100, 300] {
        let (engine, lease) = (engine(), lease * MS);
        let locks = Client::builder().lease(lease).connect_embedded(&engine).await.unwrap();
        let lock = locks.rwlock("short").unwrap();
        let (mut renewals, mut time) = (0.0, Duration::ZERO);
        let mut tries = 0;
        while time < 500 * MS {
            tries += 1;
            assert!(tries < 1_000, "a lease of {lease:?} is never held");
            // A machine that stands still loses such a lease, or never gets it.
            let Ok(guard) = lock.write().await else {
                continue;
            };
            let start = Instant::now();
            engine.reset_script_stats();
            while guard.is_held() && start.elapsed() < 500 * MS {
                sleep(MS).await;
            }
            time += start.elapsed();
            renewals += engine.script_stats().scripts as f64;
            drop(guard);
            sleep(20 * MS).await;
        }
        let per_lease = renewals / (time.as_secs_f64() / lease.as_secs_f64());
        assert!(per_lease < 4.0, "{per_lease} renewals in each {lease:?}");
    }
}

/// Other tasks of a runtime with one thread have their turns while the worker releases.
#[tokio::test]
async fn drop_of_many_guards_lets_other_tasks_run() {
    const GUARDS: usize = 20_000;
    let engine = engine();
    let locks = client(&engine).await;
    let mut guards = Vec::new();
    for number in 0..GUARDS {
        guards.push(locks.rwlock(format!("many:{number}")).unwrap().write().await.unwrap());
    }
    let keys = engine.key_count();
    drop(guards);
    let (mut turns, before) = (0, engine.script_stats().scripts);
    while engine.script_stats().scripts < before + GUARDS as u64 {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(keys >= GUARDS && turns > GUARDS / 512, "{turns} turns");
}

/// On a real server, whose clients use the machine's clock.
#[tokio::test]
async fn lost_awaited_by_many_tasks_does_not_poll_every_second() {
    const TASKS: usize = 1_000;
    let server = StandaloneServer::start().await.unwrap();
    let locks = Client::builder().lease(60 * SECOND).connect_to(&[server.url()]).await.unwrap();
    let guard = locks.rwlock("long").unwrap().write().await.unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lease, polls) = (guard.clone(), polls.clone());
            tokio::spawn(async move { counted(polls, lease.ended()).await })
        })
        .collect();
    sleep(3500 * MS).await;
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < 2 * TASKS as u64, "{polls} polls of {TASKS} tasks");
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
}

/// Another task of a runtime with one thread runs for a twelfth of the lease between two turns of
/// the others. The first renewal takes two calls, as the server does not know the script.
#[tokio::test]
async fn lease_on_a_runtime_busy_for_a_twelfth_of_it_stays_held() {
    const LEASE: Duration = Duration::from_secs(3);
    let (server, locks) = single().await;
    for _ in 0..5 {
        server.run_words::<String>("SCRIPT FLUSH").await.unwrap();
        let guard = locks.rwlock("busy").unwrap().write().lease(LEASE).await.unwrap();
        let (start, mut longest) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < 2 * LEASE && guard.is_held() {
            let begin = Instant::now();
            std::thread::sleep(LEASE / 12);
            tokio::task::yield_now().await;
            longest = longest.max(begin.elapsed());
        }
        if guard.is_held() {
            return;
        }
        // The machine was busy for longer, too.
        assert!(longest > LEASE / 11, "lost, although nothing took longer than {longest:?}");
    }
    panic!("the machine is too busy for this test");
}
