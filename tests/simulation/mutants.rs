//! Copies of the scripts with faults that the simulation must find. `scripts/script-faults` plants
//! many more.

use std::fs;
use std::path::{Path, PathBuf};

/// A file, the old text, and the new text.
pub type Change = (&'static str, &'static str, &'static str);

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

/// A copy of the scripts with these faults.
pub fn scripts_with(name: &str, faults: &[Change]) -> PathBuf {
    let root = testkit::project_root();
    let folder = root.join("target/mutants").join(name);
    let _ = fs::remove_dir_all(&folder);
    copy(&root.join("lua"), &folder);
    for (file, old, new) in faults {
        let (file, text) = (folder.join(file), fs::read_to_string(folder.join(file)).unwrap());
        assert_eq!(text.matches(old).count(), 1, "{}", file.display());
        fs::write(file, text.replace(old, new)).unwrap();
    }
    folder
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}
