//! `scripts/publish` and `scripts/pictures` make the pages and the charts from the files in
//! `docs/results`. They must match.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use testkit::TempFolder;

const VERSION: &str = "src 1234567, core 2345678, lua 89abcde, cli f012345, Cargo.lock 6789abc";
const OTHER: &str = "src 1234567, core 2345678, lua 0000000, cli f012345, Cargo.lock 6789abc";
const PAGE: &str = "docs/performance.md";

#[test]
fn the_pages_show_the_results() {
    for script in ["publish", "pictures"] {
        let said = run(script, project(), &["--check"]);
        assert!(said.status.success(), "{}", errors(&said));
    }
}

#[test]
fn a_page_takes_over_what_a_bench_printed() {
    let tree = tree("shown", &[("one", VERSION), ("compose/two", VERSION)]);
    let page = "<!-- bench: one -->\n<!-- end -->\n\n<!-- bench: one, more -->\nold\n<!-- end -->\n\n\
                <!-- compose: two, more -->\n<!-- end -->\n\n<!-- bench: two -->\nold\n<!-- end -->\n\n\
                <!-- chaos: scorecard -->\nas it was\n<!-- end -->\n";
    fs::write(tree.join(PAGE), page).unwrap();
    assert!(!run("publish", &tree, &[PAGE, "--check"]).status.success(), "stale");
    assert!(run("publish", &tree, &[PAGE]).status.success());
    let shown = fs::read_to_string(tree.join(PAGE)).unwrap();
    let wanted = "<!-- bench: one -->\n\none prints\n\n<!-- end -->\n\n<!-- bench: one, more -->\n\nand more of one\n\n\
                  <!-- end -->\n\n<!-- compose: two, more -->\n\nand more of compose/two\n\n<!-- end -->\n\n\
                  <!-- bench: two -->\n\n*Not measured on this version.*\n\n<!-- end -->\n\n\
                  <!-- chaos: scorecard -->\nas it was\n<!-- end -->\n";
    assert_eq!(shown, wanted);
    assert!(run("publish", &tree, &[PAGE, "--check"]).status.success());
}

#[test]
fn a_mixture_and_changed_sources_are_refused() {
    let changed = format!("{VERSION}+");
    for (results, why) in [
        ([("one", VERSION), ("two", OTHER)], "different versions"),
        ([("one", &changed), ("two", &changed)], "changed or unknown sources"),
        ([("one", "unknown"), ("two", "unknown")], "changed or unknown sources"),
    ] {
        let tree = tree("refused", &results);
        fs::write(tree.join(PAGE), "<!-- bench: one -->\n<!-- end -->\n").unwrap();
        let said = run("publish", &tree, &[PAGE]);
        assert!(!said.status.success() && errors(&said).contains(why), "{}", errors(&said));
        assert!(!fs::read_to_string(tree.join(PAGE)).unwrap().contains("one prints"));
    }
}

#[test]
fn a_scorecard_of_another_version_than_the_benches_is_refused() {
    for (version, is_good) in [(VERSION, true), (OTHER, false)] {
        let tree = tree("scorecard", &[("one", VERSION)]);
        fs::write(tree.join(PAGE), "<!-- bench: one -->\n<!-- end -->\n").unwrap();
        fs::write(tree.join("docs/results/chaos.jsonl"), a_run(version)).unwrap();
        for script in ["publish", "pictures"] {
            let more: &[&str] = if script == "publish" { &[PAGE] } else { &["--check"] };
            let said = run(script, &tree, more);
            let is_refused = errors(&said).contains("different versions");
            assert_eq!(is_refused, !is_good, "{script}, {version}: {}", errors(&said));
        }
    }
}

/// A run of the published scorecard, as if it were of this version.
fn a_run(version: &str) -> String {
    let runs = fs::read_to_string(project().join("docs/results/chaos.jsonl")).unwrap();
    let mut run: serde_json::Value = serde_json::from_str(runs.lines().next().unwrap()).unwrap();
    run["version"] = version.into();
    format!("{run}\n")
}

fn project() -> &'static Path {
    testkit::project_root()
}

fn run(script: &str, root: &Path, more: &[&str]) -> Output {
    let script = project().join("scripts").join(script);
    Command::new(script).args(more).arg("--root").arg(root).output().unwrap()
}

fn errors(said: &Output) -> String {
    String::from_utf8_lossy(&said.stderr).into()
}

/// A folder with results of benches.
fn tree(name: &str, results: &[(&str, &str)]) -> TempFolder {
    let tree = TempFolder::new(&format!("results-{name}")).unwrap();
    fs::create_dir_all(tree.join("docs/results/bench/compose")).unwrap();
    for (name, version) in results {
        let head = "- command: make bench\n- server: any\n- date: any\n- machine: any";
        let said = format!("{name} prints\n\n## more\n\nand more of {name}\n");
        let text = format!("- version: {version}\n{head}\n- load before: 0\n\n{said}");
        fs::write(tree.join(format!("docs/results/bench/{name}.md")), text).unwrap();
    }
    tree
}
