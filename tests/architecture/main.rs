//! Imports in a crate run one way. Each folder, and each file at the root, imports only those
//! before it in a list. The router has a list of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemMod, ItemUse, Macro, UseName, UsePath, UseRename, UseTree};

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
        "on_drop",
        "backoff",
        "scripts",
        "clock",
        "telemetry",
        "health",
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
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(text).unwrap());
    let is_relative = |path: &Vec<String>| ["crate", "super"].contains(&path[0].as_str());
    let paths = paths.0.into_iter().filter(is_relative).map(|path| from_the_root(path, module));
    let parts = paths.filter_map(|path| path.strip_prefix(of)?.first().cloned());
    parts.filter(|part| *part != module[of.len()]).collect()
}

/// All paths in a file, except in items for tests alone.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_tree(&mut self, mut path: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(UsePath { ident, tree, .. }) => {
                path.push(ident.to_string());
                return self.add_tree(path, tree);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_tree(path.clone(), tree));
            }
            UseTree::Name(UseName { ident }) | UseTree::Rename(UseRename { ident, .. }) => {
                path.push(ident.to_string());
            }
            UseTree::Glob(_) => {}
        }
        self.0.push(path);
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.push(path.segments.iter().map(|word| word.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Of the tokens, which may have any syntax.
    fn visit_macro(&mut self, called: &'a Macro) {
        let tokens = called.tokens.to_string().replace(" :: ", "::");
        let outside_of_strings: String = tokens.split('"').step_by(2).collect();
        let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let paths = outside_of_strings.split(|letter| !is_of_path(letter));
        self.0.extend(paths.map(|path| path.split("::").map(str::to_owned).collect()));
        visit::visit_macro(self, called);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
        let condition = condition.unwrap_or_default();
        attribute.path().is_ident("cfg")
            && (condition == "test" || condition.starts_with("all (test"))
    })
}

/// A path that begins at the crate or above the module, from the root of the crate.
fn from_the_root(path: Vec<String>, module: &[String]) -> Vec<String> {
    let mut from = module.to_vec();
    for word in path {
        match word.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            _ => from.push(word),
        }
    }
    from
}
