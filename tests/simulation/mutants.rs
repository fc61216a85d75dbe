//! Deliberate faults in the scripts and in the client, one at a time: the simulation must find each of them, or, if it has not in its time, the suite of
//! the scripts.
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

use crate::SEEDS;
use crate::plan::Plan;
use crate::runs::{Total, Until, runs};

/// How long the simulation may look for one of them. With the suite of the scripts after it, that is a minute.
pub const LIMIT: Duration = Duration::from_secs(45);

#[derive(Debug)]
struct Mutant {
    what: String,
    invariant: String,
    file: PathBuf,
    old: String,
    new: String,
}

/// A copy of the scripts that carry requests out however late they come.
pub fn without_not_after() -> PathBuf {
    let folder = scratch("without_not_after");
    copy(&root().join("lua"), &folder);
    for (file, check) in [
        ("lib/simple.lua", "not_after >= now"),
        ("lib/acquire.lua", "now > demand.not_after"),
        ("upgrade.lua", "now > demand.not_after"),
    ] {
        let (file, text) = (folder.join(file), fs::read_to_string(folder.join(file)).unwrap());
        assert_eq!(text.matches(check).count(), 1, "{}", file.display());
        let never = check.replace("now > demand", "0 > demand").replace(">= now", ">= 0");
        fs::write(file, text.replace(check, &never)).unwrap();
    }
    folder
}

/// The files of mutants of this project.
pub fn files() -> Vec<PathBuf> {
    let folder = root().join("tests/mutants").read_dir().unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// How many mutants there are in these files, and which of them no longer fit what they are to change.
pub fn misplaced(files: &[PathBuf]) -> (usize, Vec<String>) {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    let misplaced = mutants.iter().filter_map(|mutant| mutant.changed(&root()).err());
    (mutants.len(), misplaced.collect())
}

/// Tries all mutants in these files. Gives the number of those that nobody noticed.
pub fn try_all(files: &[PathBuf]) -> usize {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    println!("{} mutants", mutants.len());
    assert_eq!(misplaced(files).1, [""; 0], "before any of them is tried");
    let suite = build(&root(), "protocol").expect("the suite of the scripts builds");
    let mut survivors = 0;
    for (at, mutant) in mutants.iter().enumerate() {
        let started = Instant::now();
        let catcher = if mutant.file.starts_with("lua") {
            try_script(mutant, &suite)
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
        fs::write(folder.join(&self.file), self.changed(folder).unwrap()).unwrap();
    }

    /// The text of the file below that folder with the fault, which has one place there.
    fn changed(&self, folder: &Path) -> Result<String, String> {
        let text = fs::read_to_string(folder.join(&self.file)).unwrap();
        match text.matches(&self.old).count() {
            1 => Ok(text.replace(&self.old, &self.new)),
            places => Err(format!("{}: {places} places for `{}`", self.file.display(), self.old)),
        }
    }
}

/// In a copy of the scripts, which needs no build.
fn try_script(mutant: &Mutant, suite: &Path) -> Option<String> {
    let folder = scratch("scripts");
    copy(&root().join("lua"), &folder.join("lua"));
    mutant.apply(&folder);
    let scripts = folder.join("lua");
    hunt(Some(scripts.clone()), LIMIT).or_else(|| examine(&scripts, suite))
}

/// The first test of the suite that these scripts fail, on a real server.
fn examine(scripts: &Path, suite: &Path) -> Option<String> {
    let output = Command::new(suite).env("RWLEASE_LUA", scripts).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = text.lines().find(|line| line.ends_with("FAILED"));
    let name = failed.and_then(|line| line.split(' ').nth(1)).unwrap_or("it ends");
    (!output.status.success()).then(|| format!("protocol: {name}"))
}

/// The rule that the first violation broke, or what is never reached any more.
pub fn hunt(scripts: Option<PathBuf>, limit: Duration) -> Option<String> {
    let plan = |seed| Plan {
        scripts: scripts.clone(),
        ..Plan::from_seed(seed)
    };
    let started = Instant::now();
    let short = runs(1, Until::ViolationOrSeed(SEEDS), plan, |_| {});
    if let Some(found) = first_violation(&short) {
        return Some(found);
    } else if let Some(missing) = short.missing().first() {
        return Some(format!("simulation: reached too seldom: {missing}"));
    }
    let rest = limit.saturating_sub(started.elapsed());
    first_violation(&runs(SEEDS + 1, Until::Violation(rest), plan, |_| {}))
}

fn first_violation(total: &Total) -> Option<String> {
    let found = total.violations.first()?;
    let rule = found.violation.as_ref()?.rule;
    Some(format!("simulation: {rule} (seed {})", found.plan.seed))
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
    let program = build(&folder, "simulation").unwrap_or_else(|| panic!("this mutant does not build: {}", mutant.what));
    let hunting = Command::new(program)
        .args(["--ignored", "--exact", "hunt", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut hunting = hunting.unwrap();
    let patience = Instant::now() + 3 * LIMIT;
    while hunting.try_wait().unwrap().is_none() {
        if Instant::now() > patience {
            hunting.kill().unwrap();
            hunting.wait().unwrap();
            return Some("simulation: a run that does not end".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = hunting.wait_with_output().unwrap().stdout;
    let text = String::from_utf8_lossy(&text);
    match text.lines().find_map(|line| line.strip_prefix("caught by ")) {
        Some(caught) => Some(caught.to_owned()),
        None if text.contains("not caught") => None,
        None => Some("simulation: it ends by itself".into()),
    }
}

/// One of the tests of the source in that folder.
fn build(folder: &Path, test: &str) -> Option<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--release", "--features", "embedded", "--test", test])
        .args(["--no-run", "--message-format=json"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", root().join("target/mutants/build"))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, found) = text.rsplit_once("\"executable\":\"")?;
    found.split('"').next().map(PathBuf::from)
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
