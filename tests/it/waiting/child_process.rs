//! A separate process, with clients that can be stopped and killed: this test binary, started with
//! a word in its environment.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdout, Command};

use super::soon;
use testkit::{Cluster, Error, Result};

const ROLE: &str = "RWLEASE_TEST_ROLE";
const URLS: &str = "RWLEASE_TEST_URLS";

/// The start of a line in which a child reports something, among other output.
const TELLS: &str = "child:";

pub struct Child {
    process: Process,
    told: Lines<BufReader<ChildStdout>>,
}

/// True in the child that was started for this role.
pub fn is(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|name| name == role)
}

/// The cluster's nodes, in the child.
pub fn urls() -> Result<Vec<String>> {
    Ok(std::env::var(URLS)?.split(' ').map(String::from).collect())
}

/// Reports something to the parent.
pub fn tell(words: &str) {
    println!("\n{TELLS} {words}");
}

impl Child {
    /// Runs this test in a child, where [`is`] returns true for it. `test` is its full path.
    pub fn start(test: &str, cluster: &Cluster) -> Result<Child> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, test)
            .env(URLS, cluster.urls().join(" "))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Error::new("no output"))?;
        Ok(Child { process, told: BufReader::new(stdout).lines() })
    }

    /// The child's next report.
    pub async fn told(&mut self) -> Result<String> {
        loop {
            let line = soon(self.told.next_line()).await??;
            let Some(line) = line else {
                let mut said = String::new();
                if let Some(stderr) = &mut self.process.stderr {
                    stderr.read_to_string(&mut said).await?;
                }
                return Err(Error::new(format!("the child has ended: {said}")));
            };
            if let Some(words) = line.strip_prefix(TELLS) {
                return Ok(words.trim().into());
            }
        }
    }

    /// `kill -9`, and it is reaped.
    pub async fn kill(&mut self) -> Result {
        Ok(self.process.kill().await?)
    }

    /// SIGSTOP: it keeps its connections, and does nothing.
    pub fn freeze(&self) -> Result {
        self.signal(Signal::STOP)
    }

    pub fn thaw(&self) -> Result {
        self.signal(Signal::CONT)
    }

    /// Waits until the child ends. Returns whether it succeeded, and its standard error.
    pub async fn end(self) -> Result<(bool, String)> {
        let Child { process, told } = self;
        let out = tokio::spawn(async move {
            let mut told = told;
            while let Ok(Some(_)) = told.next_line().await {}
        });
        let output = soon(process.wait_with_output()).await??;
        out.await?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    fn signal(&self, signal: Signal) -> Result {
        let id = self.process.id().and_then(|id| Pid::from_raw(id as i32));
        Ok(kill_process(id.ok_or_else(|| Error::new("the child has ended"))?, signal)?)
    }
}
