//! Deliberate faults in the scripts and in the client, one at a time. A fault in the scripts must
//! be found by the simulation or, if it is not in time, by the suites of the scripts. A fault in
//! the client must be found by a suite that needs no server, which is built in seconds, or else by
//! the simulation.
//!
//! A file of mutants is a list of blocks, parted by empty lines:
//!
//! ```text
//! # what is wrong with it
//! invariant: which promise it breaks; those of the scripts that every call keeps have numbers
//! file: lua/lib/pump.lua
//! old: the text that is there (\n for a line break)
//! new: the text that takes its place
//! ```

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::runs::{Until, runs};
use crate::sample::{Results, sample};
use crate::watchdog;

/// How long suites may take until a mutant is caught. What is built meanwhile does not count.
const BUDGET: Duration = Duration::from_secs(120);

/// How long the simulation may: of a mutant of the scripts, this counts as a part of the above.
pub const HUNT: Duration = Duration::from_secs(40);

/// What the simulation may take beyond that to come to its end.
const SPARE: Duration = Duration::from_secs(5);

/// Where a fault in the scripts is looked for: before the simulation, and after it.
const SUITES_OF_THE_SCRIPTS: [Target; 2] = [
    Target { name: "protocol", arguments: &["--test", "protocol"], tests: &[] },
    Target { name: "twin", arguments: &["--lib"], tests: &["twin::the_usual_paths"] },
];

/// Where a fault in the client is.
const SUITES_OF_THE_CLIENT: &[Target] = &[
    Target {
        name: "lib",
        arguments: &["--lib"],
        tests: &["client::", "router::", "protocol::", "retry::", "leader::", "blocking::"],
    },
    Target {
        name: "it",
        arguments: &["--test", "it"],
        tests: &[
            "meanwhile::",
            "leftovers::",
            "pushed::",
            "quorum::embedded::",
            "cached::",
            "leading::campaigns::",
        ],
    },
];

/// What `cargo test` builds.
#[derive(Clone, Copy, Debug)]
struct Target {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Those of its tests that are run; all, if none is named.
    tests: &'static [&'static str],
}

/// A target that was built.
#[derive(Clone, Debug)]
struct Suite {
    target: Target,
    program: PathBuf,
    /// Other scripts than those that were built in.
    scripts: Option<PathBuf>,
}

/// The random tests among them find the same each time.
const SEED_OF_THE_SUITES: &str = "1";

/// How many numbered invariants the scripts have.
const INVARIANTS: u32 = 12;

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
        ("lib/usual.lua", "not_after >= now"),
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

/// How many mutants there are in these files, and which of them no longer fit what they are to
/// change.
pub fn misplaced(files: &[PathBuf]) -> (usize, Vec<String>) {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    let misplaced = mutants.iter().filter_map(|mutant| mutant.changed(&root()).err());
    (mutants.len(), misplaced.collect())
}

/// The numbers of the invariants of all scripts that no mutant in these files breaks.
pub fn without_mutant(files: &[PathBuf]) -> Vec<u32> {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    let breaks = |number: &u32| {
        let name = format!("{number}, ");
        mutants.iter().any(|mutant| mutant.invariant.starts_with(&name))
    };
    (1..=INVARIANTS).filter(|number| !breaks(number)).collect()
}

/// Tries all mutants in these files. Gives the number of those that nobody noticed.
pub fn try_all(files: &[PathBuf]) -> usize {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    println!("{} mutants", mutants.len());
    assert_eq!(misplaced(files).1, [""; 0], "before any of them is tried");
    let (of_scripts, of_source): (Vec<_>, Vec<_>) =
        mutants.iter().partition(|mutant| mutant.is_of_the_scripts());
    let unchanged = Unchanged::build(!of_scripts.is_empty(), !of_source.is_empty());
    unchanged.must_pass();
    let mut survivors = 0;
    for (at, mutant) in mutants.iter().enumerate() {
        let mut attempt = Attempt::new(&unchanged);
        let catcher = match mutant.is_of_the_scripts() {
            true => attempt.on_script(mutant),
            false => attempt.on_source(mutant),
        };
        survivors += usize::from(catcher.is_none());
        let verdict = catcher.unwrap_or_else(|| format!("SURVIVED {}", attempt.notes.join("; ")));
        println!(
            "{:>3} {:>5.1} s  {:<60} [{}] {verdict}",
            at + 1,
            attempt.used.as_secs_f64(),
            mutant.what,
            mutant.invariant
        );
    }
    println!("{survivors} of {} survived", mutants.len());
    survivors
}

/// Tries a sample of faults in the scripts, and notes what finds each. It goes on where it ended.
pub fn try_sample(count: usize, seed: u64) {
    let results = Results::open(&root().join("docs/results/mutation-lua.tsv"), seed, count);
    let unchanged = Unchanged::build(true, false);
    unchanged.must_pass();
    let faults = sample(&root().join("lua"), seed, count);
    for (at, fault) in faults.iter().enumerate().skip(results.done) {
        let folder = scratch("sampled");
        copy(&root().join("lua"), &folder);
        fault.plant(&folder);
        let mut attempt = Attempt::new(&unchanged);
        let found = attempt.on_scripts(&folder).unwrap_or_else(|| "SURVIVED".into());
        println!("{:>3} {fault}\t{found}", at + 1);
        results.add(at + 1, fault, attempt.used.as_secs_f64(), &found);
    }
}

fn read(file: &Path) -> Vec<Mutant> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.split("\n\n").filter(|block| block.contains("file:")).map(Mutant::read).collect()
}

impl Mutant {
    fn read(block: &str) -> Mutant {
        let part = |name: &str| {
            let lines: Vec<_> = block.lines().filter_map(|line| line.strip_prefix(name)).collect();
            let [line] = lines[..] else { panic!("not one `{name}` in\n{block}") };
            line.strip_prefix(' ').unwrap_or("").replace("\\n", "\n")
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

    fn is_of_the_scripts(&self) -> bool {
        self.file.starts_with("lua")
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

/// The suites as they are without a fault: who fails there too has noticed nothing.
#[derive(Debug)]
struct Unchanged {
    /// This program: a copy, for it may be built anew meanwhile.
    simulation: PathBuf,
    suites: Vec<Suite>,
}

impl Unchanged {
    fn build(for_scripts: bool, for_source: bool) -> Unchanged {
        let simulation = scratch("simulation").join("simulation");
        fs::copy(std::env::current_exe().unwrap(), &simulation).unwrap();
        let (mut suites, kept) = (Vec::new(), scratch("unchanged"));
        let mut build = |target: &Target, folder: &Path| {
            let mut suite = target.build(folder);
            let program = kept.join(target.name); // the next build takes the place of this one
            fs::copy(&suite.program, &program).unwrap();
            suite.program = program;
            suites.push(suite);
        };
        if for_scripts {
            SUITES_OF_THE_SCRIPTS.iter().for_each(|target| build(target, &root()));
        }
        if for_source {
            let source = copy_of_the_source();
            SUITES_OF_THE_CLIENT.iter().for_each(|target| build(target, &source));
        }
        Unchanged { simulation, suites }
    }

    /// Else they would catch everything.
    fn must_pass(&self) {
        let mut attempt = Attempt::new(self);
        assert_eq!(attempt.hunt(&self.simulation, None), None);
        for suite in &self.suites {
            let outcome = finish(&mut suite.command(), BUDGET, |_| false);
            assert_eq!(outcome.is_well, Some(true), "{}: {outcome:?}", suite.target.name);
        }
    }

    /// Whether that test passes.
    fn passes(&self, target: Target, test: &str) -> bool {
        let suite = self.suites.iter().find(|suite| suite.target.name == target.name);
        let mut again = Command::new(&suite.expect("one that was built").program);
        again.args(["--exact", test]).env("RWLEASE_SEED", SEED_OF_THE_SUITES);
        finish(&mut again, BUDGET, |_| false).is_well == Some(true)
    }
}

/// The search for one mutant.
#[derive(Debug)]
struct Attempt<'a> {
    unchanged: &'a Unchanged,
    /// How long it has taken so far, without what was built.
    used: Duration,
    /// What is odd, and catches nothing.
    notes: Vec<String>,
}

impl Attempt<'_> {
    fn new(unchanged: &Unchanged) -> Attempt<'_> {
        Attempt { unchanged, used: Duration::ZERO, notes: Vec::new() }
    }

    /// In a copy of the scripts, which needs no build.
    fn on_script(&mut self, mutant: &Mutant) -> Option<String> {
        let folder = scratch("scripts");
        copy(&root().join("lua"), &folder.join("lua"));
        mutant.apply(&folder);
        self.on_scripts(&folder.join("lua"))
    }

    /// With the scripts of that folder.
    fn on_scripts(&mut self, scripts: &Path) -> Option<String> {
        let unchanged = self.unchanged;
        let [protocol, twin] = [0, 1]
            .map(|at| Suite { scripts: Some(scripts.into()), ..unchanged.suites[at].clone() });
        self.examine(&protocol)
            .or_else(|| self.hunt(&unchanged.simulation, Some(scripts)))
            .or_else(|| self.examine(&twin))
    }

    /// In a copy of the source, which is built anew.
    fn on_source(&mut self, mutant: &Mutant) -> Option<String> {
        let folder = copy_of_the_source();
        mutant.apply(&folder);
        let caught =
            SUITES_OF_THE_CLIENT.iter().find_map(|target| self.examine(&target.build(&folder)));
        caught.or_else(|| {
            let simulation = build(&folder, &["--release", "--test", "simulation"]);
            let simulation =
                simulation.unwrap_or_else(|| panic!("this mutant does not build: {}", mutant.what));
            self.hunt(&simulation, None)
        })
    }

    /// The rule that the first violation broke. The search is a process of its own, which can be
    /// ended when a run does not end.
    fn hunt(&mut self, program: &Path, scripts: Option<&Path>) -> Option<String> {
        let mut hunting = Command::new(program);
        hunting.args(["--ignored", "--exact", "hunt", "--nocapture"]);
        if let Some(scripts) = scripts {
            hunting.env("RWLEASE_LUA", scripts);
        }
        let Finished { is_well, text } = self.finish(&mut hunting, HUNT + SPARE, |_| false);
        let Some(is_well) = is_well else {
            self.notes.push("the simulation did not end in time".into());
            return None;
        };
        let told =
            |what: &str| text.lines().find_map(|line| Some(line.split_once(what)?.1.to_owned()));
        let caught = told("caught by ")
            .or_else(|| told(watchdog::STUCK).map(|seed| format!("a run does not end: {seed}")));
        if let Some(caught) = caught {
            return Some(format!("simulation: {caught}"));
        }
        self.notes.extend(told("too seldom: ").map(|what| format!("reached too seldom: {what}")));
        if !is_well {
            self.notes.push("the simulation failed by itself".into());
        }
        None
    }

    /// A test of the suite that fails, and does not fail without the fault; also if others do not end
    /// with it. The first that fails ends the suite, unless it fails without the fault as well.
    fn examine(&mut self, suite: &Suite) -> Option<String> {
        let name = suite.target.name;
        let failed = |text: &str| {
            text.lines()
                .filter(|line| line.ends_with("FAILED"))
                .filter_map(|line| Some(line.split(' ').nth(1)?.to_owned()))
                .collect::<Vec<_>>()
        };
        let mut innocent = Vec::new();
        let (caught, is_well) = loop {
            let is_new = |text: &str| failed(text).iter().any(|test| !innocent.contains(test));
            let left = BUDGET.saturating_sub(self.used);
            let Finished { is_well, text } = self.finish(&mut suite.command(), left, is_new);
            let mut suspects = failed(&text);
            suspects.retain(|test| !innocent.contains(test));
            let guilty = suspects.iter().find(|test| self.unchanged.passes(suite.target, test));
            if guilty.is_some() || suspects.is_empty() {
                break (guilty.cloned(), is_well);
            }
            innocent.extend(suspects);
        };
        match is_well {
            None if caught.is_some() => {}
            None => self.notes.push(format!("LATE: {name} did not end in time")),
            // No test says so where one ends them all, as an overflow of the stack does.
            Some(false) if caught.is_none() && innocent.is_empty() => {
                return Some(format!("{name}: the suite ended"));
            }
            Some(false) if caught.is_none() => {
                self.notes.push(format!("{name} failed, but not by this fault"));
            }
            Some(_) => {}
        }
        caught.map(|test| format!("{name}: {test}"))
    }

    fn finish(
        &mut self,
        command: &mut Command,
        time: Duration,
        is_enough: impl Fn(&str) -> bool,
    ) -> Finished {
        let started = Instant::now();
        let outcome = finish(command, time, is_enough);
        self.used += started.elapsed();
        outcome
    }
}

impl Target {
    fn build(self, folder: &Path) -> Suite {
        let program = build(folder, self.arguments);
        Suite {
            target: self,
            program: program.unwrap_or_else(|| panic!("{} does not build", self.name)),
            scripts: None,
        }
    }
}

impl Suite {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.target.tests).env("RWLEASE_SEED", SEED_OF_THE_SUITES);
        if let Some(scripts) = &self.scripts {
            command.env("RWLEASE_LUA", scripts);
        }
        command
    }
}

/// Looks for a violation, and says what it has found, for `Attempt::hunt`.
pub fn hunt() {
    watchdog::set_patience(HUNT / 3);
    let scripts = std::env::var_os("RWLEASE_LUA").map(PathBuf::from);
    let plan = |seed| Plan { scripts: scripts.clone(), ..Plan::from_seed(seed) };
    let total = runs(1, Until::Violation(HUNT), plan, |_| {});
    let first = total.violations.first();
    if let Some((found, violation)) =
        first.and_then(|found| Some((found, found.violation.as_ref()?)))
    {
        println!("caught by {} (seed {})", violation.rule, found.plan.seed);
    } else if let Some(missing) = total.missing().first() {
        println!("too seldom: {missing}");
    }
}

fn copy_of_the_source() -> PathBuf {
    let folder = scratch("source");
    for part in [
        "Cargo.toml",
        "Cargo.lock",
        "clippy.toml",
        "src",
        "lua",
        "tests",
        "examples",
        // They are not built, but cargo wants all members of a workspace.
        "cli",
        "benches",
    ] {
        if root().join(part).exists() {
            copy(&root().join(part), &folder.join(part));
        }
    }
    folder
}

/// How a command ended, and what it said.
#[derive(Debug)]
struct Finished {
    /// Nothing if it was ended.
    is_well: Option<bool>,
    text: String,
}

/// Runs a command until it ends, its time is over, or what it has said is enough. Then the servers
/// that it has started are ended with it.
fn finish(command: &mut Command, time: Duration, is_enough: impl Fn(&str) -> bool) -> Finished {
    let file = root().join("target/mutants/said");
    let said = fs::File::create(&file).unwrap();
    let mut child = command.stdout(said).stderr(Stdio::null()).process_group(0).spawn().unwrap();
    let wait_limit = Instant::now() + time;
    let text = || String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    loop {
        let ended = child.try_wait().unwrap();
        if ended.is_some() || Instant::now() > wait_limit || is_enough(&text()) {
            let group = format!("-{}", child.id());
            Command::new("kill")
                .args(["-KILL", "--", &group])
                .stderr(Stdio::null())
                .status()
                .unwrap();
            child.wait().unwrap();
            return Finished { is_well: ended.map(|status| status.success()), text: text() };
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The tests that this target of the source in that folder has.
fn build(folder: &Path, target: &[&str]) -> Option<PathBuf> {
    // Cargo takes a copy of the source for the source itself, and would run what knows the folder
    // of the other.
    let kept = if folder == root() { "suites" } else { "build" };
    let output = Command::new(env!("CARGO"))
        .args(["test", "-p", "rwlease", "--features", "blocking,embedded,metrics"])
        .args(target)
        .args(["--no-run", "--message-format=json"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", root().join("target/mutants").join(kept))
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
        if entry.file_name() == "target" {
            continue; // built in a package of its own, below `benches`
        }
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
