//! Features only add, and the pages list those of `Cargo.toml`, each once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::files;

#[test]
fn front_pages_list_the_features_of_the_manifest() {
    let read = |path: &str| fs::read_to_string(testkit::project_root().join(path)).unwrap();
    let mut features = features(&read("Cargo.toml"));
    features.sort();
    assert!(features.len() > 5, "{features:?}");
    for page in ["src/lib.rs", "README.md"] {
        let mut listed = listed(&read(page));
        listed.sort();
        assert_eq!(listed, features, "{page}");
    }
}

#[test]
fn features_of_a_page_are_the_names_in_the_first_column() {
    let page = "//! | `no` | row |\n//! | feature | adds |\n//! | --- | --- |\n\
        //! | `a` | adds `b` |\n//! | `c`, `d-e` | more |\n//!\n//! | `f` | of another table |";
    assert_eq!(listed(page), ["a", "c", "d-e"]);
}

/// The feature that each way to connect needs. Without the feature the method does not exist, and
/// with further features it does the same.
const CONNECTORS: [(&str, &str); 6] = [
    ("connect", "native"),
    ("connect_embedded", "embedded"),
    ("connect_fred", "fred"),
    ("connect_redis", "redis"),
    ("connect_shared", "cluster-async"),
    ("connect_simulated", "embedded"),
];

#[test]
fn connect_methods_need_one_feature_each() {
    let folder = testkit::project_root().join("src/lock/builder");
    let modules = parsed(&folder.join("mod.rs"));
    let mut found = BTreeMap::new();
    for module in modules.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module),
        _ => None,
    }) {
        let file = parsed(&folder.join(format!("{}.rs", module.ident)));
        for item in &file.items {
            let syn::Item::Impl(block) = item else { continue };
            for part in &block.items {
                let syn::ImplItem::Fn(method) = part else { continue };
                let name = method.sig.ident.to_string();
                if matches!(method.vis, syn::Visibility::Public(_)) && name.starts_with("connect") {
                    let own = condition(&method.attrs);
                    found.insert(name, own.or_else(|| condition(&module.attrs)));
                }
            }
        }
    }
    // Setters, such as `connect_timeout`, have no condition.
    found.retain(|_, condition| condition.is_some());
    let expected = CONNECTORS
        .map(|(name, feature)| (name.to_owned(), Some(format!("feature = \"{feature}\""))));
    assert_eq!(found, expected.into());
}

/// Code that depends on the absence of a feature, or that asks for one at run time, can change what
/// a call does. A comment above says why it does not.
#[test]
fn client_source_comments_each_negated_feature() {
    let mut silent = Vec::new();
    for file in files(&testkit::project_root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        silent.extend(unexplained(&text).map(|line| format!("{}:{line}", file.display())));
    }
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn client_source_without_that_comment_is_found_in_every_form() {
    for line in [
        "#[cfg(not(feature = \"a\"))]",
        "#[cfg(not(any(feature = \"a\", feature = \"b\")))]",
        "#[cfg(all(unix, not(feature = \"a\")))]",
        "if cfg!(feature = \"a\") {",
    ] {
        assert_eq!(
            unexplained(&format!("/// Text.\n{line}\nfn f() {{}}")).collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(unexplained(&format!("// Why.\n{line}")).next(), None, "{line}");
        assert_eq!(unexplained(&format!("// Why.\n/// Text.\n{line}")).next(), None, "{line}");
    }
    for line in
        ["#[cfg(feature = \"a\")]", "/// # #[cfg(not(feature = \"a\"))]", "#[cfg(not(test))]"]
    {
        assert_eq!(unexplained(line).next(), None, "{line}");
    }
}

/// The numbers of the lines that depend on the absence of a feature and have no comment above.
fn unexplained(text: &str) -> impl Iterator<Item = usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let depends = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        line.contains("cfg!(")
            || (line.starts_with("#[cfg(")
                && ["not(feature", "not(any(feature", "not(all(feature"]
                    .iter()
                    .any(|absence| line.contains(absence)))
    };
    let is_explained = |at: usize| {
        let mut above = lines[..at].iter().rev();
        let above = above.find(|line| !line.starts_with("///") && !line.starts_with("#["));
        above.is_some_and(|line| line.starts_with("//") && !line.starts_with("//!"))
    };
    let found: Vec<usize> =
        (0..lines.len()).filter(|&at| depends(lines[at]) && !is_explained(at)).collect();
    found.into_iter().map(|at| at + 1)
}

fn parsed(file: &Path) -> syn::File {
    syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap()
}

/// What is in the attribute `cfg`.
fn condition(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => Some(list.tokens.to_string()),
        _ => None,
    })
}

/// The features of a manifest, without `default` and what is for the project's own tests.
fn features(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[features]\n").nth(1).unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = "));
    names
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "default" && !name.starts_with('_'))
        .collect()
}

/// The code spans in the first column of the table of features.
fn listed(page: &str) -> Vec<String> {
    let rows = page.lines().map(|line| line.trim_start_matches("//!").trim());
    let table = rows.skip_while(|row| *row != "| feature | adds |").skip(2);
    let cells =
        table.take_while(|row| row.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(String::from)).collect()
}
