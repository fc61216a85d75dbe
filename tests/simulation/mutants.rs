//! Deliberate faults in the scripts and in the client, one at a time: the simulation must find each of them.
//!
//! A file of mutants is a list of blocks, parted by empty lines:
//!
//! ```text
//! # what is wrong with it
//! invariant: which promise it breaks
//! file: lua/lib/pump.lua
//! old: the text that is there (\n for a line break)
//! new: the text that takes its place
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::runs::{Until, runs};

/// How long the simulation may look for one of them.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Mutant {
    what: String,
    invariant: String,
    file: PathBuf,
    old: String,
    new: String,
}

/// Tries all mutants in these files. Gives the number of those that nobody noticed.
pub fn try_all(files: &[PathBuf]) -> usize {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    println!("{} mutants", mutants.len());
    let mut survivors = 0;
    for (at, mutant) in mutants.iter().enumerate() {
        let started = Instant::now();
        let catcher = if mutant.file.starts_with("lua") {
            try_script(mutant)
        } else {
            try_source(mutant)
        };
        let seconds = started.elapsed().as_secs_f64();
        survivors += usize::from(catcher.is_none());
        let verdict = catcher.unwrap_or_else(|| "SURVIVED".into());
        println!(
            "{:>3} {seconds:>5.1} s  {:<60} [{}] {verdict}",
            at + 1,
            mutant.what,
            mutant.invariant
        );
    }
    println!("{survivors} of {} survived", mutants.len());
    survivors
}

fn read(file: &Path) -> Vec<Mutant> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.split("\n\n")
        .filter(|block| block.contains("file:"))
        .map(Mutant::read)
        .collect()
}

impl Mutant {
    fn read(block: &str) -> Mutant {
        let part = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no `{name}` in\n{block}"))
                .strip_prefix(' ')
                .unwrap_or("")
                .replace("\\n", "\n")
        };
        let what: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        Mutant {
            what: what.last().copied().unwrap_or("").to_owned(),
            invariant: part("invariant:"),
            file: part("file:").into(),
            old: part("old:"),
            new: part("new:"),
        }
    }

    /// Puts the fault into the file below that folder.
    fn apply(&self, folder: &Path) {
        let file = folder.join(&self.file);
        let text = fs::read_to_string(&file).unwrap();
        let places = text.matches(&self.old).count();
        assert_eq!(
            places,
            1,
            "{} has {places} places for `{}`",
            self.file.display(),
            self.old
        );
        fs::write(&file, text.replace(&self.old, &self.new)).unwrap();
    }
}

/// In a copy of the scripts, which needs no build.
fn try_script(mutant: &Mutant) -> Option<String> {
    let folder = scratch("scripts");
    copy(&root().join("lua"), &folder.join("lua"));
    mutant.apply(&folder);
    hunt(Some(folder.join("lua")), LIMIT)
}

/// The rule that the first violation broke.
pub fn hunt(scripts: Option<PathBuf>, limit: Duration) -> Option<String> {
    let plan = |seed| Plan {
        scripts: scripts.clone(),
        ..Plan::from_seed(seed)
    };
    let total = runs(1, Until::Violation(limit), plan, |_| {});
    let found = total.violations.first()?;
    Some(format!(
        "simulation: {} (seed {})",
        found.violation.as_ref()?.rule,
        found.plan.seed
    ))
}

/// In a copy of the source, which is built anew.
fn try_source(mutant: &Mutant) -> Option<String> {
    let folder = scratch("source");
    for part in [
        "Cargo.toml",
        "Cargo.lock",
        "clippy.toml",
        "src",
        "lua",
        "tests",
        "examples",
        "benches",
    ] {
        if root().join(part).exists() {
            copy(&root().join(part), &folder.join(part));
        }
    }
    mutant.apply(&folder);
    let output = Command::new(env!("CARGO"))
        .args([
            "test",
            "--release",
            "--quiet",
            "--features",
            "embedded",
            "--test",
            "simulation",
        ])
        .args(["--", "--ignored", "--exact", "hunt", "--nocapture"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", root().join("target/mutants/build"))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let caught = text.lines().find_map(|line| line.strip_prefix("caught by "));
    match caught {
        Some(caught) => Some(caught.to_owned()),
        None if text.contains("not caught") => None,
        None if text.contains("panicked") => Some("simulation: a panic".into()),
        None => panic!("this mutant does not build: {}", mutant.what),
    }
}

fn scratch(name: &str) -> PathBuf {
    let folder = root().join("target/mutants").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
