//! Imports in a crate run one way. Each folder, and each file at the root, imports only those
//! before it in a list. The router has a list of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod features;
mod rights;

/// A crate's folder, and its layers from the bottom to the top. An order of the imports excludes
/// cycles, except among the parts that stand in one entry.
struct Crate {
    source: &'static str,
    layers: &'static [&'static str],
}

const CORE: Crate = Crate {
    source: "core/src",
    layers: &["slot", "decimal", "excerpt", "time", "resp", "protocol", "acquisition"],
};

const EMBEDDED: Crate = Crate {
    source: "embedded/src",
    layers: &[
        "locks",
        "manual_clock",
        "glob",
        "random",
        "reply",
        "number",
        "slots",
        "session",
        "subscribers",
        "keyspace undo_log",
        // The state of the servers, and the commands and scripts that change it.
        "cluster cluster_state command_spec commands faults link lua_call lua_host observer \
         replication routing script_reply server",
        "failover",
        "slot_migration",
        "script_step",
    ],
};

const LIBRARY: Crate = Crate {
    source: "src",
    layers: &[
        "locks",
        "backoff",
        "scripts",
        "clock",
        "telemetry",
        "health",
        "abort_on_drop",
        "error",
        "fencing_token",
        "backend",
        "call_error",
        "embedded",
        "router",
        "client",
        "lock",
        "blocking",
        "testing",
    ],
};

/// The parts of the router, from the bottom to the top. `Router` stands for `router/mod.rs`.
const ROUTER: [&str; 14] = [
    "telemetry",
    "address_translation",
    "bad_entries",
    "server_list",
    "runtime",
    "connections",
    "sentinel",
    "cluster",
    "parsers",
    "subscriptions",
    "Router",
    "calls",
    "cluster_adapter",
    "transport",
];

#[test]
fn layers_from_lock_to_slot_import_downwards_only() {
    for Crate { source, layers } in [CORE, EMBEDDED, LIBRARY] {
        assert_imports_run_down(source, &[], layers);
    }
}

#[test]
fn parts_of_the_router_import_downwards_only() {
    assert_imports_run_down(LIBRARY.source, &["router"], &ROUTER);
}

/// Checks the imports between the folders and files of one module. Its own file, which names them
/// all, is left out.
fn assert_imports_run_down(source: &str, of: &[&str], order: &[&str]) {
    let rank = |part: &str| order.iter().position(|layer| layer.split(' ').any(|it| it == part));
    let source = testkit::project_root().join(source);
    let of: Vec<String> = of.iter().map(ToString::to_string).collect();
    let mut upwards = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for file in files(&source) {
        let module = module_of(file.strip_prefix(&source).unwrap());
        let Some(part) = module.strip_prefix(&*of).and_then(|rest| rest.first()) else {
            continue;
        };
        let own = rank(part).unwrap_or_else(|| panic!("{part} is not in the order"));
        seen.insert(part.clone());
        for import in imports_from(&of, &fs::read_to_string(&file).unwrap(), &module) {
            if rank(&import).is_none_or(|rank| rank > own) {
                upwards.insert(format!("{} imports {import}", file.display()));
            }
        }
    }
    assert_eq!(upwards, BTreeSet::new());
    let in_order = order.iter().flat_map(|layer| layer.split(' '));
    let in_order = in_order.filter(|part| part.chars().all(|letter| !letter.is_uppercase()));
    assert_eq!(seen, in_order.map(ToString::to_string).collect(), "a part without a file");
}

#[test]
fn imports_of_lock_are_found_in_every_syntax() {
    let found = |text: &str| imports_from(&[], text, &["router".into(), "call".into()]);
    let lock = BTreeSet::from(["lock".to_owned()]);
    for text in [
        "use crate::lock::Lease;",
        "use crate::{lock};",
        "use crate::{\n    lock::{\n        Lease, guard,\n    },\n};",
        "use super::super::lock;",
        "pub(crate) use crate::lock as other;",
        "fn a() { crate::lock::take() }",
        "fn a(of: &crate::lock::Lease) {}",
        "    println!(\"{}\", crate::lock::take())",
        "#[cfg(not(test))]\nuse crate::lock;",
        "#[cfg(test)]\nmod tests {\n    use crate::client;\n}\nuse crate::lock;",
    ] {
        assert_eq!(found(text), lock, "{text}");
    }
    for text in [
        "use super::batch::Batch;",
        "use std::fs;",
        "#[cfg(test)]\nmod tests {\n    use crate::lock::Lease;\n}",
        "#[cfg(all(test, feature = \"redis\"))]\nuse crate::lock::Lease;",
        "/// [`Lease`](crate::lock::Lease)\nstruct A;",
        "concat!(\"[`Lease`](crate::lock::Lease)\", a)",
    ] {
        assert_eq!(found(text), BTreeSet::new(), "{text}");
    }
    let of_the_root = imports_from(&[], "use crate::{Error, Lease};", &["router".into()]);
    assert_eq!(of_the_root, BTreeSet::from(["Error".to_owned(), "Lease".to_owned()]));
}

/// All source files in this folder, except those for tests alone.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_of_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_of_tests || path == folder.join("fake.rs") {
            continue;
        } else if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// The module of a file: `backend/redis/dial.rs` is `backend::redis::dial`.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// The other parts of the module `of` from which one of its modules imports.
fn imports_from(of: &[String], text: &str, module: &[String]) -> BTreeSet<String> {
    let text = without_tests_and_comments(text);
    let starts = ["crate::", "super::"].map(|start| text.match_indices(start));
    let starts = starts.into_iter().flatten().map(|(at, _)| at);
    let is_start = |at: &usize| !text[..*at].ends_with(is_of_path);
    let trees = starts.filter(is_start).flat_map(|at| paths("", &text[at..]));
    let paths = trees.map(|path| from_the_root(&path, module));
    let parts = paths.filter_map(|path| path.strip_prefix(of)?.first().cloned());
    parts.filter(|part| *part != module[of.len()]).collect()
}

/// The text without comments, strings and items for tests alone, as `cargo fmt` formats it.
fn without_tests_and_comments(text: &str) -> String {
    let mut kept = String::new();
    // The indentation of an item that is left out.
    let mut skipped = None;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let outside_of_strings: String = code.split('"').step_by(2).collect();
        let code = outside_of_strings.trim();
        let indentation = line.len() - line.trim_start().len();
        if code.starts_with("#[cfg(test)")
            || (code.starts_with("#[cfg(all(test") && !code.contains("not(test"))
        {
            skipped = Some(indentation);
        } else if skipped.is_none() {
            kept.extend([code, " "]);
        } else if skipped == Some(indentation) && code.ends_with([';', ',', '}']) {
            skipped = None;
        }
    }
    kept
}

fn is_of_path(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == ':'
}

/// The paths of the tree of imports with which the text begins.
fn paths(before: &str, text: &str) -> Vec<String> {
    let text = text.trim_start();
    let (own, rest) = text.split_at(text.find(|letter| !is_of_path(letter)).unwrap_or(text.len()));
    let path = format!("{before}{own}");
    let Some(group) = rest.strip_prefix('{').filter(|_| own.ends_with("::")) else {
        return vec![path];
    };
    let mut found = paths(&path, group);
    let mut depth = 1;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => found.extend(paths(&path, &group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// A path that begins at the crate or above the module, from the root of the crate.
fn from_the_root(path: &str, module: &[String]) -> Vec<String> {
    let mut from = module.to_vec();
    for word in path.split("::").filter(|word| !word.is_empty()) {
        match word {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            _ => from.push(word.to_owned()),
        }
    }
    from
}
