//! Runs the binary against some servers.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use testkit::{Error, Result, StandaloneServer};

/// Ends a test that would never end.
pub const LONG: Duration = Duration::from_secs(60);

pub const RWLEASE: &str = env!("CARGO_BIN_EXE_rwlease");

/// The binary, and the servers it is told of.
#[derive(Clone)]
pub struct Tool {
    urls: String,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A run that goes on.
pub struct Running {
    process: Child,
    out: Lines<BufReader<ChildStdout>>,
}

/// A server of the test's own, and the binary that is told of it.
pub async fn alone() -> Result<(StandaloneServer, Tool)> {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    Ok((server, tool))
}

impl Tool {
    pub fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Tool {
        let urls: Vec<String> = urls.into_iter().map(|url| url.as_ref().to_owned()).collect();
        Tool { urls: urls.join(",") }
    }

    /// The process to start, with the servers in its environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.hearing(RWLEASE);
        command.args(args);
        command
    }

    /// A shell that runs these words, likewise.
    pub fn shell(&self, words: &str) -> Command {
        let mut command = self.hearing("sh");
        command.args(["-c", words]);
        command
    }

    fn hearing(&self, program: &str) -> Command {
        let mut command = hearing(program);
        command.env("RWLEASE_URL", &self.urls).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Result<Ran> {
        ran(self.command(args)).await
    }

    /// `rwlease doctor`, which must end with this status.
    pub async fn doctor(&self, status: i32) -> Result<Ran> {
        let ran = self.run(&["doctor"]).await?;
        assert_eq!(ran.status, Some(status), "{ran:?}");
        Ok(ran)
    }

    /// Starts it, and reads its output as it comes.
    pub fn start(&self, args: &[&str]) -> Result<Running> {
        start(self.command(args))
    }

    /// `rwlease status --json`.
    pub async fn status(&self, name: &str) -> Result<Value> {
        let ran = self.run(&["status", "--json", name]).await?;
        serde_json::from_str(&ran.out).map_err(|error| Error::new(format!("{error}: {ran:?}")))
    }

    /// Waits until the lock is as it should be.
    pub async fn until(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let seen = async {
            loop {
                let status = self.status(name).await?;
                if is_so(&status) {
                    return Ok(status);
                }
            }
        };
        timeout(LONG, seen).await.map_err(|_| Error::new(format!("`{name}` does not get there")))?
    }
}

pub async fn ran(mut command: Command) -> Result<Ran> {
    let output = timeout(LONG, command.output()).await??;
    Ok(Ran {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A program that ignores and blocks no signal, although the tests may run where some are: under
/// `nohup`, in the background of a script, as the child of a program that blocks them.
pub fn hearing(program: &str) -> Command {
    SigSet::empty().thread_set_mask().expect("this thread can unblock signals");
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub fn start(mut command: Command) -> Result<Running> {
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let out = process.stdout.take().ok_or_else(|| Error::new("no output"))?;
    let out = BufReader::new(out).lines();
    Ok(Running { process, out })
}

impl Running {
    /// The next line of its output.
    pub async fn line(&mut self) -> Result<String> {
        let line = timeout(LONG, self.out.next_line()).await??;
        line.ok_or_else(|| Error::new("its output has ended"))
    }

    pub fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(pid(self.id()?)?, signal)?)
    }

    pub fn id(&self) -> Result<u32> {
        self.process.id().ok_or_else(|| Error::new("it has ended"))
    }

    /// Its standard error, which [`Running::ended`] then lacks.
    pub fn err(&mut self) -> Result<ChildStderr> {
        self.process.stderr.take().ok_or_else(|| Error::new("no standard error"))
    }

    pub async fn ended(mut self) -> Result<Ran> {
        let status: ExitStatus = timeout(LONG, self.process.wait()).await??;
        let mut err = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            timeout(LONG, stderr.read_to_string(&mut err)).await??;
        }
        let mut out = String::new();
        while let Some(line) = timeout(LONG, self.out.next_line()).await?? {
            out += &line;
            out += "\n";
        }
        let status = status.code();
        Ok(Ran { status, out, err })
    }
}

/// Whether there is a process of this number that could do anything.
pub fn is_alive(id: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(id.trim()).join("stat")) else {
        return false;
    };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

pub fn pid(id: u32) -> Result<Pid> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| Error::new("no such process"))
}
