//! No server outlives the process that started it, however that process ends.
//!
//! A destructor does not run when a test is killed, and a parent-death signal needs unsafe code. So
//! one small shell for each process reads the ids of the running servers from a pipe. When the pipe
//! closes, the process has ended, and the shell kills the servers that are still listed. An id is
//! removed before its process is reaped, so it cannot belong to another process by then.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Reads `+ id` and `- id`. The first argument is the folder to remove at the end, if any. A key
/// press in the terminal reaches it too, and must not end it before its work is done.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
live=' '
while read -r sign id; do
  case $sign in
    +) live="$live$id " ;;
    -) live="${live%% $id *} ${live#* $id }" ;;
  esac
done
for id in $live; do kill -9 "$id"; done
[ -z "$1" ] || rm -rf "$1"
"#;

/// Set to keep the folders of the servers, with their logs, after the tests.
const KEEP_VAR: &str = "RWLEASE_KEEP";

#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Mutex<Child>,
    folder: PathBuf,
}

/// The one watchdog of this process, started when it is first needed.
pub(super) fn watchdog() -> io::Result<&'static Watchdog> {
    static STARTING: Mutex<()> = Mutex::new(());
    static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watchdog) = WATCHDOG.get() {
        return Ok(watchdog);
    }
    let started = Watchdog::start()?;
    Ok(WATCHDOG.get_or_init(|| started))
}

/// Registers a child of this process, which must not outlive it.
pub fn register_child(id: u32) -> io::Result<()> {
    watchdog()?.watch(id)
}

/// Notes that the child has ended. Must be called once.
pub fn unregister_child(id: u32) -> io::Result<()> {
    watchdog()?.forget(id)
}

pub(super) fn keeps_folders() -> bool {
    std::env::var_os(KEEP_VAR).is_some()
}

impl Watchdog {
    fn start() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!(
            "rwlease-{}-{:08x}",
            std::process::id(),
            fastrand::Rng::new().u32(..)
        ));
        std::fs::create_dir(&folder)?;
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(if keeps_folders() { Path::new("") } else { &folder })
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Watchdog { shell: Mutex::new(shell), folder })
    }

    /// Where the folders of this process's servers are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn watch(&self, id: u32) -> io::Result<()> {
        self.send('+', id)
    }

    /// Must be called after the process has ended and before it is reaped.
    pub(super) fn forget(&self, id: u32) -> io::Result<()> {
        self.send('-', id)
    }

    fn send(&self, sign: char, id: u32) -> io::Result<()> {
        let mut shell = self.shell();
        let pipe = shell.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(format!("{sign} {id}\n").as_bytes())
    }

    fn shell(&self) -> MutexGuard<'_, Child> {
        self.shell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
