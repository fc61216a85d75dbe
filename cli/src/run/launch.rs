//! Starts the command so that, on Linux, it dies with this process.
//!
//! Linux signals a process whose parent has died, if the process itself has requested that. So
//! `rwlease run` starts this program once more. That process makes the request, and then becomes
//! the command.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use nix::errno::Errno;
use tokio::process::{self, Child};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{program, spawn_error};

/// The first argument of the process that becomes the command. The process id of its parent, the
/// parent's descriptor for [`FailureReport`] and the command follow.
const LAUNCH: &str = "__launch";

/// A pipe by which the launched process tells its parent why it could not become the command. Its
/// exit status alone can be a status of the command.
pub struct FailureReport {
    reader: PipeReader,
    writer: PipeWriter,
}

impl FailureReport {
    pub fn new() -> io::Result<FailureReport> {
        let (reader, writer) = io::pipe()?;
        Ok(FailureReport { reader, writer })
    }

    /// Returns why the launched process, which has ended, had not become the command. `None` if it
    /// had.
    pub fn error(self) -> Option<io::Error> {
        let FailureReport { mut reader, writer } = self;
        drop(writer); // the read would wait for it
        let mut code = [0; size_of::<i32>()];
        reader.read_exact(&mut code).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
    }

    /// Reports in the launched process, which does not inherit the pipe.
    fn send(parent: &OsStr, descriptor: &OsStr, error: &io::Error) -> io::Result<()> {
        let code = error.raw_os_error().unwrap_or(Errno::EIO as i32);
        let pipe = Path::new("/proc").join(parent).join("fd").join(descriptor);
        OpenOptions::new().write(true).open(pipe)?.write_all(&code.to_ne_bytes())
    }
}

/// The command to start. With a report it gets SIGKILL when this process dies.
pub fn command(words: &[OsString], report: Option<&FailureReport>) -> Command {
    match (own_program(), report) {
        (Some(program), Some(report)) => {
            let mut command = Command::new(program);
            command.arg0("rwlease").arg(LAUNCH).arg(std::process::id().to_string());
            command.arg(report.writer.as_raw_fd().to_string()).args(words);
            command
        }
        _ => by_words(words),
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
    (cfg!(target_os = "linux") && Path::new(PROGRAM).exists()).then_some(PROGRAM)
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
    let (Some(parent), Some(descriptor)) = (arguments.next(), arguments.next()) else {
        return ExitCode::FAILURE;
    };
    let words: Vec<OsString> = arguments.collect();
    let Some(name) = words.first() else { return ExitCode::FAILURE };
    if !dies_with(&parent) {
        return ExitCode::FAILURE;
    }
    let mut error = by_words(&words).exec();
    if let Some(mut script) = program::by_shell(&words, &error) {
        error = script.exec();
    }
    match FailureReport::send(&parent, &descriptor, &error) {
        Ok(()) => ExitCode::FAILURE,                  // the parent prints it
        Err(_) => spawn_error(name, &error).report(), // the command counts as run
    }
}

/// Requests SIGKILL for the death of the parent. Returns false if the parent has died already.
#[cfg(target_os = "linux")]
fn dies_with(parent: &OsStr) -> bool {
    use nix::sys::{prctl::set_pdeathsig, signal::Signal};

    let parent = parent.to_str().and_then(|id| id.parse().ok());
    set_pdeathsig(Signal::SIGKILL).is_ok() && parent == Some(nix::unistd::getppid().as_raw())
}

#[cfg(not(target_os = "linux"))]
fn dies_with(_: &OsStr) -> bool {
    false
}
