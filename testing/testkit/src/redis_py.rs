//! A lock of redis-py in a separate process, as an example of other libraries' mutexes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::project_path::find_in_project;
use super::{Error, Result, Server};

/// Where `make redis-py` puts it, from the root of the project.
const FOLDER: &str = "target/python";
const SCRIPT: &str = "testing/testkit/src/redis_py.py";

/// One `redis.lock.Lock`.
#[derive(Debug)]
pub struct RedisPy {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RedisPy {
    /// Fails if redis-py is missing, and says what to do.
    pub fn lock(server: &Server, name: &str, lease: Duration) -> Result<RedisPy> {
        let script =
            find_in_project(SCRIPT).ok_or_else(|| Error::new(format!("{SCRIPT} is not there")))?;
        let mut process = Command::new("python3")
            .env("PYTHONPATH", find_in_project(FOLDER).unwrap_or_default())
            .arg(script)
            .args([&server.port().to_string(), name, &lease.as_secs_f64().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(format!("python3 does not start: {error}")))?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::new("python3 has no pipes"));
        };
        let mut lock = RedisPy { process, commands, answers: BufReader::new(answers) };
        match lock.answer() {
            Ok(ready) if ready == "ready" => Ok(lock),
            _ => Err(Error::new(
                "python3 has no redis-py (see what it says above). Run `make redis-py`",
            )),
        }
    }

    /// Sends a command, and waits for its result.
    pub fn request(&mut self, word: &str) -> Result<String> {
        self.begin(word)?;
        self.answer()
    }

    /// Sends a command.
    pub fn begin(&mut self, word: &str) -> Result {
        Ok(writeln!(self.commands, "{word}")?)
    }

    /// The result of a command.
    pub fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end() {
            "" => Err(Error::new("redis-py has ended")),
            answer => Ok(answer.into()),
        }
    }
}

impl Drop for RedisPy {
    fn drop(&mut self) {
        // It ends when its input does; this is for a busy process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
