//! The file of the command: where it is, whether it can be stopped, and who interprets it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::geteuid;

use crate::exit::{CANNOT_RUN, CliError};

/// Runs scripts without a `#!` line, as shells do.
const SHELL: &str = "/bin/sh";

const EXECUTABLE: u32 = 0o111;
const SET_USER_ID: u32 = 0o4000;

/// Rejects a program that runs with the rights of another user, because `rwlease` may be unable to
/// stop it.
pub fn check(word: &OsString) -> Result<(), CliError> {
    let owner = find(word).and_then(|file| owner_if_set_uid(&file));
    match owner {
        Some(owner) if !geteuid().is_root() && owner != geteuid().as_raw() => {
            let name = word.to_string_lossy();
            let message = format!(
                "{name}: it runs with the rights of another user (id {owner}), so it could go on after \
                 a lost lease; run `rwlease` itself as that user"
            );
            Err(CliError::new(CANNOT_RUN, message))
        }
        _ => Ok(()),
    }
}

fn owner_if_set_uid(file: &Path) -> Option<u32> {
    let file = file.metadata().ok()?;
    (file.mode() & SET_USER_ID != 0).then(|| file.uid())
}

/// Returns the shell that runs the command, if the command failed to start because it is a script
/// without a `#!` line.
pub fn by_shell(words: &[OsString], error: &io::Error) -> Option<Command> {
    let is_script = error.raw_os_error() == Some(Errno::ENOEXEC as i32);
    let file = find(&words[0]).filter(|_| is_script)?;
    let mut command = Command::new(SHELL);
    command.arg(file).args(&words[1..]);
    Some(command)
}

/// The file that a command of this name is.
fn find(word: &OsString) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(word.into());
    }
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(word));
    let mut executable = files.filter(|file| {
        file.metadata().is_ok_and(|file| file.is_file() && file.mode() & EXECUTABLE != 0)
    });
    executable.next()
}
