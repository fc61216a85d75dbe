//! The suites that need real clusters, against the containers of `cluster-compose/`; a node that the engine kills or stops, and one that is cut off.
//!
//! All tests of a network share one cluster, so they go one after the other, and the containers are removed at the end: hence a runner of its own. Words on the command
//! line choose tests. Where no container engine answers they are skipped, unless `RWLEASE_COMPOSE=must` says that there has to be one; `RWLEASE_COMPOSE=no`
//! skips them anyway.

// A runner prints. The ban on direct clocks is for the library.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

#[macro_use]
mod conformance;
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use conformance::{LONG, locks, servers};
use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::{Locks, Released};
use support::{Backend, Cluster, Compose, Network, Patience, Result, engine_answers};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const RULE: &str = "RWLEASE_COMPOSE";

type Test = (&'static str, for<'a> fn(&'a Compose) -> BoxFuture<'a, Result>);

macro_rules! on_two_clients {
    ($($test:ident)*) => {
        [$((stringify!($test), |compose| {
            async move {
                let (one, other) = two_clients(compose, stringify!($test)).await?;
                locks::$test(&one, &other).await;
                Ok(())
            }
            .boxed()
        })),*]
    };
}

macro_rules! on_the_cluster {
    ($($module:ident::$test:ident)*) => {
        [$((stringify!($test), |compose| $module::$test(Backend::chosen(), compose).boxed())),*]
    };
}

const LOCKS: [Test; 12] = with_lock_tests! { on_two_clients!() };

const MOVES: [Test; 6] = on_the_cluster! {
    servers::locks_follow_their_slot
    servers::locks_are_taken_while_their_slot_migrates
    servers::exclusion_holds_while_slots_move
    servers::one_who_waits_follows_the_slot
    servers::a_hand_off_needs_no_poll
    servers::a_failover_by_order_loses_no_lock
};

/// What the engine does to a node. Each leaves a whole cluster behind.
mod engine {
    use super::*;

    pub async fn a_master_that_the_engine_kills_is_replaced(backend: Backend, compose: &Compose) -> Result {
        servers::a_dead_master_is_replaced(backend, compose).await?;
        bring_back(compose).await
    }

    pub async fn a_master_that_the_engine_stops_is_left(backend: Backend, compose: &Compose) -> Result {
        servers::a_frozen_master_is_left(backend, compose).await?;
        compose.agree().await
    }

    async fn bring_back(compose: &Compose) -> Result {
        let running = compose.running();
        for number in (0..compose.nodes().len()).filter(|number| !running.contains(number)) {
            compose.node(number).restart().await?;
        }
        compose.agree().await
    }
}

const ENGINE: [Test; 2] = on_the_cluster! {
    engine::a_master_that_the_engine_stops_is_left
    engine::a_master_that_the_engine_kills_is_replaced
};

/// Nodes that do not reach each other.
mod partition {
    use super::*;

    /// The holder at a master that was cut off loses its lease in time, another holds at the new master, and there is one lock again when the node comes back.
    pub async fn a_master_that_is_cut_off_is_left(backend: Backend, compose: &Compose) -> Result {
        let settings = || Locks::builder().call_timeout(LONG);
        let locks = backend
            .connect(settings().lease(Duration::from_secs(5)), &compose.urls())
            .await?;
        let other = backend.connect(settings(), &compose.urls()).await?;
        let lock = locks.rwlock("cut off")?;
        let slot = lock.slot().get();
        let owner = compose.owner(slot).await?;
        let held = lock.write().await?;
        replicated(compose).await?;

        compose.cut_off(owner)?;
        // The holder finds the new master before its lease ends, or loses the lock: either way others get it, from there.
        let token = held.token();
        let released = timeout(LONG, held.release()).await??;
        assert!(
            matches!(released, Released::Released | Released::AlreadyLost),
            "{released:?}"
        );
        let next = timeout(LONG, other.rwlock("cut off")?.write()).await??;
        assert!(next.token() > token);
        compose.reconnect(owner)?;
        compose.agree().await?;
        assert_ne!(compose.owner(slot).await?, owner);
        assert!(lock.try_read().await?.is_none(), "it is held at the new master");
        assert_eq!(next.release().await?, Released::Released);
        assert_eq!(timeout(LONG, lock.write()).await??.release().await?, Released::Released);
        Ok(())
    }

    /// Every replica has what was written until now.
    async fn replicated(compose: &Compose) -> Result {
        for number in compose.masters().await? {
            let patience = Patience::new("the replicas to have everything");
            while compose.node(number).say::<u64>("WAIT 1 1000").await? < 1 {
                patience.pause("not yet").await?;
            }
        }
        Ok(())
    }
}

const PARTITION: [Test; 1] = on_the_cluster! { partition::a_master_that_is_cut_off_is_left };

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if std::env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let rule = std::env::var(RULE).unwrap_or_default();
    match engine_answers() {
        _ if rule == "no" => {
            println!("skipped: {RULE}=no");
            return ExitCode::SUCCESS;
        }
        Ok(()) => {}
        Err(error) if rule == "must" => {
            println!("no container engine answers: {error}");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            println!("skipped: no container engine answers: {error}");
            return ExitCode::SUCCESS;
        }
    }
    let runtime = Runtime::new().unwrap();
    let shared = [&LOCKS[..], &MOVES, &ENGINE].concat();
    let failed = runtime.block_on(async {
        run(Network::Shared, &shared, &words).await + run(Network::Apart, &PARTITION, &words).await
    });
    println!("{failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs those that were chosen on a cluster of theirs; how many failed.
async fn run(network: Network, tests: &[Test], words: &[String]) -> usize {
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let tests: Vec<&Test> = tests.iter().filter(|(name, _)| chosen(name)).collect();
    if tests.is_empty() {
        return 0;
    }
    let compose = match Compose::up(network).await {
        Ok(compose) => compose,
        Err(error) => {
            println!("no cluster: {error}");
            return tests.len();
        }
    };
    println!("{} in containers", compose.version());
    let mut failed = 0;
    for (name, test) in tests {
        let started = Instant::now();
        let outcome = std::panic::AssertUnwindSafe(test(&compose)).catch_unwind().await;
        let verdict = match outcome {
            Ok(Ok(())) => "ok".into(),
            Ok(Err(error)) => format!("FAILED: {error}"),
            Err(_) => "FAILED".into(),
        };
        failed += usize::from(verdict != "ok");
        println!("test {name} ... {verdict} ({:.1} s)", started.elapsed().as_secs_f64());
    }
    failed
}

/// Locks of that test alone.
async fn two_clients(cluster: &Cluster, test: &str) -> Result<(Locks, Locks)> {
    let connect = async |node: usize| {
        let settings = Locks::builder().prefix(format!("{test}:"));
        Backend::chosen().connect(settings, &[cluster.node(node).url()]).await
    };
    Ok((connect(0).await?, connect(1).await?))
}
