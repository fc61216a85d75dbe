//! The suites that need real clusters, run on the containers of `cluster-compose/`; a node that the
//! engine kills or stops, and one that is cut off.
//!
//! All tests of a network share one cluster, so they run one after the other, and the containers
//! are removed at the end: therefore this program has its own runner. Words on the command line
//! choose tests. If no container engine answers, the tests are skipped, unless
//! `RWLEASE_COMPOSE=must` requires one; `RWLEASE_COMPOSE=no` always skips them.

// A runner prints. The ban on direct clocks is for the library.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

use std::future::pending;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use conformance::{LONG, locks, servers};
use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::{Client, ReleaseOutcome};
use testkit::{Backend, Cluster, Compose, Error, Network, PollLimit, Result, engine_answers};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

const RULE: &str = "RWLEASE_COMPOSE";
/// The limit for one test. Each of its parts has its own limit.
const LIMIT: Duration = Duration::from_secs(300);

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

const LOCKS: &[Test] = &conformance::with_lock_tests! { on_two_clients, };

/// What the engine does to a node. Each test leaves a whole cluster behind.
mod engine {
    use super::*;

    pub async fn a_master_that_the_engine_kills_is_replaced(
        backend: Backend,
        compose: &Compose,
    ) -> Result {
        servers::a_dead_master_is_replaced(&(backend, &**compose)).await?;
        bring_back(compose).await
    }

    pub async fn a_master_that_the_engine_stops_is_left(
        backend: Backend,
        compose: &Compose,
    ) -> Result {
        servers::a_frozen_master_is_left(&(backend, &**compose)).await?;
        compose.wait_for_agreement().await
    }

    async fn bring_back(compose: &Compose) -> Result {
        let running = compose.running();
        for number in (0..compose.nodes().len()).filter(|number| !running.contains(number)) {
            compose.node(number).restart().await?;
        }
        compose.wait_for_agreement().await
    }
}

const ENGINE: &[Test] = &on_the_cluster! {
    engine::a_master_that_the_engine_stops_is_left
    engine::a_master_that_the_engine_kills_is_replaced
};

/// A small form of a row of the scorecard that needs only commands. It runs last, because the nodes
/// keep its timeout.
mod migration {
    use super::*;
    use chaos::run::{TRIES, run_on};
    use chaos::scorecard_rows::rows;
    use chaos::verdict::Outcome;

    pub async fn slots_move_key_by_key(_: Backend, compose: &Compose) -> Result {
        let row = rows().into_iter().find(|row| row.name == "moves").unwrap();
        let node_timeout = format!("CONFIG SET cluster-node-timeout {}", row.node_timeout);
        for node in compose.nodes() {
            node.run_words::<()>(&node_timeout).await?;
        }
        for variant in &row.variants {
            let seed = fastrand::u64(..);
            let folder =
                std::env::temp_dir().join(format!("rwlease-compose-{}-{seed}", std::process::id()));
            for attempt in 1..=TRIES {
                let cluster = compose.as_cluster().await?;
                let run = run_on(cluster, &row, variant, row.smoke, seed, &folder).await?;
                let (report, logs) = (run.report(), folder.display());
                match run.verdict.outcome() {
                    Outcome::Kept => break,
                    Outcome::Void if attempt < TRIES => println!("{report}"),
                    _ => return Err(Error::new(format!("seed {seed}, logs in {logs}: {report}"))),
                }
            }
            std::fs::remove_dir_all(folder)?;
        }
        Ok(())
    }
}

const MIGRATION: &[Test] = &on_the_cluster! { migration::slots_move_key_by_key };

/// Nodes that cannot reach each other.
mod partition {
    use super::*;

    /// The holder at a master that was cut off finds the new master before its lease ends, or knows
    /// that it has lost the lock before another client holds it there. When the node returns, there
    /// is one lock again.
    pub async fn a_master_that_is_cut_off_is_left(backend: Backend, compose: &Compose) -> Result {
        let settings = || Client::builder().call_timeout(LONG);
        let lease = Duration::from_secs(5);
        let locks = backend.connect(settings().lease(lease), &compose.urls()).await?;
        let other = backend.connect(settings(), &compose.urls()).await?;
        let lock = locks.rwlock("cut off")?;
        let slot = lock.slot().get();
        let master = compose.master_of(slot).await?;
        let held = lock.write().await?;
        let token = held.fencing_token().get();
        replicated(compose).await?;

        compose.cut_off(master)?;
        let mut waiting = pin!(async { other.rwlock("cut off")?.write().await });
        // A holder that still holds after this time has renewed at the new master. A holder that
        // has lost the lock may still be waiting.
        let is_renewed = async {
            sleep(lease * 3).await;
            if !held.is_held() {
                pending::<()>().await;
            }
        };
        let next = tokio::select! {
            next = timeout(LONG, &mut waiting) => {
                assert!(!held.is_held(), "two hold it");
                Some(next??)
            }
            () = is_renewed => None,
        };
        let next = match next {
            Some(next) => {
                assert_ne!(held.release().await?, ReleaseOutcome::Released);
                next
            }
            None => {
                assert_eq!(timeout(LONG, held.release()).await??, ReleaseOutcome::Released);
                timeout(LONG, waiting).await??
            }
        };
        assert!(next.fencing_token().get() > token);
        compose.reconnect(master)?;
        compose.wait_for_agreement().await?;
        assert_ne!(compose.master_of(slot).await?, master);
        assert!(lock.try_read().await?.is_none(), "it is held at the new master");
        assert_eq!(next.release().await?, ReleaseOutcome::Released);
        assert_eq!(timeout(LONG, lock.write()).await??.release().await?, ReleaseOutcome::Released);
        Ok(())
    }

    /// Waits until every replica has what was written before the PING, by any client.
    async fn replicated(compose: &Compose) -> Result {
        for number in compose.masters().await? {
            let has_everything = || async {
                let mut wait = redis::pipe();
                wait.cmd("PING").ignore().cmd("WAIT").arg(1).arg(1_000);
                let mut connection = compose.node(number).connect().await?;
                let (replicas,): (u64,) = wait.query_async(&mut connection).await?;
                Ok(replicas >= 1)
            };
            PollLimit::new("the replicas to have everything").until(has_everything).await?;
        }
        Ok(())
    }
}

const PARTITION: [Test; 1] = on_the_cluster! { partition::a_master_that_is_cut_off_is_left };

fn main() -> ExitCode {
    // A worker of a row is another process of this program.
    if let Some(worked) = chaos::worker::work_if_told() {
        return match worked {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:?}");
                ExitCode::FAILURE
            }
        };
    }
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
    let shared = chosen(&[LOCKS, ENGINE, MIGRATION].concat());
    let apart = chosen(&PARTITION);
    if shared.is_empty() && apart.is_empty() {
        println!("no test is called that");
        return if rule == "must" { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let failed = runtime.block_on(async {
        run(Network::Shared, &shared).await + run(Network::Apart, &apart).await
    });
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests whose names contain a word of the command line, or all.
fn chosen(tests: &[Test]) -> Vec<Test> {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    tests.iter().filter(|(name, _)| is_chosen(name)).copied().collect()
}

/// Runs the tests on their own cluster, and returns how many failed.
async fn run(network: Network, tests: &[Test]) -> usize {
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
        let running = std::panic::AssertUnwindSafe(test(&compose)).catch_unwind();
        let verdict = match timeout(LIMIT, running).await {
            Ok(Ok(Ok(()))) => "ok".into(),
            Ok(Ok(Err(error))) => format!("FAILED: {error}"),
            Ok(Err(_)) => "FAILED".into(),
            Err(_) => format!("FAILED: not done in {LIMIT:?}"),
        };
        failed += usize::from(verdict != "ok");
        println!("test {name} ... {verdict} ({:.1} s)", started.elapsed().as_secs_f64());
    }
    failed
}

/// Two clients, with locks for that test alone.
async fn two_clients(cluster: &Cluster, test: &str) -> Result<(Client, Client)> {
    let connect = async |node: usize| {
        let settings = Client::builder().key_prefix(format!("{test}:"));
        Backend::chosen().connect(settings, &[cluster.node(node).url()]).await
    };
    Ok((connect(0).await?, connect(1).await?))
}
