//! Servers with wrong clocks: they run under libfaketime, which reads the offset from a file for
//! each server.
//!
//! That works with servers that use the memory allocator of the C library, such as the Valkey of
//! `make valkey`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::{fail_over, moves};
use crate::history::now;
use crate::scenario::Scene;
use testkit::{Cluster, ClusterConfig, PollLimit, Result, Server, find_binary};

/// Names the library, if it is not where Debian's package `libfaketime` installs it.
const LIBRARY: &str = "RWLEASE_FAKETIME";
const USUAL: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// The file in each server's folder.
const CLOCK: &str = "clock";

/// The maximum offset of a clock: any two differ by less than the margin of the leases.
const SKEW_MS: i64 = 200;

/// How far a clock jumps: less than the time by which a key outlives its leases.
const STEP_MS: std::ops::RangeInclusive<i64> = 4_000..=9_000;
const FAR_MS: i64 = 300_000;
const WHILE: Duration = Duration::from_millis(1_500);

/// The clock that is wrong all the time, by less than the margin.
const OFF: usize = 0;
const OFF_MS: i64 = 300;

/// The tolerance of reading a clock back, and the longest query that counts.
const ABOUT_MS: i64 = 5;
const QUICK_MS: i64 = 100;

/// A cluster whose clocks can be set, if the library is installed and works with this server.
pub async fn prepare(mut shape: ClusterConfig) -> Result<Option<Cluster>> {
    let named = std::env::var_os(LIBRARY).map(PathBuf::from);
    let usual = USUAL.iter().map(PathBuf::from);
    let Some(library) = named.into_iter().chain(usual).find(|file| file.is_file()) else {
        return Ok(None);
    };
    if brings_its_own_memory(&find_binary()?)? {
        return Ok(None);
    }
    shape.settings.before = vec![
        "env".into(),
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME_TIMESTAMP_FILE={CLOCK}"),
        "FAKETIME_NO_CACHE=1".into(),
        "DONT_FAKE_MONOTONIC=1".into(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
    ];
    let cluster = Cluster::start_with(shape).await?;
    let node = cluster.node(0);
    set(node, FAR_MS)?;
    sleep(Duration::from_millis(100)).await;
    let can_be_set = is_off_by(node, FAR_MS).await?;
    set(node, 0)?;
    Ok(can_be_set.then_some(cluster))
}

/// Debian's Redis uses jemalloc: with this library it stops at its start.
fn brings_its_own_memory(server: &Path) -> Result<bool> {
    let told = Command::new(server).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&told.stdout).contains("malloc=jemalloc"))
}

/// Sets all clocks anew, slightly wrong. Then a slot moves and a replica takes over, so that locks
/// meet other clocks.
pub async fn skew(scene: &mut Scene) -> Result {
    let at = now();
    let mut offsets = Vec::new();
    for number in scene.cluster.running() {
        let off = scene.random.i64(-SKEW_MS..=SKEW_MS);
        set_and_see(scene.cluster.node(number), off).await?;
        offsets.push(off);
    }
    let before = scene.faults.len();
    moves::strike(scene).await?;
    fail_over::strike(scene).await?;
    let proofs: Vec<String> = scene.faults.drain(before..).map(|fault| fault.proof).collect();
    scene.fault(
        "skew",
        at,
        scene.all(),
        format!("clocks off by {offsets:?} ms; {}", proofs.join("; ")),
    );
    Ok(())
}

/// The clock of one master jumps and, after a while, jumps back.
pub async fn step(scene: &mut Scene) -> Result {
    let master = scene.some_master().await?;
    let struck = scene.names_at(master).await?;
    let size = scene.random.i64(STEP_MS);
    let off = if scene.random.bool() { size } else { -size };
    let node = scene.cluster.node(master);
    let at = now();
    set_and_see(node, off).await?;
    sleep(WHILE).await;
    set_and_see(node, 0).await?;
    scene.cluster.wait_for_agreement().await?;
    scene.fault(
        "step",
        at,
        struck.clone(),
        format!("the clock of node {master} was off by {off} ms"),
    );
    scene.excuse(struck, now());
    Ok(())
}

/// One clock is wrong from now on.
pub async fn set_off(scene: &Scene) -> Result {
    set_and_see(scene.cluster.node(OFF), OFF_MS).await
}

/// Reads it back.
pub async fn look(scene: &Scene) -> Result<String> {
    let wait_limit = PollLimit::new(format!("a quick reply with a clock off by {OFF_MS} ms"));
    wait_limit.until(|| is_off_by(scene.cluster.node(OFF), OFF_MS)).await?;
    Ok(format!("the clock of node {OFF} is off by {OFF_MS} ms"))
}

/// Ends `set_off`.
pub async fn set_right(scene: &Scene) -> Result {
    set_and_see(scene.cluster.node(OFF), 0).await
}

fn set(node: &Server, off: i64) -> Result {
    let (sign, size) = (if off < 0 { '-' } else { '+' }, off.unsigned_abs());
    let text = format!("{sign}{}.{:03}s\n", size / 1_000, size % 1_000);
    // In one step, because the server may read it at any time.
    let new = node.folder().join("clock.new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(new, node.folder().join(CLOCK))?)
}

/// Sets a clock, and waits until the server follows it.
async fn set_and_see(node: &Server, off: i64) -> Result {
    set(node, off)?;
    PollLimit::new(format!("a clock to be off by {off} ms")).until(|| is_off_by(node, off)).await
}

/// Whether the server's clock is that many ms ahead of this machine's, within the tolerance.
async fn is_off_by(node: &Server, off: i64) -> Result<bool> {
    let before = here()?;
    let (seconds, micros): (i64, i64) = node.run_words("TIME").await?;
    let (there, after) = (seconds * 1_000 + micros / 1_000, here()?);
    let seen = there - after - ABOUT_MS..=there - before + ABOUT_MS;
    Ok(after - before < QUICK_MS && seen.contains(&off))
}

fn here() -> Result<i64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as i64)
}
