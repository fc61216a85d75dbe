//! The pages list the features of `Cargo.toml`, each once.

use std::fs;

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
