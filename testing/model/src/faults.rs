//! Deliberate faults in the scripts.

use std::path::{Path, PathBuf};

/// A text of a script that another one replaces.
#[derive(Clone, Copy, Debug)]
pub struct ScriptMutant {
    /// The file, below `lua/`.
    pub file: &'static str,
    pub old: &'static str,
    pub new: &'static str,
}

/// The folder of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl ScriptMutant {
    /// The text of a file of the scripts with the fault in it.
    pub fn plant(&self, file: &str, text: String) -> String {
        if self.file != file {
            return text;
        }
        assert_eq!(text.matches(self.old).count(), 1, "{self:?}");
        text.replace(self.old, self.new)
    }
}
