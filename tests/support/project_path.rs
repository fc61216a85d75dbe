//! Files of the project, by their paths from its root: the package that compiles this may be in a
//! subfolder.

use std::path::{Path, PathBuf};

/// Finds this path in the package's folder, or in the nearest folder above that has it.
pub fn find_in_project(path: impl AsRef<Path>) -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join(&path)).find(|found| found.exists())
}
