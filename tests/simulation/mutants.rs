//! Copies of the scripts with faults that the simulation must find. `scripts/script-faults` plants
//! many more.

use testkit::TempFolder;

/// A file, the old text, and the new text.
pub type Change = (&'static str, &'static str, &'static str);

/// A copy of the scripts that accepts requests however late they arrive.
pub fn without_not_after() -> TempFolder {
    scripts_with(&[
        ("lib/fast/args.lua", "not_after >= now_ms_text", "not_after >= '0'"),
        ("lib/acquire_slow.lua", "now_ms > request.not_after", "0 > request.not_after"),
        ("upgrade.lua", "now_ms > request.not_after", "0 > request.not_after"),
    ])
}

/// A copy of the scripts with these faults.
pub fn scripts_with(faults: &[Change]) -> TempFolder {
    let folder = TempFolder::of_scripts("mutant").unwrap();
    for (file, old, new) in faults {
        folder.replace(file, old, new).unwrap();
    }
    folder
}
