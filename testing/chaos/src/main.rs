//! The scorecard: `make chaos`, or `cargo run -p rwlease-chaos -- --run [ROW [N]]`. Without
//! `--run` it does nothing.
//!
//! `--variant V` runs one variant of a row, and `--seed S` repeats the same choices. A row gets as
//! many faults as its stored results of this version lack; with `--again`, or with a seed, it gets
//! all of them.
//!
//! Its exit status is 0 if all promises were kept. It is 1 if one was broken or a row could not
//! run, and 3 if no promise was broken but something happened to the servers that no row ordered,
//! so that a run shows nothing.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods, clippy::print_stdout, unreachable_pub)]

use std::path::Path;
use std::process::ExitCode;

use chaos::run::{Run, run};
use chaos::scorecard;
use chaos::scorecard_rows::{Row, Variant, rows};
use chaos::verdict::Outcome;
use chaos::worker::work_if_told;
use testkit::{Error, Result, Version};

/// Where the results go, below the root of the crate.
const FOLDER: &str = "target/chaos";

#[derive(Debug, Default)]
struct Options {
    is_run: bool,
    row: Option<String>,
    variant: Option<String>,
    count: Option<usize>,
    seed: Option<u64>,
    /// Runs even what has enough results.
    again: bool,
}

fn main() -> ExitCode {
    if let Some(worked) = work_if_told() {
        return code(worked.map(|()| Outcome::Kept));
    }
    let options = match Options::of(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => return code(Err(error)),
    };
    if !options.is_run {
        println!("not run here: `make chaos` runs it");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new();
    code(runtime.map_err(Error::from).and_then(|runtime| runtime.block_on(run_rows(&options))))
}

fn code(result: Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen rows, and returns the worst outcome.
async fn run_rows(options: &Options) -> Result<Outcome> {
    let mut rows: Vec<Row> = rows();
    rows.retain(|row| options.row.as_ref().is_none_or(|name| name == row.name));
    for row in &mut rows {
        let is_chosen =
            |variant: &Variant| options.variant.as_ref().is_none_or(|name| name == variant.name);
        row.variants.retain(is_chosen);
    }
    if rows.iter().all(|row| row.variants.is_empty()) {
        return Err(Error::new(format!(
            "there is no row {:?} with variant {:?}",
            options.row, options.variant
        )));
    }
    let folder = testkit::project_root().join(FOLDER);
    let server = Version::found()?.to_string();
    let mut worst = Outcome::Kept;
    for row in &rows {
        for variant in &row.variants {
            let count = options.missing(row, variant, &server)?;
            if count == 0 {
                println!("{} {}: there are enough results (AGAIN=1)", row.name, variant.name);
                continue;
            }
            let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
            let place = folder.join(format!("{}-{seed}", title(row, variant)));
            match run(row, variant, count, seed, &place).await {
                Ok(Some(run)) => worst = worst.max(finish(&place, &run)?),
                Ok(None) => println!("{}: not on this server or machine", row.name),
                Err(error) => {
                    println!(
                        "{} {}: could not be run: {error:?}; logs in {}",
                        row.name,
                        variant.name,
                        place.display()
                    );
                    worst = Outcome::Broken;
                }
            }
        }
    }
    Ok(worst)
}

/// Stores and prints the result of a run.
fn finish(place: &Path, run: &Run) -> Result<Outcome> {
    let outcome = run.verdict.outcome();
    let results = scorecard::append(run)?;
    println!("{}", run.report());
    println!("  its counts are in {}", results.display());
    if outcome == Outcome::Kept {
        std::fs::remove_dir_all(place)?;
    } else {
        println!("seed {}, logs in {}", run.seed, place.display());
    }
    Ok(outcome)
}

impl Options {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--run" => options.is_run = true,
                "--again" => options.again = true,
                "--variant" => options.variant = words.next(),
                "--seed" => options.seed = Some(words.next().unwrap_or_default().parse()?),
                word if word.is_empty() || word.starts_with('-') => {}
                word => match word.parse() {
                    Ok(count) => options.count = Some(count),
                    Err(_) => options.row = Some(word.to_owned()),
                },
            }
        }
        Ok(options)
    }

    /// How many faults the stored results lack.
    fn missing(&self, row: &Row, variant: &Variant, server: &str) -> Result<usize> {
        let wanted = self.count_of(row);
        if self.again || self.seed.is_some() {
            return Ok(wanted);
        }
        Ok(wanted.saturating_sub(scorecard::had(row, variant, server)?))
    }

    /// The faults of each variant. The row without faults counts acquisitions, over all variants.
    fn count_of(&self, row: &Row) -> usize {
        let count = self.count.unwrap_or(row.least);
        match row.nemesis {
            chaos::nemesis::Nemesis::Nothing => count.div_ceil(row.variants.len()),
            _ => count,
        }
    }
}

/// The name of a run's files.
fn title(row: &Row, variant: &Variant) -> String {
    let title = format!("{} {}", row.name, variant.name);
    let words =
        title.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}
