//! The results of runs, one JSON object a line. `scripts/publish` makes the scorecard from them.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::nemesis::Nemesis;
use super::run::Run;
use super::scorecard_rows::{Row, Variant, rows};
use testkit::{Backend, Error, Result};

/// The files of results, below the root: of committed sources, which are published, and of changed
/// ones.
const KEPT: &str = "docs/results/chaos.jsonl";
const CHANGED: &str = "target/chaos/results.jsonl";

/// The version that the Makefile passes, from `scripts/version`.
const VERSION: &str = match option_env!("RWLEASE_BUILT") {
    Some(built) => built,
    None => "unknown",
};

/// Where the results of this build go.
fn file() -> PathBuf {
    let is_kept = VERSION.starts_with("src ") && !VERSION.ends_with('+');
    root().join(if is_kept { KEPT } else { CHANGED })
}

fn root() -> &'static Path {
    testkit::project_root()
}

/// Appends the result of a run, and returns the file.
pub fn append(run: &Run) -> Result<PathBuf> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let (row, variant) = (&run.row, &run.variant);
    let promises = variant.promises.iter().map(|promise| format!("{promise:?}"));
    let mut result = json!({
        "version": VERSION,
        "row": row.name,
        "title": row.title,
        "variant": variant.name,
        "place": place(row, variant),
        "promises": promises.collect::<Vec<_>>(),
        "server": run.version.to_string(),
        "backend": backend(),
        "seed": run.seed,
        "node_timeout_ms": row.node_timeout,
        "lease_ms": lease(variant),
        "machine": machine()?,
        "ended": since.as_secs(),
        "seconds": run.took.as_secs_f64(),
        "clock_drift_ns": run.clock_drift,
    });
    if let (Some(result), Value::Object(counts)) = (result.as_object_mut(), run.verdict.json()) {
        result.extend(counts);
    }
    let file = file();
    let mut results = std::fs::OpenOptions::new().create(true).append(true).open(&file)?;
    results.write_all(format!("{result}\n").as_bytes())?;
    Ok(file)
}

/// The number of faults (acquisitions, in the row without faults) in kept runs of this version.
/// Runs of changed sources do not count.
pub fn had(row: &Row, variant: &Variant, server: &str) -> Result<usize> {
    let file = file();
    match std::fs::read_to_string(&file) {
        Ok(results) if file.ends_with(KEPT) => {
            count(&results, VERSION, row, variant, server, &backend())
        }
        Ok(_) => Ok(0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error.into()),
    }
}

pub fn count(
    results: &str,
    version: &str,
    row: &Row,
    variant: &Variant,
    server: &str,
    backend: &str,
) -> Result<usize> {
    let counted = if row.nemesis == Nemesis::Nothing { "acquisitions" } else { "faults" };
    let mut count = 0;
    for line in results.lines() {
        let result: Value = serde_json::from_str(line)?;
        let is_of_it = result["version"] == version
            && result["row"] == row.name
            && result["variant"] == variant.name
            && result["server"] == server
            && result["backend"] == backend
            && result["node_timeout_ms"] == row.node_timeout
            && result["lease_ms"] == lease(variant)
            && result["outcome"] == "kept";
        if is_of_it {
            count += result[counted].as_u64().unwrap_or(0) as usize;
        }
    }
    Ok(count)
}

/// The numbers of the row and of its variant, which sort the scorecard.
fn place(row: &Row, variant: &Variant) -> [Option<usize>; 2] {
    let rows = rows();
    let row = rows.iter().position(|one| one.name == row.name);
    let variants = row.map(|row| &rows[row].variants);
    [row, variants.and_then(|all| all.iter().position(|one| one.name == variant.name))]
}

fn backend() -> String {
    format!("{:?}", Backend::chosen()).to_lowercase()
}

fn lease(variant: &Variant) -> u64 {
    variant.load.lease.as_millis() as u64
}

fn machine() -> Result<String> {
    let said = Command::new(root().join("scripts/machine")).output()?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned()),
        false => Err(Error::new("scripts/machine failed")),
    }
}
