//! A folder of a test, which is deleted with it.

use std::fs::{self, Permissions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder among the temporary ones, which is deleted when this is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> io::Result<TempFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rwlease-{name}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        Ok(TempFolder(folder))
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> io::Result<String> {
        let file = self.join(name);
        fs::write(&file, text)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// Writes a program, and returns its path.
    pub fn write_program(&self, name: &str, text: &str) -> io::Result<String> {
        let file = self.write(name, text)?;
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
        Ok(file)
    }
}

impl Deref for TempFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempFolder {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
