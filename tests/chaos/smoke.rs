//! Small rows: enough to show that each nemesis strikes, that the checker reads the result, and
//! that the promises hold.

use std::path::Path;

use tokio::sync::Semaphore;

use crate::chaos::rows::{Row, Variant, rows};
use crate::chaos::run::{TRIES, run};
use crate::chaos::verdict::Outcome;
use crate::chaos::worker::work_if_told;
use crate::support::{Error, Result};

/// Two at a time: a row is a cluster and many processes, and waits for most of its time.
pub static TURNS: Semaphore = Semaphore::const_new(2);

/// If set to `all`, no row may be skipped. That takes a server with atomic moves whose clock can be
/// set, and the right to make networks.
const ROWS: &str = "RWLEASE_ROWS";

/// Runs all variants of a row.
pub async fn smoke(name: &str) -> Result {
    let _turn = TURNS.acquire().await?;
    let row = rows().into_iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| Error::new(format!("there is no row {name}")))?;
    for variant in &row.variants {
        let seed = fastrand::u64(..);
        let folder = std::env::temp_dir()
            .join(format!("rwlease-chaos-{}-{name}-{seed}", std::process::id()));
        let came = judged(&row, variant, seed, &folder).await;
        came.map_err(|error| {
            Error::new(format!(
                "{name} {}, seed {seed}, logs in {}: {error:?}",
                variant.name,
                folder.display()
            ))
        })?;
        let _ = std::fs::remove_dir_all(folder); // there may be none
    }
    Ok(())
}

async fn judged(row: &Row, variant: &Variant, seed: u64, folder: &Path) -> Result {
    let mut seen = String::new();
    for _ in 0..TRIES {
        let Some(report) = void_or_judged(row, variant, seed, folder).await? else {
            return Ok(());
        };
        println!("{report}");
        seen = report;
    }
    Err(Error::new(format!("void {TRIES} times; the last time: {seen}")))
}

/// The report of a void run.
async fn void_or_judged(
    row: &Row,
    variant: &Variant,
    seed: u64,
    folder: &Path,
) -> Result<Option<String>> {
    let Some(run) = run(row, variant, row.smoke, seed, folder, &mut |_| {}).await? else {
        let missing = format!("{}: not on this server or machine", row.name);
        println!("{missing}");
        return match std::env::var(ROWS) {
            Ok(rows) if rows == "all" => Err(Error::new(missing)),
            _ => Ok(None),
        };
    };
    let verdict = &run.verdict;
    println!(
        "{} {}: {} faults, {} acquisitions",
        row.name, variant.name, verdict.faults, verdict.findings.grants
    );
    match verdict.outcome() {
        Outcome::Kept => Ok(None),
        Outcome::Void => Ok(Some(run.report())),
        Outcome::Broken => Err(Error::new(run.report())),
    }
}

/// Not a test of its own: the process that takes locks.
#[test]
fn worker_process_takes_locks() -> Result {
    work_if_told().unwrap_or(Ok(()))
}
