//! The results of all runs, one JSON object a line, and the scorecard that is made of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::rows::rows;
use super::run::Run;
use crate::support::{Backend, Result};

const RESULTS: &str = "results.jsonl";
const SCORECARD: &str = "scorecard.md";

/// What was built, as the Makefile says by `scripts/version`.
const BUILT: &str = match option_env!("RWLEASE_BUILT") {
    Some(built) => built,
    None => "unknown",
};

/// Appends the result of a run.
pub fn append(folder: &Path, run: &Run) -> Result {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut result = json!({
        "row": run.row.name,
        "variant": run.variant.name,
        "server": run.version.to_string(),
        "backend": format!("{:?}", Backend::chosen()).to_lowercase(),
        "built": BUILT,
        "seed": run.seed,
        "node_timeout_ms": run.row.node_timeout,
        "lease_ms": run.variant.load.lease.as_millis() as u64,
        "ended": since.as_secs(),
        "seconds": run.took.as_secs_f64(),
    });
    for more in [run.verdict.json(), run.clocks.json()] {
        if let (Some(result), Value::Object(more)) = (result.as_object_mut(), more) {
            result.extend(more);
        }
    }
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(folder.join(RESULTS))?;
    Ok(file.write_all(format!("{result}\n").as_bytes())?)
}

/// Writes the scorecard anew.
pub fn write(folder: &Path) -> Result {
    let text = std::fs::read_to_string(folder.join(RESULTS))?;
    let results =
        text.lines().map(serde_json::from_str).collect::<std::result::Result<Vec<Value>, _>>()?;
    Ok(std::fs::write(folder.join(SCORECARD), scorecard(&results))?)
}

/// What is added up over runs.
const COUNTS: [&str; 11] = [
    "faults",
    "acquisitions",
    "overlaps",
    "lost",
    "vanished",
    "noticed_late",
    "releases_unknown",
    "releases_failed",
    "orphans",
    "stale_writes_accepted",
    "writes_refused",
];

/// All runs of one variant of a row on one server by one backend.
#[derive(Debug, Default)]
struct Line {
    counts: BTreeMap<&'static str, u64>,
    failed: BTreeMap<String, u64>,
    recoveries: Vec<u64>,
    /// From request to grant, of the run in which it was the longest.
    wait_p99: u64,
    built: Vec<String>,
    broken: usize,
    /// Runs that show nothing and are in no other count.
    void: usize,
    /// Some were run before anybody looked.
    is_unlooked: bool,
}

/// The table of these results. Those of a row that was otherwise then are left out.
pub fn scorecard(results: &[Value]) -> String {
    let mut lines: BTreeMap<(usize, usize, String, String), Line> = BTreeMap::new();
    let rows = rows();
    for result in results {
        let Some(row) = rows.iter().position(|row| result["row"] == row.name) else {
            continue;
        };
        let Some(variant) = rows[row].variants.iter().position(|it| result["variant"] == it.name)
        else {
            continue;
        };
        let lease = rows[row].variants[variant].load.lease.as_millis() as u64;
        if result["node_timeout_ms"] != rows[row].node_timeout || result["lease_ms"] != lease {
            continue;
        }
        let word = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
        let of = (row, variant, word("server"), word("backend"));
        lines.entry(of).or_default().add(result);
    }
    let mut text = String::from(
        "| row | server, client | faults | acquisitions | overlaps | leases lost | told late | gone | stale writes: accepted, refused | releases unknown, failed | orphans | errors | wait p99 | pause: median, worst | broken | void |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ((row, variant, server, backend), line) in &lines {
        let row = &rows[*row];
        let name = match row.variants[*variant].name {
            "" => row.title.to_owned(),
            variant => format!("{}; {variant}", row.title),
        };
        let _ = writeln!(text, "| {name} | {server}, {backend} {}", line.cells());
    }
    let mut built: Vec<&str> =
        lines.values().flat_map(|line| &line.built).map(String::as_str).collect();
    built.sort_unstable();
    built.dedup();
    let _ = writeln!(text, "\nFrom runs of `{}` (see `scripts/version`).", built.join("`, `"));
    text
}

impl Line {
    fn add(&mut self, result: &Value) {
        match result["void"].as_array() {
            Some(unordered) if !unordered.is_empty() => {
                self.void += 1;
                return;
            }
            Some(_) => {}
            None => self.is_unlooked = true,
        }
        for field in COUNTS {
            *self.counts.entry(field).or_default() += result[field].as_u64().unwrap_or(0);
        }
        for (kind, count) in result["failed"].as_object().into_iter().flatten() {
            *self.failed.entry(kind.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
        self.wait_p99 = self.wait_p99.max(result["wait_ns"]["p99"].as_u64().unwrap_or(0));
        let recoveries = result["recovery_ns"].as_array().into_iter().flatten();
        self.recoveries.extend(recoveries.filter_map(Value::as_u64));
        self.built.push(result["built"].as_str().unwrap_or_default().to_owned());
        self.broken += result["broken"].as_array().map_or(0, Vec::len);
    }

    fn cells(&self) -> String {
        let count = |field: &str| grouped(self.counts.get(field).copied().unwrap_or(0));
        let failed: Vec<String> =
            self.failed.iter().map(|(kind, count)| format!("{kind} {}", grouped(*count))).collect();
        let failed = if failed.is_empty() { "0".into() } else { failed.join(", ") };
        let mut recoveries = self.recoveries.clone();
        recoveries.sort_unstable();
        let recovery = match (recoveries.get(recoveries.len() / 2), recoveries.last()) {
            (Some(median), Some(worst)) => format!("{}, {}", time(*median), time(*worst)),
            _ => String::new(),
        };
        let void = match self.is_unlooked {
            true => "-".to_owned(),
            false => self.void.to_string(),
        };
        format!(
            "| {} | {} | {} | {} | {} | {} | {}, {} | {}, {} | {} | {failed} | {} | {recovery} | {} | {} |",
            count("faults"),
            count("acquisitions"),
            count("overlaps"),
            count("lost"),
            count("noticed_late"),
            count("vanished"),
            count("stale_writes_accepted"),
            count("writes_refused"),
            count("releases_unknown"),
            count("releases_failed"),
            count("orphans"),
            time(self.wait_p99),
            self.broken,
            void,
        )
    }
}

fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000_000 => format!("{:.0} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

/// `1,234,567`
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
