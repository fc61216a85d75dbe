//! Starts the command so that, on Linux, it dies with this process.
//!
//! Linux signals a process whose parent has died, if the process itself has requested that. So
//! `rwlease run` starts this program once more. That process makes the request, and then becomes
//! the command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;

use tokio::process::{self, Child};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{program, spawn_error};

/// The first argument of the process that becomes the command. The process id of its parent and
/// the command follow.
const LAUNCH: &str = "__launch";

/// The command to start. With `dies_along` it gets SIGKILL when this process dies.
pub fn command(words: &[OsString], dies_along: bool) -> Command {
    match own_program().filter(|_| dies_along) {
        Some(program) => {
            let mut command = Command::new(program);
            command.arg0("rwlease").arg(LAUNCH).arg(std::process::id().to_string()).args(words);
            command
        }
        None => by_words(words),
    }
}

fn by_words(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// This program, even if its file was replaced or deleted since.
fn own_program() -> Option<&'static str> {
    const PROGRAM: &str = "/proc/self/exe";
    (cfg!(target_os = "linux") && std::path::Path::new(PROGRAM).exists()).then_some(PROGRAM)
}

/// Starts the process in a thread that never ends: the system takes the end of the thread that
/// started a process for the death of its parent.
pub fn spawn(mut command: process::Command) -> io::Result<oneshot::Receiver<io::Result<Child>>> {
    let runtime = Handle::current();
    let (tell, told) = oneshot::channel();
    let starting = move || {
        let _runtime = runtime.enter();
        let _ = tell.send(command.spawn());
        loop {
            thread::park();
        }
    };
    thread::Builder::new().name("launch".to_owned()).spawn(starting)?;
    Ok(told)
}

/// What follows [`LAUNCH`], in the process that becomes the command.
pub fn arguments() -> Option<impl Iterator<Item = OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next().as_deref() == Some(OsStr::new(LAUNCH))).then_some(arguments)
}

/// Becomes the command. Returns if that fails.
pub fn become_command(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next();
    let words: Vec<OsString> = arguments.collect();
    let Some(name) = words.first() else { return ExitCode::FAILURE };
    if !dies_with(parent.as_deref()) {
        return ExitCode::FAILURE;
    }
    let mut error = by_words(&words).exec();
    if let Some(mut script) = program::by_shell(&words, &error) {
        error = script.exec();
    }
    spawn_error(&name.to_string_lossy(), &error).report()
}

/// Requests SIGKILL for the death of the parent. Returns false if the parent has died already.
#[cfg(target_os = "linux")]
fn dies_with(parent: Option<&OsStr>) -> bool {
    use nix::sys::{prctl::set_pdeathsig, signal::Signal};

    let parent = parent.and_then(OsStr::to_str).and_then(|id| id.parse().ok());
    set_pdeathsig(Signal::SIGKILL).is_ok() && parent == Some(nix::unistd::getppid().as_raw())
}

#[cfg(not(target_os = "linux"))]
fn dies_with(_: Option<&OsStr>) -> bool {
    false
}
