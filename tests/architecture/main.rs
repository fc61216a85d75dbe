//! Imports in a crate run one way. Each folder, and each file at the root, imports only those
//! before it in a list. The router has a list of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

mod debug_names;
mod features;
mod items;
mod page;
mod results;
mod rights;

/// A crate's folder, and its layers from the bottom to the top. An order of the imports excludes
/// cycles.
struct Crate {
    source: &'static str,
    layers: &'static [&'static str],
}

const CORE: Crate = Crate {
    source: "core/src",
    layers: &["slot", "decimal", "excerpt", "time", "resp", "protocol", "acquisition"],
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
    for Crate { source, layers } in [CORE, LIBRARY] {
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
    let rank = |part: &str| order.iter().position(|known| *known == part);
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
    let in_order = order.iter().filter(|part| part.chars().all(|letter| !letter.is_uppercase()));
    assert_eq!(seen, in_order.map(ToString::to_string).collect(), "a part without a file");
}

#[test]
fn imports_of_lock_are_found_in_every_syntax() {
    let found = |text: &str| imports(text, &["router".into(), "call".into()]);
    let lock = BTreeSet::from(["lock".to_owned()]);
    for text in [
        "use crate::lock::Lease;",
        "use crate::{lock};",
        "use crate::{lock::{Lease, guard}};",
        "use super::super::lock;",
        "use crate::lock as other;",
        "fn a() { crate::lock::take() }",
        "fn a(of: &crate::lock::Lease) {}",
        "fn a() { use crate::lock; }",
        "mod inner { use super::super::super::lock::Lease; }",
        "fn a() { println!(\"{}\", crate::lock::take()) }",
        "#[cfg(not(test))] use crate::lock;",
    ] {
        assert_eq!(found(text), lock, "{text}");
    }
    for text in [
        "use super::batch::Batch;",
        "use std::fs;",
        "#[cfg(test)] mod tests { use crate::lock::Lease; }",
        "#[cfg(all(test, feature = \"redis\"))] use crate::lock::Lease;",
        "/// [`Lease`](crate::lock::Lease)\nstruct A;",
    ] {
        assert_eq!(found(text), BTreeSet::new(), "{text}");
    }
    let of_the_root = imports("use crate::{Error, Lease};", &["router".into()]);
    assert_eq!(
        of_the_root,
        BTreeSet::from(["Error".to_owned(), "Lease".to_owned()]),
        "by way of lib.rs"
    );
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

/// The folders and files of the crate from which a module imports.
fn imports(text: &str, module: &[String]) -> BTreeSet<String> {
    imports_from(&[], text, module)
}

/// The other parts of the module `of` from which one of its modules imports.
fn imports_from(of: &[String], text: &str, module: &[String]) -> BTreeSet<String> {
    let mut found = Imports { module: module.to_vec(), paths: BTreeSet::new() };
    found.visit_file(&syn::parse_file(text).unwrap());
    let parts = found.paths.iter().filter_map(|path| path.strip_prefix(of)?.first());
    parts.filter(|part| **part != module[of.len()]).cloned().collect()
}

struct Imports {
    /// The current module of the visit.
    module: Vec<String>,
    /// Paths from the root of the crate.
    paths: BTreeSet<Vec<String>>,
}

impl Imports {
    /// Records a path that begins at the crate, here or above.
    fn note(&mut self, path: &[String]) {
        let mut from = self.module.clone();
        let mut rest = path.iter();
        match rest.next().map(String::as_str) {
            Some("crate") => from.clear(),
            Some("self") => {}
            Some("super") => drop(from.pop()),
            _ => return,
        }
        for word in rest {
            if word == "super" {
                from.pop();
            } else {
                from.push(word.clone());
            }
        }
        self.paths.insert(from);
    }

    fn note_tree(&mut self, tree: &syn::UseTree, mut before: Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(tree, before.clone());
                }
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.note(&before);
            }
            syn::UseTree::Glob(_) => self.note(&before),
        }
    }
}

impl<'a> Visit<'a> for Imports {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.note_tree(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&words);
        visit::visit_path(self, path);
    }

    /// A macro's arguments are not parsed. Their tokens are searched as text for `crate :: lock`.
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let text = call.tokens.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for window in words.windows(3) {
            if let ["crate", "::", word] = window {
                self.note(&["crate".to_owned(), word.trim_end_matches([';', ',', ')']).to_owned()]);
            }
        }
        self.visit_path(&call.path);
    }
}

/// Returns true if the item is for tests alone.
fn is_of_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let condition = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => return false,
        };
        condition == "test"
            || (condition.starts_with("all")
                && condition.contains("(test")
                && !condition.contains("not"))
    })
}
