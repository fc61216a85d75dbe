//! Replays what the fuzzer kept in `fuzz/corpus`, and what once broke a check.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use rwlease_parsers::TARGETS;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn paths_in(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn decode_of_each_corpus_entry_keeps_its_promises() {
    for (name, check) in TARGETS {
        let entries = paths_in(&fuzz_folder().join("corpus").join(name));
        assert!(!entries.is_empty(), "the corpus of {name} is empty");
        for path in entries {
            let bytes = fs::read(&path).unwrap();
            assert!(catch_unwind(|| check(&bytes)).is_ok(), "{}", path.display());
        }
    }
}

#[test]
fn each_parser_check_has_a_fuzz_target_and_a_corpus() {
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in ["corpus", "fuzz_targets"] {
        let found = paths_in(&fuzz_folder().join(folder));
        let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(found.iter().map(stem).collect::<BTreeSet<_>>(), names, "{folder}");
    }
}
