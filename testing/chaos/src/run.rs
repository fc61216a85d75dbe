//! Runs a row, from its start to its verdict, and reports its progress.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::history::wall_clock_lead;
use super::ledger::Completion;
use super::nemesis::{Nemesis, Props, clocks, partition, permission};
use super::scenario::Scene;
use super::scorecard_rows::{Promise, Row, Variant};
use super::staying;
use super::verdict::{Outcome, Verdict};
use testkit::{Cluster, ClusterConfig, NetworkNamespace, Result, Version};

/// How long the load continues after the last fault.
const AFTER: Duration = Duration::from_secs(2);

/// The attempts of a test to get a run that is not void.
pub const TRIES: usize = 3;

/// A finished run.
#[derive(Debug)]
pub struct Run {
    pub row: Row,
    pub variant: Variant,
    pub seed: u64,
    pub version: Version,
    pub took: Duration,
    pub verdict: Verdict,
    /// How far the clock of the servers has moved against the clock of leases, in nanoseconds.
    pub clock_drift: i64,
    pub scene: Scene,
}

impl Run {
    /// Further results, in lines.
    pub fn report(&self) -> String {
        let verdict = &self.verdict;
        let what = match verdict.outcome() {
            Outcome::Kept => "all that is promised was kept",
            Outcome::Void => {
                "VOID: something happened to the servers that was not ordered, so this run shows nothing"
            }
            Outcome::Broken => "BROKEN",
        };
        let name = [self.row.name, self.variant.name].join(" ");
        let mut lines = vec![format!("{} on {}: {what}", name.trim_end(), self.version)];
        lines.push(format!(
            "  {} faults, {} acquisitions; the servers' clock moved by {} ms against that of leases",
            verdict.faults,
            verdict.findings.grants,
            self.clock_drift / 1_000_000
        ));
        lines.extend(self.scene.measured.iter().flat_map(|measured| measured.lines()));
        lines.extend(verdict.void.iter().map(|one| format!("  not ordered: {one}")));
        let broken =
            if verdict.outcome() == Outcome::Void { "seen, and not counted" } else { "broken" };
        lines.extend(verdict.broken.iter().map(|one| format!("  {broken}: {one}")));
        lines.join("\n")
    }
}

/// Runs one variant of a row with `count` faults (acquisitions, in the row without faults), and
/// keeps logs in `folder`. Returns nothing if the server lacks what the row needs, or if this
/// process lacks the rights.
pub async fn run(
    row: &Row,
    variant: &Variant,
    count: usize,
    seed: u64,
    folder: &Path,
) -> Result<Option<Run>> {
    match stage(row, variant, seed, folder.to_owned()).await? {
        Some(scene) => Ok(Some(play(row, variant, count, seed, scene).await)),
        None => Ok(None),
    }
}

/// Like [`run`], on a cluster that is already running, for rows that only send commands. Flushes
/// its keys first: a run that ended early may have left locks with the same names.
pub async fn run_on(
    cluster: Cluster,
    row: &Row,
    variant: &Variant,
    count: usize,
    seed: u64,
    folder: &Path,
) -> Result<Run> {
    for master in cluster.masters().await? {
        cluster.node(master).run_words::<()>("FLUSHALL").await?;
    }
    let urls = cluster.urls();
    let scene =
        Scene::start(cluster, urls, None, variant.load.clone(), seed, folder.to_owned()).await?;
    Ok(play(row, variant, count, seed, scene).await)
}

async fn play(row: &Row, variant: &Variant, count: usize, seed: u64, mut scene: Scene) -> Run {
    let started = Instant::now();
    let (mut ending, orphans) = match act(row, variant, count, &mut scene).await {
        Ok(ending) => ending,
        // The events until then are judged nevertheless.
        Err(error) => {
            let mut ending = vec![format!("the run ended early: {error}")];
            let looked = scene.settle(Completion::CutShort).await;
            ending.extend(
                looked.err().map(|error| format!("the servers could not be queried: {error}")),
            );
            (ending, 0)
        }
    };
    ending.extend(scene.wrong.clone());
    let mut verdict =
        Verdict::of(&scene.history, &scene.faults, variant, &ending).beside(scene.unordered());
    verdict.orphans = orphans;
    verdict.stayed = scene.measured.as_ref().map(staying::Measured::json);
    if verdict.outcome() != Outcome::Kept
        && let Err(error) = scene.keep_server_logs()
    {
        println!("the servers' logs could not be kept: {error:?}");
    }
    Run {
        row: row.clone(),
        variant: variant.clone(),
        seed,
        version: scene.cluster.version().clone(),
        took: started.elapsed(),
        verdict,
        clock_drift: wall_clock_lead() - scene.clock_lead,
        scene,
    }
}

/// Runs the whole row. Returns what is wrong at the end, and the number of orphans.
async fn act(
    row: &Row,
    variant: &Variant,
    count: usize,
    scene: &mut Scene,
) -> Result<(Vec<String>, usize)> {
    let mut wrong = Vec::new();
    if let Nemesis::Stays(fault) = row.nemesis {
        staying::act(fault, count, scene).await?;
    } else if row.nemesis == Nemesis::Nothing {
        scene.start_workers(Some(count as u64))?;
        while !scene.all_ended()? {
            tokio::time::sleep(Duration::from_millis(200)).await;
            scene.history.read()?;
        }
    } else {
        scene.start_workers(None)?;
        scene.advance().await?;
        let mut tenths = 0;
        while scene.faults.len() < count {
            row.nemesis.strike(scene).await?;
            scene.settle(Completion::Done).await?;
            if !scene.unordered().is_empty() {
                break; // whatever else happens shows nothing any more
            }
            scene.advance().await?;
            if scene.faults.len() * 10 / count > tenths {
                tenths = scene.faults.len() * 10 / count;
                println!("{} {}: {} faults", row.name, variant.name, scene.faults.len());
            }
        }
        tokio::time::sleep(AFTER).await;
        scene.all_advance().await?;
    }
    scene.stop_workers().await?;
    wrong.extend(staying::judge(scene));
    let grants = scene.history.holds().filter(|hold| hold.granted.is_some()).count();
    let is_short = row.nemesis == Nemesis::Nothing && grants < count;
    wrong.extend(is_short.then(|| format!("{grants} of {count} acquisitions")));
    let named = |what: &'static str| move |one: String| format!("{what}: {one}");
    let orphans = scene.orphans().await?;
    let count = orphans.len();
    if variant.promises.contains(&Promise::ReleaseWorks) {
        wrong.extend(orphans.into_iter().map(named("orphan")));
    }
    wrong.extend(scene.left_behind().await?.into_iter().map(named("left behind")));
    wrong.extend(scene.lost_updates().await?.into_iter().map(named("lost update")));
    scene.settle(Completion::Done).await?;
    Ok((wrong, count))
}

/// Returns nothing if the server lacks what the row needs, or if this process lacks the rights.
async fn stage(row: &Row, variant: &Variant, seed: u64, folder: PathBuf) -> Result<Option<Scene>> {
    let mut shape = ClusterConfig { node_timeout: row.node_timeout, ..ClusterConfig::default() };
    for line in variant.load.log.settings() {
        shape = shape.line(*line);
    }
    if row.nemesis.kills_while_slots_move() {
        // A shard that the killed master comes back to keeps its replica.
        shape = shape.line("cluster-allow-replica-migration no");
    }
    let mut props = Props::default();
    let (cluster, space) = match row.nemesis {
        Nemesis::Partition => {
            let Some(space) = NetworkNamespace::create_if_allowed()? else {
                return Ok(None);
            };
            (partition::prepare(&shape, &space).await?, Some(space))
        }
        Nemesis::Skew | Nemesis::Step => match clocks::prepare(shape).await? {
            Some(cluster) => (cluster, None),
            None => return Ok(None),
        },
        Nemesis::Stays(fault) => match fault.prepare(shape).await? {
            Some((cluster, made)) => {
                props = made;
                (cluster, None)
            }
            None => return Ok(None),
        },
        _ => (Cluster::start_with(shape).await?, None),
    };
    let version = cluster.version();
    if !row.nemesis.runs_on(version) || variant.load.fsync && !version.has_waitaof() {
        return Ok(None);
    }
    if row.nemesis.moves_at_once() && version.name == "Redis" {
        // If the target gives up while the source waits for it, the source holds all writes for
        // that long: by default for 10 s.
        let pause = "CONFIG SET cluster-slot-migration-write-pause-timeout 1000";
        for number in cluster.running() {
            cluster.node(number).run_words::<()>(pause).await?;
        }
    }
    let urls = match row.nemesis {
        Nemesis::Permission(_) => permission::prepare(&cluster).await?,
        _ => cluster.urls(),
    };
    let mut scene = Scene::start(cluster, urls, space, variant.load.clone(), seed, folder).await?;
    scene.props = props;
    Ok(Some(scene))
}
