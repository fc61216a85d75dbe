//! Files of the project, by their paths from its root.

use std::path::{Path, PathBuf};

/// The folder of the project.
pub fn project_root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Finds this path in the project.
pub fn find_in_project(path: impl AsRef<Path>) -> Option<PathBuf> {
    Some(project_root().join(path)).filter(|found| found.exists())
}
