//! Small rows: enough to show that each nemesis strikes, that the checker reads the result, and
//! that the promises hold.

use std::path::Path;

use tokio::sync::Semaphore;

use chaos::nemesis::Nemesis;
use chaos::run::{TRIES, run};
use chaos::scorecard_rows::{Promise, Row, Variant, rows};
use chaos::verdict::Outcome;
use chaos::worker::work_if_told;
use testkit::{Error, Result};

/// Two at a time: a row is a cluster and many processes, and waits for most of its time.
pub static TURNS: Semaphore = Semaphore::const_new(2);

/// If set to `all`, no row may be skipped. That takes a server with atomic moves whose clock can be
/// set, and the right to make networks.
const ROWS: &str = "RWLEASE_ROWS";

/// Makes a test of each of these rows.
macro_rules! smoke_tests {
    ($($test:ident: $($row:literal),+;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> testkit::Result {
                $($crate::self_test::smoke($row).await?;)+
                Ok(())
            }
        )*
    };
}

pub(crate) use smoke_tests;

/// Runs the variants of a row that promise something of holders.
pub async fn smoke(name: &str) -> Result {
    let _turn = TURNS.acquire().await?;
    let row = rows().into_iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| Error::new(format!("there is no row {name}")))?;
    let promises = |variant: &&Variant| variant.promises.contains(&Promise::NoOverlap);
    let has_promises = row.variants.iter().any(|variant| promises(&variant));
    // What only counts is left to `make chaos`, if the row has a variant that promises.
    for variant in row.variants.iter().filter(|variant| !has_promises || promises(variant)) {
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
    for attempt in 1..=TRIES {
        let Some(run) = run(row, variant, row.smoke, seed, folder).await? else {
            let missing = format!("{}: not on this server or machine", row.name);
            println!("{missing}");
            // No server has both kinds of replicas.
            let is_required = std::env::var(ROWS).is_ok_and(|rows| rows == "all")
                && row.nemesis != Nemesis::ForgottenMove;
            return if is_required { Err(Error::new(missing)) } else { Ok(()) };
        };
        println!("{}", run.report());
        match run.verdict.outcome() {
            Outcome::Kept => break,
            Outcome::Void if attempt < TRIES => {}
            _ => return Err(Error::new(run.report())),
        }
    }
    Ok(())
}

/// Not a test of its own: the process that takes locks.
#[test]
fn worker_process_takes_locks() -> Result {
    work_if_told().unwrap_or(Ok(()))
}
