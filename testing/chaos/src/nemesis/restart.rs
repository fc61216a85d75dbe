//! `kill -9` of a master, which starts again before a replica takes over: it has what its log has.
//!
//! A killed process leaves to the kernel what it has written. So a power failure cuts the log as
//! well: before the kill the server stops flushing, and of what it writes from then on the log
//! keeps a random part.

use std::time::Duration;

use redis::cmd;
use serde::{Deserialize, Serialize};

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::process;
use crate::scenario::Scene;
use testkit::{AppendOnlyFile, PollLimit, Result, Server};

/// The append-only file of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Log {
    None,
    /// The default, which the quick start recommends.
    EverySec,
    Always,
}

/// Where the log ends when the server starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEnd {
    /// Where the process had written it.
    Whole,
    /// There, with a half of one more command.
    HalfCommand,
    /// Somewhere behind the last flush: the machine has lost power.
    OnDisk,
}

/// How long the server has not flushed its log when the power fails.
const UNFLUSHED: std::ops::Range<u64> = 200..1_000;

/// How long a supervisor takes to start the server again.
const DOWN: std::ops::Range<u64> = 0..500;

/// A rewrite would begin another file.
const NO_REWRITE: &str = "auto-aof-rewrite-percentage 0";

/// The log line of a server that has dropped half a command.
const TRUNCATED: &str = "loaded anyway because aof-load-truncated is enabled";

pub async fn strike(scene: &mut Scene) -> Result {
    let master = scene.some_master().await?;
    let struck = scene.names_at(master).await?;
    let slot = scene.slot(struck[0]);
    let epoch = scene.epoch(master).await?;
    let replica = scene.heir(master).await?;
    let (log, end) = (scene.load.log, scene.load.log_end);
    let marks = Marks::new(&scene.names[struck[0]], scene.faults.len());
    let pauses = [UNFLUSHED, DOWN].map(|range| Duration::from_millis(scene.random.u64(range)));
    scene.order(Change::Restarts(master));

    let node = scene.cluster.node(master);
    let process = node.id();
    marks.set(node, &marks.early).await?;
    let at = now();
    let lost = match end {
        LogEnd::OnDisk => {
            node.run_words::<()>("CONFIG SET appendfsync no").await?;
            let flushed = AppendOnlyFile::of(node)?.size()?;
            tokio::time::sleep(pauses[0]).await;
            let kept = flushed..=AppendOnlyFile::of(node)?.size()?;
            marks.set(node, &marks.late).await?;
            node.kill()?;
            let file = AppendOnlyFile::of(node)?;
            let written = file.size()?;
            let kept = scene.random.u64(kept);
            file.truncate(kept)?;
            written - kept
        }
        LogEnd::Whole | LogEnd::HalfCommand => {
            marks.set(node, &marks.late).await?;
            node.kill()?;
            if end == LogEnd::HalfCommand {
                AppendOnlyFile::of(node)?.append(marks.half_command().as_bytes())?;
            }
            0
        }
    };
    let gone = process.is_some_and(|id| process::state(id).is_none());
    ensure(gone, || format!("process {process:?} is there"))?;
    tokio::time::sleep(pauses[1]).await;
    let before = truncations(node);
    node.restart().await?;
    scene.cluster.wait_for_agreement().await?;

    let masters = (scene.cluster.master_of(slot).await?, scene.epoch(master).await?);
    ensure(masters == (master, epoch), || {
        format!("node {} has the slots at epoch {}", masters.0, masters.1)
    })?;
    let replicas = scene.cluster.replicas_of(master).await?;
    ensure(replicas == [replica], || format!("its replicas are {replicas:?}, not [{replica}]"))?;
    let dropped = truncations(node) - before;
    ensure(end != LogEnd::HalfCommand || dropped == 1, || {
        format!("{dropped} logs with half a command")
    })?;
    let found = marks.found(node).await?;
    let is_as_kept = match (log, end) {
        (Log::None, _) => found.is_empty(),
        (_, LogEnd::OnDisk) => found == marks.early,
        (Log::EverySec, _) => true, // a write may wait for a flush that is under way
        (Log::Always, _) => found == marks.late,
    };
    ensure(is_as_kept, || format!("after {:?} the mark is {found:?}", marks.late))?;
    marks.wait_for_replica(scene.cluster.node(replica), &found).await?;
    let proof = format!(
        "process {process:?} of node {master} is gone, and the node is a master at epoch {epoch} \
         again without {lost} bytes of its log; it and its replica {replica} have the mark {found:?}"
    );
    scene.fault("restart", at, struck.clone(), proof);
    scene.excuse(struck, now());
    Ok(())
}

/// A key in a slot of the master, which shows what a restart has kept.
struct Marks {
    key: String,
    /// A value from before the last flush.
    early: String,
    /// A value that the server has acknowledged last.
    late: String,
}

impl Marks {
    fn new(name: &str, fault: usize) -> Marks {
        let [early, late] = ["early", "late"].map(|when| format!("{when} {fault}"));
        Marks { key: format!("{{rwlease:{name}}}mark"), early, late }
    }

    async fn set(&self, node: &Server, value: &str) -> Result {
        node.run(cmd("SET").arg(&self.key).arg(value)).await
    }

    /// The value there, empty without one.
    async fn found(&self, node: &Server) -> Result<String> {
        let mut commands = redis::pipe();
        commands.cmd("READONLY").ignore().cmd("GET").arg(&self.key);
        let (found,): (Option<String>,) = commands.query_async(&mut node.connect().await?).await?;
        Ok(found.unwrap_or_default())
    }

    async fn wait_for_replica(&self, replica: &Server, value: &str) -> Result {
        let wait_limit = PollLimit::new("the replica to have what its master has");
        let check = || async {
            let found = self.found(replica).await?;
            ensure(found == value, || format!("it has the mark {found:?}"))
        };
        wait_limit.until_ok(check).await
    }

    /// The start of a script's writes: a whole command within a transaction, and half of another.
    fn half_command(&self) -> String {
        let command = |words: &[&str]| {
            let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            words.collect::<String>()
        };
        let set = command(&["SET", &self.key, "torn"]);
        format!("*1\r\n{}*3\r\n{set}*3\r\n{}", command(&["MULTI"]), &set[..set.len() / 2])
    }
}

impl Log {
    /// The lines of a server's configuration. Without any it has no log and no snapshots.
    pub fn settings(self) -> &'static [&'static str] {
        match self {
            Log::None => &[],
            Log::EverySec => &["appendonly yes", "appendfsync everysec", NO_REWRITE],
            Log::Always => &["appendonly yes", "appendfsync always", NO_REWRITE],
        }
    }
}

/// How often a server has dropped half a command, by its log.
fn truncations(node: &Server) -> usize {
    let log = std::fs::read(node.folder().join("server.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).matches(TRUNCATED).count()
}
