//! A folder of a test, which is deleted with it.

use std::fs::{self, Permissions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::project_root;

/// A new folder among the temporary ones, which is deleted when this is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> io::Result<TempFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("rwlease-{name}-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match fs::create_dir(&folder) {
                // A process with this number was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|()| TempFolder(folder)),
            }
        }
    }

    /// A folder with a copy of the scripts, to change them.
    pub fn of_scripts(name: &str) -> io::Result<TempFolder> {
        let folder = TempFolder::new(name)?;
        copy_all(&project_root().join("lua"), &folder)?;
        Ok(folder)
    }

    /// Replaces a text, which must stand once in the file.
    pub fn replace(&self, name: &str, old: &str, new: &str) -> io::Result<()> {
        let file = self.join(name);
        let text = fs::read_to_string(&file)?;
        assert_eq!(text.matches(old).count(), 1, "{}: {old}", file.display());
        fs::write(&file, text.replace(old, new))
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

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &target)?,
            false => fs::copy(entry.path(), &target).map(drop)?,
        }
    }
    Ok(())
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
