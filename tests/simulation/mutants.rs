//! Deliberate faults in the scripts and in the client, one at a time. The simulation must find a
//! fault in the scripts or, if it does not find it in time, the suites of the scripts must. A suite
//! without a server, which builds in seconds, must find a fault in the client, or else the
//! simulation.
//!
//! A file of mutants is a list of blocks, separated by empty lines:
//!
//! ```text
//! # what is wrong with it
//! invariant: which promise it breaks; those of the scripts that every call keeps have numbers
//! file: lua/lib/grant_waiters.lua
//! old: the text that is there (\n for a line break)
//! new: the text that takes its place
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::copies::{Finished, build, copy, copy_of_the_source, finish, root, scratch};
use crate::plan::Plan;
use crate::runs::{Until, runs};
use crate::sample::{self, DOES_NOT_BUILD, Fault, Results, SURVIVED, Sampled};
use crate::{source, watchdog};

/// How long the suites may run until they catch a mutant, without the builds.
const BUDGET: Duration = Duration::from_secs(120);

/// How long the simulation may search. For a mutant of the scripts, this is a part of `BUDGET`.
pub const HUNT: Duration = Duration::from_secs(40);

/// The number of runs that search for a sampled fault: about a minute on two processors. The limit
/// is a count, because the machine may have other work.
const RUNS_OF_SAMPLES: u64 = 2_000;

/// The time beyond that in which the simulation must finish.
const SPARE: Duration = Duration::from_secs(5);

/// The suites that look for a fault in the scripts, before the simulation and after it.
const SUITES_OF_THE_SCRIPTS: [Target; 2] =
    [PROTOCOL, Target { name: "twin", arguments: &["--lib"], tests: &["twin::script_fast_paths"] }];

/// The same for a sampled fault, in the program of the model checker.
const QUICK_TWIN: Target = Target { arguments: CHECK.arguments, ..SUITES_OF_THE_SCRIPTS[1] };

const PROTOCOL: Target =
    Target { name: "protocol", arguments: &["--test", "protocol"], tests: &[] };

/// The tests that find most faults in the shortest time.
const PROTOCOL_FIRST: Target = Target {
    name: "protocol, first",
    tests: &[
        "cached::",
        "changing::",
        "cost::",
        "ending::",
        "handoff::",
        "holding::",
        "pushing::",
        "queueing::",
        "shapes::",
        "taking_up::",
    ],
    ..PROTOCOL
};

/// Worlds that the model checker searches in half a minute.
const CHECK: Target = Target {
    name: "check",
    arguments: &["--release", "--lib"],
    tests: &["--include-ignored", "checker::score::the_scripts_as_they_are"],
};

const METRICS: Target = Target {
    name: "metrics",
    arguments: &["--test", "metrics"],
    tests: &["prometheus_sees_each_step_of_a_lock_and_the_dashboard_queries_what_there_is"],
};

/// Further suites for a sampled fault of the source.
const SUITES_OF_SAMPLES: [Target; 3] = [METRICS, PROTOCOL, CHECK];

/// How long a suite may run with a sampled fault. The machine may have other work.
const BUDGET_OF_SAMPLES: Duration = Duration::from_secs(600);

/// The suites that look for a fault in the client.
const SUITES_OF_THE_CLIENT: &[Target] = &[
    Target {
        name: "lib",
        arguments: &["--lib"],
        tests: &[
            "client::",
            "router::",
            "backend::in_turn::",
            "protocol::",
            "retry::",
            "leader::",
            "lock::transfer::",
            "blocking::",
        ],
    },
    Target {
        name: "it",
        arguments: &["--test", "it"],
        tests: &[
            "meanwhile::",
            "leftovers::",
            "healing::",
            "pushed::",
            "quorum::embedded::",
            "cached::",
            "leading::campaigns::",
            "handing_on::",
        ],
    },
];

/// A target that `cargo test` builds.
#[derive(Clone, Copy, Debug)]
struct Target {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The tests to run. All tests run if the list is empty.
    tests: &'static [&'static str],
}

/// A built target.
#[derive(Clone, Debug)]
struct Suite {
    target: Target,
    program: PathBuf,
    /// Scripts in place of the built-in ones.
    scripts: Option<PathBuf>,
}

/// The seed of the suites' random tests, which makes them repeatable.
const SEED_OF_THE_SUITES: &str = "1";

/// The number of numbered invariants of the scripts.
const INVARIANTS: u32 = 12;

#[derive(Debug)]
struct Mutant {
    what: String,
    invariant: String,
    file: PathBuf,
    old: String,
    new: String,
}

/// A copy of the scripts that accepts requests however late they arrive.
pub fn without_not_after() -> PathBuf {
    scripts_with(
        "without_not_after",
        &[
            ("lib/fast/args.lua", "not_after >= now_ms_text", "not_after >= '0'"),
            ("lib/acquire_slow.lua", "now_ms > request.not_after", "0 > request.not_after"),
            ("upgrade.lua", "now_ms > request.not_after", "0 > request.not_after"),
        ],
    )
}

/// A file, the old text, and the new text.
pub type Change = (&'static str, &'static str, &'static str);

/// A copy of the scripts with these faults.
pub fn scripts_with(name: &str, faults: &[Change]) -> PathBuf {
    let folder = scratch(name);
    copy(&root().join("lua"), &folder);
    for (file, old, new) in faults {
        let (file, text) = (folder.join(file), fs::read_to_string(folder.join(file)).unwrap());
        assert_eq!(text.matches(old).count(), 1, "{}", file.display());
        fs::write(file, text.replace(old, new)).unwrap();
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

/// The number of mutants in these files, and those that no longer fit the code.
pub fn misplaced(files: &[PathBuf]) -> (usize, Vec<String>) {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    let misplaced = mutants.iter().filter_map(|mutant| mutant.changed(&root()).err());
    (mutants.len(), misplaced.collect())
}

/// The numbered invariants of the scripts that no mutant in these files breaks.
pub fn without_mutant(files: &[PathBuf]) -> Vec<u32> {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    let breaks = |number: &u32| {
        let name = format!("{number}, ");
        mutants.iter().any(|mutant| mutant.invariant.starts_with(&name))
    };
    (1..=INVARIANTS).filter(|number| !breaks(number)).collect()
}

/// Tries all mutants in these files, and returns how many survived.
pub fn try_all(files: &[PathBuf]) -> usize {
    let mutants: Vec<Mutant> = files.iter().flat_map(|file| read(file)).collect();
    println!("{} mutants", mutants.len());
    assert_eq!(misplaced(files).1, [""; 0], "before any of them is tried");
    let (of_scripts, of_source): (Vec<_>, Vec<_>) =
        mutants.iter().partition(|mutant| mutant.is_of_the_scripts());
    let mut unchanged = Unchanged::new();
    if !of_scripts.is_empty() {
        unchanged = unchanged.with(&SUITES_OF_THE_SCRIPTS, &root());
    }
    if !of_source.is_empty() {
        unchanged = unchanged.with(SUITES_OF_THE_CLIENT, &copy_of_the_source());
    }
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

/// The part of a sample to try.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    pub count: usize,
    pub seed: u64,
    /// Runs only the suites that find most faults in seconds.
    pub is_quick: bool,
    /// Tries again those that have survived so far.
    pub again: bool,
}

/// Tries a sample of faults in the scripts, and records what finds each. Continues after the last
/// recorded one.
pub fn try_sample(sampling: Sampling) {
    let targets = [PROTOCOL_FIRST, PROTOCOL, QUICK_TWIN, CHECK];
    let targets = if sampling.is_quick { &targets[..1] } else { &targets };
    let unchanged = Unchanged::new().with(targets, &root());
    try_faults(&sample::scripts(), sampling, &sample::sample(sampling.seed), &unchanged);
}

/// The same for the source of the client, the router and the protocol.
pub fn try_sample_of_source(sampling: Sampling) {
    let targets = [SUITES_OF_THE_CLIENT, &SUITES_OF_SAMPLES].concat();
    let unchanged = Unchanged::new().with(&targets, &copy_of_the_source());
    try_faults(&source::files(), sampling, &source::sample(sampling.seed), &unchanged);
}

fn try_faults(sampled: &Sampled, sampling: Sampling, faults: &[Fault], unchanged: &Unchanged) {
    let is_of_scripts = sampled.folder == "lua";
    let name = if is_of_scripts { "lua" } else { "source" };
    let file = root().join(format!("docs/results/mutation-{name}.tsv"));
    let mut results = Results::open(&file, sampled, sampling.seed);
    if !sampling.is_quick {
        unchanged.must_pass();
    }
    let mut survivors = if sampling.again { results.survivors() } else { Vec::new() }.into_iter();
    loop {
        let next = (results.tried() < sampling.count).then(|| results.next());
        let Some(at) = survivors.next().or(next) else { break };
        let Some(fault) = faults.get(at) else { break };
        let mut attempt = Attempt::of_a_sample(unchanged);
        let started = Instant::now();
        let found = match is_of_scripts {
            true => attempt.on_sampled_scripts(fault, sampling.is_quick),
            false => attempt.on_sampled_source(fault, sampling.is_quick),
        };
        let found = found.unwrap_or_else(|| [SURVIVED, &attempt.notes.join("; ")].join(" "));
        println!("{:>3} {fault}\t{found}", at + 1);
        results.set(at, fault, started.elapsed().as_secs_f64(), found.trim_end());
    }
    println!("{}", results.score());
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

    /// Writes the fault into the file in this folder.
    fn apply(&self, folder: &Path) {
        fs::write(folder.join(&self.file), self.changed(folder).unwrap()).unwrap();
    }

    /// The file's text with the fault, whose old text must occur exactly once.
    fn changed(&self, folder: &Path) -> Result<String, String> {
        let text = fs::read_to_string(folder.join(&self.file)).unwrap();
        match text.matches(&self.old).count() {
            1 => Ok(text.replace(&self.old, &self.new)),
            places => Err(format!("{}: {places} places for `{}`", self.file.display(), self.old)),
        }
    }
}

/// The suites without a fault. A test that also fails here does not count as a find.
#[derive(Debug)]
struct Unchanged {
    /// A copy of this program, because a build may replace it during the search.
    simulation: PathBuf,
    /// The folder of the suites' programs.
    kept: PathBuf,
    suites: Vec<Suite>,
}

impl Unchanged {
    fn new() -> Unchanged {
        let simulation = scratch("simulation").join("simulation");
        fs::copy(std::env::current_exe().unwrap(), &simulation).unwrap();
        Unchanged { simulation, kept: scratch("unchanged"), suites: Vec::new() }
    }

    /// Adds the targets of the source in this folder.
    fn with(mut self, targets: &[Target], folder: &Path) -> Unchanged {
        for target in targets {
            let mut suite = target.build(folder);
            let program = self.kept.join(target.name); // the next build replaces this one
            fs::copy(&suite.program, &program).unwrap();
            suite.program = program;
            self.suites.push(suite);
        }
        self
    }

    /// Checks that the suites pass without a fault. Otherwise they would catch every mutant.
    fn must_pass(&self) {
        let mut attempt = Attempt::new(self);
        assert_eq!(attempt.hunt(&self.simulation, None), None);
        for suite in &self.suites {
            let outcome = finish(&mut suite.command(), BUDGET_OF_SAMPLES, |_| false);
            assert_eq!(outcome.is_well, Some(true), "{}: {outcome:?}", suite.target.name);
        }
    }

    /// Whether this test passes in time.
    fn passes(&self, target: Target, test: &str, time: Duration) -> bool {
        let suite = self.suites.iter().find(|suite| suite.target.name == target.name);
        suite.expect("one that was built").passes(test, time)
    }
}

/// The limit of the simulation's search.
#[derive(Clone, Copy, Debug)]
pub enum Hunt {
    For(Duration),
    /// A number of runs.
    Through(u64),
}

/// The search for one mutant.
#[derive(Debug)]
struct Attempt<'a> {
    unchanged: &'a Unchanged,
    /// The time that it has taken so far, without builds.
    used: Duration,
    /// Irregularities that do not count as a find.
    notes: Vec<String>,
    /// The limit of the simulation, and of the whole attempt.
    hunt: Hunt,
    budget: Duration,
}

impl Attempt<'_> {
    fn new(unchanged: &Unchanged) -> Attempt<'_> {
        let (hunt, budget) = (Hunt::For(HUNT), BUDGET);
        Attempt { unchanged, used: Duration::ZERO, notes: Vec::new(), hunt, budget }
    }

    fn of_a_sample(unchanged: &Unchanged) -> Attempt<'_> {
        let (hunt, budget) = (Hunt::Through(RUNS_OF_SAMPLES), BUDGET_OF_SAMPLES);
        Attempt { hunt, budget, ..Attempt::new(unchanged) }
    }

    /// Tries a mutant in a copy of the scripts, which needs no build.
    fn on_script(&mut self, mutant: &Mutant) -> Option<String> {
        let folder = scratch("scripts");
        copy(&root().join("lua"), &folder.join("lua"));
        mutant.apply(&folder);
        self.on_scripts(&folder.join("lua"))
    }

    /// Tries the scripts in this folder.
    fn on_scripts(&mut self, scripts: &Path) -> Option<String> {
        self.examine_with(PROTOCOL, scripts)
            .or_else(|| self.hunt(&self.unchanged.simulation, Some(scripts)))
            .or_else(|| self.examine_with(SUITES_OF_THE_SCRIPTS[1], scripts))
    }

    /// Tries a sampled fault in a copy of the scripts, with the quickest suites first.
    fn on_sampled_scripts(&mut self, fault: &Fault, is_quick: bool) -> Option<String> {
        let scripts = scratch("scripts").join("lua");
        copy(&root().join("lua"), &scripts);
        fault.plant(&scripts);
        let found = self.examine_with(PROTOCOL_FIRST, &scripts);
        if is_quick {
            return found;
        }
        found
            .or_else(|| self.examine_with(PROTOCOL, &scripts))
            .or_else(|| self.examine_with(QUICK_TWIN, &scripts))
            .or_else(|| self.examine_with(CHECK, &scripts))
            .or_else(|| self.hunt(&self.unchanged.simulation, Some(&scripts)))
    }

    fn examine_with(&mut self, target: Target, scripts: &Path) -> Option<String> {
        let suites = &self.unchanged.suites;
        let suite = suites.iter().find(|suite| suite.target.name == target.name)?;
        self.examine(&Suite { scripts: Some(scripts.into()), ..suite.clone() })
    }

    /// Tries a mutant in a copy of the source, which it rebuilds.
    fn on_source(&mut self, mutant: &Mutant) -> Option<String> {
        let folder = copy_of_the_source();
        mutant.apply(&folder);
        let caught =
            SUITES_OF_THE_CLIENT.iter().find_map(|target| self.examine(&target.build(&folder)));
        caught.or_else(|| self.hunt_in(&folder))
    }

    /// Tries a sampled fault in a copy of the source, with the tests of its own module first.
    fn on_sampled_source(&mut self, fault: &Fault, is_quick: bool) -> Option<String> {
        let folder = &copy_of_the_source();
        fault.plant(&folder.join("src"));
        let Some(program) = build(folder, &["--lib"]) else {
            return Some(DOES_NOT_BUILD.into());
        };
        let [lib, others @ ..] = SUITES_OF_THE_CLIENT else { return None };
        let path = fault.file.with_extension("");
        let module: Vec<_> = path.iter().take(2).map(|part| part.to_string_lossy()).collect();
        let module = [module.join("::").leak() as &str];
        let own = Target { tests: Box::leak(Box::new(module)), ..*lib };
        let caught = [own, *lib].into_iter().find_map(|target| {
            self.examine(&Suite { target, program: program.clone(), scripts: None })
        });
        if is_quick {
            return caught;
        }
        let suites = others.iter().chain(&SUITES_OF_SAMPLES);
        caught
            .or_else(|| suites.into_iter().find_map(|it| self.examine(&it.build(folder))))
            .or_else(|| self.hunt_in(folder))
    }

    fn hunt_in(&mut self, folder: &Path) -> Option<String> {
        let simulation = build(folder, &["--release", "--test", "simulation"]);
        self.hunt(&simulation.expect("its other suites are built"), None)
    }

    /// Returns the rule that the first violation broke. The search is a separate process, so that
    /// it can be killed if a run does not end.
    fn hunt(&mut self, program: &Path, scripts: Option<&Path>) -> Option<String> {
        let mut hunting = Command::new(program);
        hunting.args([
            "--ignored",
            "--exact",
            "violation_of_scripts_is_searched_for",
            "--nocapture",
        ]);
        let left = self.budget.saturating_sub(self.used);
        let (setting, value, wait_limit) = match self.hunt {
            Hunt::For(time) => ("SECONDS", time.as_secs(), time + SPARE),
            Hunt::Through(runs) => ("RUNS", runs, left),
        };
        hunting.env(setting, value.to_string());
        if let Some(scripts) = scripts {
            hunting.env("RWLEASE_LUA", scripts);
        }
        let Finished { is_well, text } = self.finish(&mut hunting, wait_limit, |_| false);
        let Some(is_well) = is_well else {
            self.notes.push("LATE: the simulation did not end in time".into());
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

    /// Returns a test of the suite that fails or hangs with the fault and passes without it. The
    /// first one ends the suite, unless it also fails without the fault.
    fn examine(&mut self, suite: &Suite) -> Option<String> {
        let name = suite.target.name.split(',').next().unwrap_or_default();
        let is_failure = |line: &&str| {
            line.ends_with("FAILED")
                || (suite.target.is_of_seconds() && line.ends_with("running for over 60 seconds"))
        };
        let failed = |text: &str| {
            text.lines()
                .filter(is_failure)
                .filter_map(|line| Some(line.split(' ').nth(1)?.to_owned()))
                .collect::<Vec<_>>()
        };
        let mut innocent = Vec::new();
        let (caught, is_well) = loop {
            let is_new = |text: &str| failed(text).iter().any(|test| !innocent.contains(test));
            let left = self.budget.saturating_sub(self.used);
            let Finished { is_well, text } = self.finish(&mut suite.command(), left, is_new);
            let mut suspects = failed(&text);
            suspects.retain(|test| !innocent.contains(test));
            let guilty = suspects.iter().find(|test| self.is_found_by(suite, test, &text));
            if guilty.is_some() || suspects.is_empty() {
                break (guilty.cloned(), is_well);
            }
            innocent.extend(suspects);
        };
        match is_well {
            None if caught.is_some() => {}
            None => self.notes.push(format!("LATE: {name} did not end in time")),
            // A failure that ends all tests, such as a stack overflow, is not reported by a test.
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

    /// Whether this test fails or hangs with the fault and passes without it. A test that hangs
    /// runs once more alone, because the machine may have been slow.
    fn is_found_by(&self, suite: &Suite, test: &str, text: &str) -> bool {
        let passes = |time| self.unchanged.passes(suite.target, test, time);
        match text.contains(&format!("test {test} ... FAILED")) {
            true => passes(BUDGET),
            false => passes(BUDGET / 4) && !suite.passes(test, BUDGET / 4),
        }
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
    /// Whether each test of it ends within seconds, so that one that runs for a minute hangs.
    fn is_of_seconds(self) -> bool {
        SUITES_OF_THE_CLIENT.iter().any(|suite| suite.name == self.name)
    }

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
        let mut command = self.program();
        command.args(self.target.tests);
        command
    }

    fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("RWLEASE_SEED", SEED_OF_THE_SUITES);
        if let Some(scripts) = &self.scripts {
            command.env("RWLEASE_LUA", scripts);
        }
        command
    }

    /// Whether this test passes in time.
    fn passes(&self, test: &str, time: Duration) -> bool {
        let mut alone = self.program();
        alone.args(["--include-ignored", "--exact", test]);
        finish(&mut alone, time, |_| false).is_well == Some(true)
    }
}

/// Searches for a violation, and prints the result for `Attempt::hunt`.
pub fn hunt(hunt: Hunt) {
    let until = match hunt {
        Hunt::For(time) => {
            watchdog::set_patience(time / 3);
            Until::Violation(time)
        }
        Hunt::Through(runs) => Until::ViolationOrSeed(runs),
    };
    let scripts = std::env::var_os("RWLEASE_LUA").map(PathBuf::from);
    let plan = |seed| Plan { scripts: scripts.clone(), ..Plan::from_seed(seed) };
    let total = runs(1, until, plan, |_| {});
    let first = total.violations.first();
    if let Some((found, violation)) =
        first.and_then(|found| Some((found, found.violation.as_ref()?)))
    {
        println!("caught by {} (seed {})", violation.rule, found.plan.seed);
    } else if let Some(missing) = total.missing().first() {
        println!("too seldom: {missing}");
    }
}
