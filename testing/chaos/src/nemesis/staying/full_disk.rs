//! The disk of a master is full, so that it cannot write its append-only file and refuses all
//! writes (`MISCONF`). Its replica does not take over: the master answers.
//!
//! Each server has a small disk of its own, in a mount namespace that ends with it.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;

use super::{Props, Touched, ensure};
use crate::scenario::Scene;
use testkit::{Cluster, ClusterConfig, Error, PollLimit, Result};

const MASTER: usize = 0;

/// Starts a server in its folder on a disk of its own. Its record of the cluster stays outside: a
/// server that cannot write that ends.
const START: &str = r#"mkdir -p disk && mount -t tmpfs -o size=64m disk disk && cd disk \
    && cp ../server.conf . && exec "$0" "$@""#;
const OUTSIDE: &str = "cluster-config-file ../nodes.conf";

/// What fills the disk.
const FILLER: &str = "filler";

pub async fn prepare(mut shape: ClusterConfig) -> Result<Option<(Cluster, Props)>> {
    if !may_mount() {
        return Ok(None);
    }
    shape.settings.before = ["unshare", "-m", "sh", "-c", START].map(String::from).to_vec();
    let shape = shape.line(OUTSIDE).line("appendonly yes").line("auto-aof-rewrite-min-size 8mb");
    Ok(Some((Cluster::start_with(shape).await?, Props::default())))
}

fn may_mount() -> bool {
    let script = "mount -t tmpfs disk /tmp";
    let tried = Command::new("unshare").args(["-m", "sh", "-c", script]).output();
    tried.is_ok_and(|output| output.status.success())
}

pub async fn strike(scene: &Scene) -> Result<Touched> {
    let names = scene.names_at(MASTER).await?;
    // A rewrite that fails would free the space that it has taken.
    set_rewrites(scene, 0).await?;
    let node = scene.cluster.node(MASTER);
    let wait_limit = PollLimit::new("the rewrite to end");
    while node.info("persistence").await?.get("aof_rewrite_in_progress").is_none_or(|is| is != "0")
    {
        wait_limit.pause("it is under way").await?;
    }
    fill(scene)?;
    PollLimit::new("the server to refuse writes").until_ok(|| look(scene)).await?;
    Ok(Touched { names, worker: None, errors: &["Rejected"], is_all_refused: true })
}

pub async fn look(scene: &Scene) -> Result<String> {
    let node = scene.cluster.node(MASTER);
    let info = node.info("persistence").await?;
    let status = info.get("aof_last_write_status").cloned().unwrap_or_default();
    ensure(status == "err", || format!("the last write to the disk was {status}"))?;
    let there = scene.names_at(MASTER).await?;
    let name = there.first().map_or("", |number| scene.names[*number].as_str());
    let refused = node.run_words::<()>(&format!("SET fill:{{rwlease:{name}}} 1")).await;
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure(refused.contains("MISCONF"), || format!("a write was answered {refused:?}"))?;
    Ok(format!("aof_last_write_status is {status}, and a write is refused by MISCONF"))
}

pub async fn lift(scene: &Scene) -> Result {
    std::fs::remove_file(disk(scene)?.join(FILLER))?;
    let wait_limit = PollLimit::new("the server to write again");
    let node = scene.cluster.node(MASTER);
    while node.info("persistence").await?.get("aof_last_write_status").is_none_or(|it| it != "ok") {
        wait_limit.pause("the last write failed").await?;
    }
    set_rewrites(scene, 100).await
}

/// By how many percent the file must have grown for a rewrite; 0 for none.
async fn set_rewrites(scene: &Scene, percent: u32) -> Result {
    let command = format!("CONFIG SET auto-aof-rewrite-percentage {percent}");
    scene.cluster.node(MASTER).run_words(&command).await
}

/// The server's disk, which only its own mount namespace has.
fn disk(scene: &Scene) -> Result<PathBuf> {
    let node = scene.cluster.node(MASTER);
    let id = node.id().ok_or_else(|| Error::new("the master has no process"))?;
    let folder = node.folder().join("disk");
    let inside = folder.strip_prefix("/").unwrap_or(&folder);
    Ok(PathBuf::from(format!("/proc/{id}/root")).join(inside))
}

/// Writes until the disk is full.
fn fill(scene: &Scene) -> Result {
    let path = disk(scene)?.join(FILLER);
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    for length in [64 * 1024, 1] {
        let zeros = vec![0; length];
        loop {
            match file.write_all(&zeros) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
