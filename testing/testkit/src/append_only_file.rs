//! The append-only file of a server, as a crash leaves it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Error, Result, Server};

/// The file to which a server appends its writes. After a rewrite, that is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendOnlyFile(PathBuf);

impl AppendOnlyFile {
    /// The present file of a server.
    pub fn of(server: &Server) -> Result<AppendOnlyFile> {
        let folder = server.folder().join("appendonlydir");
        // Redis 6.2 has one file.
        let file = match folder.is_dir() {
            true => folder.join(last_part(&folder)?),
            false => server.folder().join("appendonly.aof"),
        };
        Ok(AppendOnlyFile(file))
    }

    pub fn size(&self) -> Result<u64> {
        Ok(fs::metadata(&self.0)?.len())
    }

    /// Cuts its end off.
    pub fn truncate(&self, size: u64) -> Result {
        Ok(self.open()?.set_len(size)?)
    }

    pub fn append(&self, bytes: &[u8]) -> Result {
        Ok(self.open()?.write_all(bytes)?)
    }

    fn open(&self) -> Result<File> {
        Ok(OpenOptions::new().append(true).open(&self.0)?)
    }
}

/// The last file of increments, by the manifest: `file NAME seq NUMBER type i`.
fn last_part(folder: &Path) -> Result<String> {
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest"))?;
    let mut names = manifest.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], ["file", _, "seq", _, "type", "i"]).then(|| words[1].to_owned())
    });
    names
        .next_back()
        .ok_or_else(|| Error::new(format!("no increments in the manifest: {manifest}")))
}
