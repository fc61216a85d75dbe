//! Runs the binary against some servers.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use testkit::{Error, Result, StandaloneServer};

/// Ends a test that would never end.
pub const LONG: Duration = Duration::from_secs(60);

pub const RWLEASE: &str = env!("CARGO_BIN_EXE_rwlease");

/// The binary, and the servers it is told of.
#[derive(Clone)]
pub struct Tool {
    environment: Vec<(String, String)>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// It must have ended with this status.
    #[track_caller]
    pub fn expect_status(self, status: i32) -> Ran {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    /// With this output.
    #[track_caller]
    pub fn expect_output(self, status: i32, out: &str) -> Ran {
        assert_eq!((self.status, &*self.out), (Some(status), out), "{self:?}");
        self
    }

    /// With this many lines on standard error.
    #[track_caller]
    pub fn expect_err_lines(self, status: i32, count: usize) -> Ran {
        assert_eq!((self.status, self.err.lines().count()), (Some(status), count), "{self:?}");
        self
    }

    /// Its output must have all of that.
    #[track_caller]
    pub fn expect_out(&self, parts: &[&str]) -> &Ran {
        self.expect(&self.out, parts)
    }

    /// Its standard error must have all of that.
    #[track_caller]
    pub fn expect_err(&self, parts: &[&str]) -> &Ran {
        self.expect(&self.err, parts)
    }

    #[track_caller]
    fn expect(&self, text: &str, parts: &[&str]) -> &Ran {
        for part in parts {
            assert!(text.contains(part), "no {part:?}: {self:?}");
        }
        self
    }

    /// A line of its output that begins so must have all of that.
    #[track_caller]
    pub fn expect_line(&self, start: &str, parts: &[&str]) -> &Ran {
        assert!(self.has_line(start, parts), "no {start} {parts:?}: {}", self.out);
        self
    }

    pub fn has_line(&self, start: &str, parts: &[&str]) -> bool {
        let mut lines = self.out.lines().filter(|line| line.starts_with(start));
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

/// A run that goes on.
pub struct Running {
    process: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
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
        Tool { environment: vec![("RWLEASE_URL".to_owned(), urls.join(","))] }
    }

    /// With one more variable in its environment.
    pub fn env(&self, name: &str, value: impl Into<String>) -> Tool {
        let mut tool = self.clone();
        tool.environment.push((name.to_owned(), value.into()));
        tool
    }

    /// The process to start, with its environment.
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
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Result<Ran> {
        ran(self.command(args)).await
    }

    /// A run that must end with this status.
    pub async fn exits(&self, args: &[&str], status: i32) -> Result<Ran> {
        let ran = self.run(args).await?;
        assert_eq!(ran.status, Some(status), "{args:?}: {ran:?}");
        Ok(ran)
    }

    pub async fn doctor(&self, status: i32) -> Result<Ran> {
        self.exits(&["doctor"], status).await
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
    let err = process.stderr.take().ok_or_else(|| Error::new("no standard error"))?;
    let (out, err) = (BufReader::new(out).lines(), BufReader::new(err).lines());
    Ok(Running { process, out, err })
}

impl Running {
    /// The next line of its output.
    pub async fn line(&mut self) -> Result<String> {
        next(&mut self.out).await
    }

    /// The next line of its standard error, which [`Running::ended`] then lacks.
    pub async fn err_line(&mut self) -> Result<String> {
        next(&mut self.err).await
    }

    pub fn signal(&self, signal: Signal) -> Result {
        Ok(kill_process(pid(self.id()?)?, signal)?)
    }

    pub fn id(&self) -> Result<u32> {
        self.process.id().ok_or_else(|| Error::new("it has ended"))
    }

    pub async fn ended(mut self) -> Result<Ran> {
        let status = timeout(LONG, self.process.wait()).await??.code();
        let (err, out) = (rest(&mut self.err).await?, rest(&mut self.out).await?);
        Ok(Ran { status, out, err })
    }
}

async fn next(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> Result<String> {
    let line = timeout(LONG, lines.next_line()).await??;
    line.ok_or_else(|| Error::new("its output has ended"))
}

async fn rest(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> Result<String> {
    let mut text = String::new();
    while let Some(line) = timeout(LONG, lines.next_line()).await?? {
        text += &line;
        text += "\n";
    }
    Ok(text)
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
