//! Many processes count in one file, while the lock's slot moves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use rwlease::Slot;
use tokio::time::sleep;

use crate::support::{Cluster, ClusterConfig, Error, Result};
use crate::tool::Tool;

const PROCESSES: usize = 50;
const ROUNDS: usize = 20;

/// Between two moves.
const PAUSE: Duration = Duration::from_millis(200);

/// A read-modify-write without any protection of its own; two at a time lose counts.
const COUNT: &str = "read -r n < \"$0\"; echo $((n + 1)) > \"$0\"";

#[tokio::test(flavor = "multi_thread")]
async fn run_loses_no_count_while_slots_move() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let tool = Tool::new(cluster.urls());
    let file = std::env::temp_dir().join(format!("rwlease-counter-{}", std::process::id()));
    std::fs::write(&file, "0\n")?;
    let name = file.to_string_lossy().into_owned();

    let done = AtomicBool::new(false);
    let counting = async {
        let counted = try_join_all((0..PROCESSES).map(|_| count(&tool, &name))).await;
        done.store(true, Ordering::Relaxed);
        counted
    };
    let moving = async {
        let slot = Slot::of("rwlease:counter").get();
        let mut moves = 0;
        while !done.load(Ordering::Relaxed) {
            let master = cluster.master_of(slot).await?;
            cluster.move_slot(slot, (master + 1) % 3).await?;
            moves += 1;
            sleep(PAUSE).await;
        }
        Ok::<_, Error>(moves)
    };
    let (counted, moves) = tokio::join!(counting, moving);
    counted?;
    let (count, moves) = (std::fs::read_to_string(&file)?, moves?);
    std::fs::remove_file(&file)?;
    assert_eq!(count.trim(), (PROCESSES * ROUNDS).to_string());
    assert!(moves >= 10, "the slot moved {moves} times");
    println!("{moves} moves of the slot under {} increments", PROCESSES * ROUNDS);
    Ok(())
}

async fn count(tool: &Tool, file: &str) -> Result {
    for _ in 0..ROUNDS {
        let ran = tool.run(&["run", "--write", "counter", "--", "sh", "-c", COUNT, file]).await?;
        if ran.status != Some(0) {
            return Err(Error::new(format!("{ran:?}")));
        }
    }
    Ok(())
}
