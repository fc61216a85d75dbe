//! Runs a row, from its start to its verdict, and reports its progress.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ledger::Ended;
use super::nemesis::{Nemesis, clocks, partition, permission};
use super::rows::{Promise, Row, Variant};
use super::sampler::Clocks;
use super::scene::Scene;
use super::verdict::{Outcome, Verdict};
use crate::support::{Cluster, ClusterConfig, NetworkNamespace, Result, Version};

/// The interval of progress reports.
const TELL: Duration = Duration::from_secs(2);

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
    /// What happened to the servers, in words.
    pub servers: String,
    pub clocks: Clocks,
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
        lines.extend(verdict.void.iter().map(|one| format!("  not ordered: {one}")));
        let broken =
            if verdict.outcome() == Outcome::Void { "seen, and not counted" } else { "broken" };
        lines.extend(verdict.broken.iter().map(|one| format!("  {broken}: {one}")));
        lines.push(format!("  {}", self.servers));
        lines.push(format!("  {}", self.clocks.told()));
        lines.join("\n")
    }
}

/// The results of a run so far.
#[derive(Debug)]
pub struct Progress<'a> {
    pub row: &'a str,
    pub variant: &'a str,
    pub elapsed: Duration,
    pub verdict: &'a Verdict,
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
    tell: &mut (dyn FnMut(&Progress<'_>) + Send),
) -> Result<Option<Run>> {
    match stage(row, variant, seed, folder.to_owned()).await? {
        Some(scene) => Ok(Some(play(row, variant, count, seed, scene, tell).await)),
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
    Ok(play(row, variant, count, seed, scene, &mut |_| {}).await)
}

async fn play(
    row: &Row,
    variant: &Variant,
    count: usize,
    seed: u64,
    mut scene: Scene,
    tell: &mut (dyn FnMut(&Progress<'_>) + Send),
) -> Run {
    let started = Instant::now();
    let mut teller = Teller { last: Instant::now(), pause: TELL, started, tell };
    let (mut ending, orphans) = match act(row, variant, count, &mut scene, &mut teller).await {
        Ok(ending) => ending,
        // The events until then are judged nevertheless.
        Err(error) => {
            let mut ending = vec![format!("the run ended early: {error}")];
            let looked = scene.settle(Ended::CutShort).await;
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
    teller.tell(row, variant, &verdict);
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
        servers: scene.servers_told(),
        clocks: scene.clocks(),
        scene,
    }
}

/// Runs the whole row. Returns what is wrong at the end, and the number of orphans.
async fn act(
    row: &Row,
    variant: &Variant,
    count: usize,
    scene: &mut Scene,
    teller: &mut Teller<'_>,
) -> Result<(Vec<String>, usize)> {
    let mut wrong = Vec::new();
    if row.nemesis == Nemesis::Nothing {
        scene.start_workers(Some(count as u64))?;
        while !scene.all_ended()? {
            tokio::time::sleep(Duration::from_millis(200)).await;
            scene.history.read()?;
            teller.now_and_then(row, variant, scene);
        }
    } else {
        scene.start_workers(None)?;
        scene.advance().await?;
        while scene.faults.len() < count {
            row.nemesis.strike(scene).await?;
            scene.settle(Ended::Done).await?;
            if !scene.unordered().is_empty() {
                break; // whatever else happens shows nothing any more
            }
            scene.advance().await?;
            teller.now_and_then(row, variant, scene);
        }
        tokio::time::sleep(AFTER).await;
        scene.all_advance().await?;
    }
    scene.stop_workers().await?;
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
    scene.settle(Ended::Done).await?;
    Ok((wrong, count))
}

/// Returns nothing if the server lacks what the row needs, or if this process lacks the rights.
async fn stage(row: &Row, variant: &Variant, seed: u64, folder: PathBuf) -> Result<Option<Scene>> {
    let shape = ClusterConfig { node_timeout: row.node_timeout, ..ClusterConfig::default() };
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
        _ => (Cluster::start_with(shape).await?, None),
    };
    if row.nemesis == Nemesis::AtOnce && !cluster.version().has_atomic_moves() {
        return Ok(None);
    }
    let urls = match row.nemesis {
        Nemesis::Permission(_) => permission::prepare(&cluster).await?,
        _ => cluster.urls(),
    };
    let scene = Scene::start(cluster, urls, space, variant.load.clone(), seed, folder).await?;
    Ok(Some(scene))
}

struct Teller<'a> {
    last: Instant,
    /// A full judgement takes longer as the run grows. It must not take all the time.
    pause: Duration,
    started: Instant,
    tell: &'a mut (dyn FnMut(&Progress<'_>) + Send),
}

impl Teller<'_> {
    fn now_and_then(&mut self, row: &Row, variant: &Variant, scene: &Scene) {
        if self.last.elapsed() < self.pause {
            return;
        }
        let began = Instant::now();
        let verdict = Verdict::of(&scene.history, &scene.faults, variant, &scene.wrong);
        self.tell(row, variant, &verdict);
        self.last = Instant::now();
        self.pause = TELL.max(began.elapsed() * 20);
    }

    fn tell(&mut self, row: &Row, variant: &Variant, verdict: &Verdict) {
        (self.tell)(&Progress {
            row: row.name,
            variant: variant.name,
            elapsed: self.started.elapsed(),
            verdict,
        });
    }
}
