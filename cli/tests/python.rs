//! The client in Python, written from the page of the protocol, beside the command.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use rwlease::{Client, Slot};
use tokio::process::Command;
use tokio::time::sleep;

use crate::fixture::{Tool, ran};
use testkit::{Cluster, ClusterConfig, Error, Result, TempFolder, find_in_project};

const OF_EACH: usize = 3;
const ROUNDS: usize = 12;

/// Between two moves.
const PAUSE: Duration = Duration::from_millis(200);

/// More than anybody waits.
const LONG: Duration = Duration::from_secs(30);

/// A read-modify-write without any protection of its own; two at a time lose counts.
const COUNT: &str = "read -r n < \"$0\"; sleep 0.01; echo $((n + 1)) > \"$0\"";

#[tokio::test]
async fn python_client_passes_its_own_checks() -> Result {
    ran(python("check.py")?).await?.expect_status(0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_and_run_lose_no_count_while_the_slot_moves() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let tool = Tool::new(cluster.urls());
    let folder = TempFolder::new("python-moving")?;
    let file = folder.write("count", "0\n")?;
    write_scripts(&folder)?;

    let done = AtomicBool::new(false);
    let counting = async {
        let counted = tokio::try_join!(
            try_join_all((0..OF_EACH).map(|_| count_by_command(&tool, &file))),
            try_join_all((0..OF_EACH).map(|_| count_in_python(&cluster, &folder, &file))),
        );
        done.store(true, Ordering::Relaxed);
        counted
    };
    let (counted, moves) = tokio::join!(counting, keep_moving(&cluster, &done));
    counted?;
    let (count, moves) = (std::fs::read_to_string(&file)?, moves?);
    assert_eq!(count.trim(), (2 * OF_EACH * ROUNDS).to_string());
    assert!(moves >= 4, "the slot moved {moves} times");
    println!("{moves} moves of the slot under {} increments", 2 * OF_EACH * ROUNDS);
    Ok(())
}

/// A client in Rust that has the lock cached gives way to it.
#[tokio::test(flavor = "multi_thread")]
async fn python_client_that_waits_recalls_a_cached_holder() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let folder = TempFolder::new("python-cached")?;
    let file = folder.write("count", "0\n")?;
    write_scripts(&folder)?;

    let lock = Client::connect(cluster.urls()).await?.rwlock("shared")?.cached()?;
    let done = AtomicBool::new(false);
    let counting = async {
        let counted = count_in_python(&cluster, &folder, &file).await;
        done.store(true, Ordering::Relaxed);
        counted
    };
    let mut in_memory = 0;
    let caching = async {
        let mut counted = 0;
        while !done.load(Ordering::Relaxed) {
            let guard = lock.write().timeout(LONG).await?;
            in_memory += usize::from(lock.cache_status().hold.is_some());
            let count: usize = std::fs::read_to_string(&file)?.trim().parse()?;
            sleep(Duration::from_millis(1)).await;
            std::fs::write(&file, format!("{}\n", count + 1))?;
            counted += 1;
            let _ = guard.release().await?;
            sleep(Duration::from_millis(1)).await;
        }
        Ok::<usize, Error>(counted)
    };
    let (python, counted) = tokio::join!(counting, caching);
    python?;
    let count = std::fs::read_to_string(&file)?;
    assert_eq!(count.trim(), (ROUNDS + counted?).to_string());
    // Before 7.0 a server cannot call back, and the lock is plain.
    assert!(in_memory > 0 || !cluster.version().has_sharded_pubsub());
    println!("{in_memory} increments by a cached lease beside {ROUNDS} in Python");
    Ok(())
}

async fn keep_moving(cluster: &Cluster, done: &AtomicBool) -> Result<usize> {
    let slot = Slot::of("rwlease:shared").get();
    let mut moves = 0;
    while !done.load(Ordering::Relaxed) {
        let master = cluster.master_of(slot).await?;
        cluster.move_slot(slot, (master + 1) % 3).await?;
        moves += 1;
        sleep(PAUSE).await;
    }
    Ok(moves)
}

async fn count_by_command(tool: &Tool, file: &str) -> Result {
    for _ in 0..ROUNDS {
        tool.exits(&["run", "--write", "shared", "--", "sh", "-c", COUNT, file], 0).await?;
    }
    Ok(())
}

async fn count_in_python(cluster: &Cluster, scripts: &Path, file: &str) -> Result {
    let mut python = python("count.py")?;
    python.arg(cluster.node(0).url()).arg(scripts).args(["shared", file, &ROUNDS.to_string()]);
    ran(python).await?.expect_status(0);
    Ok(())
}

/// A program of the example, with the redis-py that `make redis-py` fetches.
fn python(program: &str) -> Result<Command> {
    let path = format!("examples/python/{program}");
    let program =
        find_in_project(&path).ok_or_else(|| Error::new(format!("{path} is not there")))?;
    let redis_py =
        find_in_project("target/python").ok_or_else(|| Error::new("run `make redis-py`"))?;
    let mut python = Command::new("python3");
    // `-B`: no folder of compiled files beside the sources.
    python.arg("-B").arg(program).env("PYTHONPATH", redis_py).kill_on_drop(true);
    Ok(python)
}

/// What the example `scripts` of the library does.
fn write_scripts(folder: &Path) -> Result {
    for script in rwlease::scripts() {
        let file = folder.join(format!("{}.lua", script.name()));
        std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        std::fs::write(file, script.text())?;
    }
    Ok(())
}
