//! On a terminal: one of `script`, which every Linux has.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::timeout;

use crate::fixture::{LONG, RWLEASE, Ran, alone, hearing};
use testkit::{Error, Result, StandaloneServer};

/// A run on a terminal of its own, with what is typed there and what was shown so far.
struct OnTerminal {
    process: Child,
    shown: String,
}

impl OnTerminal {
    fn start(server: &StandaloneServer, args: &str) -> Result<OnTerminal> {
        OnTerminal::shell(server, &format!("exec {RWLEASE} {args}"))
    }

    /// The words go to a shell of the terminal's own, without job control.
    fn shell(server: &StandaloneServer, words: &str) -> Result<OnTerminal> {
        let process = hearing("script")
            .args(["--quiet", "--return", "--flush", "--command", words, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("RWLEASE_URL", server.url())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(OnTerminal { process, shown: String::new() })
    }

    async fn types(&mut self, keys: &str) -> Result {
        let stdin = self.process.stdin.as_mut().ok_or_else(|| Error::new("no input"))?;
        stdin.write_all(keys.as_bytes()).await?;
        Ok(stdin.flush().await?)
    }

    /// Waits until these words are shown.
    async fn shows(&mut self, words: &str) -> Result {
        while !self.shown.contains(words) {
            let stdout = self.process.stdout.as_mut().ok_or_else(|| Error::new("no output"))?;
            let mut part = [0; 1024];
            let late = |_| Error::new(format!("waited for {words:?}: {:?}", self.shown));
            match timeout(LONG, stdout.read(&mut part)).await.map_err(late)?? {
                0 => return Err(Error::new(format!("no {words:?} in {:?}", self.shown))),
                read => self.shown += &String::from_utf8_lossy(&part[..read]),
            }
        }
        Ok(())
    }

    /// Its output is all that was shown.
    async fn ended(mut self) -> Result<Ran> {
        let stdin = self.process.stdin.take(); // its end would end `script`
        let output = timeout(LONG, self.process.wait_with_output()).await??;
        drop(stdin);
        let out = self.shown + &String::from_utf8_lossy(&output.stdout);
        Ok(Ran { status: output.status.code(), out, err: String::new() })
    }
}

#[tokio::test]
async fn run_gives_its_command_the_terminal() -> Result {
    let (server, tool) = alone().await?;
    let mut run = OnTerminal::start(&server, "run a -- sh -c 'read line; echo got $line; exit 5'")?;
    tool.until("a", |status| status["locked"] == true).await?;
    run.types("words\n").await?;
    run.ended().await?.expect_status(5).expect_out(&["got words"]);
    Ok(())
}

#[tokio::test]
async fn ctrl_c_reaches_the_command_once() -> Result {
    let server = StandaloneServer::start().await?;
    // Once where the command leaves the terminal alone, once where it has it. A sleep that has
    // begun ends with the key, and the other one leaves time to be hit again.
    for wants in ["", "stty -a > /dev/null; stty echo;"] {
        let script = format!(
            "run a -- sh -c '{wants} trap \"echo hit\" INT; echo ready; sleep 1; sleep 1; echo done'"
        );
        let mut run = OnTerminal::start(&server, &script)?;
        run.shows("ready").await?;
        run.types("\x03").await?;
        let ran = run.ended().await?.expect_status(0);
        assert_eq!(ran.out.matches("hit").count(), 1, "{ran:?}");
    }
    Ok(())
}

/// Nobody would let it go on: it is the first of its session, as under `ssh -t` and in containers,
/// or below a shell that is.
#[tokio::test]
async fn ctrl_z_without_job_control_does_not_stop_the_command() -> Result {
    let server = StandaloneServer::start().await?;
    for begin in ["exec", "true; "] {
        let command = "run a -- sh -c 'echo ready; sleep 1; exit 5'";
        let mut run = OnTerminal::shell(&server, &format!("{begin} {RWLEASE} {command}; exit $?"))?;
        run.shows("ready").await?;
        run.types("\x1a").await?;
        run.ended().await?.expect_status(5);
    }
    Ok(())
}

/// The same for one that still waits.
#[tokio::test]
async fn ctrl_z_without_job_control_does_not_stop_a_waiter() -> Result {
    let (server, tool) = alone().await?;
    let guard = rwlease::Client::connect([server.url()]).await?.rwlock("a")?.write().await?;
    let mut run = OnTerminal::shell(&server, &format!("{RWLEASE} run a -- true; exit $?"))?;
    tool.until("a", |status| status["waiter_count"] == 1).await?;
    run.types("\x1a").await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let _ = guard.release().await?;
    run.ended().await?.expect_status(0);
    Ok(())
}

/// A shell that controls jobs sees it stop, and lets it and its command go on.
#[tokio::test]
async fn ctrl_z_with_job_control_stops_run_and_its_command() -> Result {
    let server = StandaloneServer::start().await?;
    // The command starts no program: dash is not stopped while it does, and the key is lost.
    let work = "echo ready; read line <&3; exit 5";
    let script = format!(
        "pipe=$(mktemp -u); mkfifo $pipe; exec 3<>$pipe; rm $pipe; set -m; \
         {RWLEASE} run --lease 60s a -- sh -c '{work}'; echo stopped; echo >&3; fg; exit $?"
    );
    let mut run = OnTerminal::shell(&server, &script)?;
    run.shows("ready").await?;
    run.types("\x1a").await?;
    run.ended().await?.expect_status(5).expect_out(&["stopped"]);
    Ok(())
}

#[tokio::test]
async fn run_that_waits_shows_the_holder_and_its_queue_position() -> Result {
    let (server, tool) = alone().await?;
    let lock = rwlease::Client::connect([server.url()]).await?.rwlock("a")?;
    let guard = lock.write().await?;
    let before = tool.start(&["run", "a", "--", "true"])?;
    tool.until("a", |status| status["waiter_count"] == 1).await?;
    let mut run = OnTerminal::start(&server, "run a -- true")?;
    tool.until("a", |status| status["waiter_count"] == 2).await?;
    run.shows("1 before you").await?;
    run.shows(&format!(":{} has written for", std::process::id())).await?;
    run.types("\x03").await?;
    run.ended().await?.expect_status(130).expect_out(&["waiting for a", "1 before you"]);
    assert_eq!(tool.status("a").await?["waiter_count"], 1, "it left the queue");
    let _ = guard.release().await?;
    assert_eq!(before.ended().await?.status, Some(0));
    Ok(())
}

#[tokio::test]
async fn run_that_waits_shows_that_the_server_does_not_reply() -> Result {
    let server = StandaloneServer::start().await?;
    let lock = rwlease::Client::connect([server.url()]).await?.rwlock("a")?;
    let _guard = lock.write().await?;
    let mut run = OnTerminal::start(&server, "run a -- true")?;
    timeout(LONG, run.shows("before you")).await??;
    server.freeze()?;
    timeout(LONG, run.shows("still waiting: lock `a`")).await?
}

/// With `tostop`, a write to the terminal stops a process in the background.
#[tokio::test]
async fn background_run_at_risk_is_not_stopped_by_its_own_lines() -> Result {
    let (server, tool) = alone().await?;
    let run = format!("{RWLEASE} run --quiet --lease 4s a -- sleep 600");
    let script = format!("set -m; stty tostop; {run} & wait $!; echo status $?");
    let mut run = OnTerminal::shell(&server, &script)?;
    tool.until("a", |status| status["locked"] == true).await?;
    server.freeze()?;
    run.shows("status 79").await
}

#[tokio::test]
async fn doctor_on_a_terminal_is_coloured() -> Result {
    let server = StandaloneServer::start().await?;
    OnTerminal::start(&server, "doctor")?.ended().await?.expect_status(0).expect_out(&["\x1b["]);
    Ok(())
}
