//! Copies of the source and of the scripts in `target/mutants`, their builds, and the commands that
//! run there.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn copy_of_the_source() -> PathBuf {
    let folder = scratch("source");
    for part in [
        "Cargo.toml",
        "Cargo.lock",
        "clippy.toml",
        "src",
        "lua",
        "tests",
        "examples",
        "docs",
        // Not built, but cargo needs all members of the workspace.
        "cli",
        "benches",
    ] {
        if root().join(part).exists() {
            copy(&root().join(part), &folder.join(part));
        }
    }
    folder
}

/// The result and the output of a command.
#[derive(Debug)]
pub struct Finished {
    /// `None` if it was killed.
    pub is_well: Option<bool>,
    pub text: String,
}

/// Runs a command until it ends, its time is over, or its output is enough. Then kills the servers
/// that it has started.
pub fn finish(command: &mut Command, time: Duration, is_enough: impl Fn(&str) -> bool) -> Finished {
    let file = root().join("target/mutants/said");
    let said = fs::File::create(&file).unwrap();
    let mut child = command.stdout(said).stderr(Stdio::null()).process_group(0).spawn().unwrap();
    let wait_limit = Instant::now() + time;
    let text = || String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    loop {
        let ended = child.try_wait().unwrap();
        if ended.is_some() || Instant::now() > wait_limit || is_enough(&text()) {
            let group = format!("-{}", child.id());
            Command::new("kill")
                .args(["-KILL", "--", &group])
                .stderr(Stdio::null())
                .status()
                .unwrap();
            child.wait().unwrap();
            return Finished { is_well: ended.map(|status| status.success()), text: text() };
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Builds a target of the source in this folder. Returns the path of its tests.
pub fn build(folder: &Path, target: &[&str]) -> Option<PathBuf> {
    // Cargo takes a copy of the source for the source itself. It would run a program that was built
    // in the other folder.
    let kept = if folder == root() { "suites" } else { "build" };
    let output = Command::new(env!("CARGO"))
        .args(["test", "-p", "rwlease", "--features", "blocking,cluster-async,embedded,metrics"])
        .args(target)
        .args(["--no-run", "--message-format=json"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", root().join("target/mutants").join(kept))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, found) = text.rsplit_once("\"executable\":\"")?;
    found.split('"').next().map(PathBuf::from)
}

pub fn scratch(name: &str) -> PathBuf {
    let folder = root().join("target/mutants").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == "target" {
            continue; // of a package of its own, below `benches`
        }
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
