//! A standard error that nobody reads, or that stops who writes there.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use crate::fixture::{LONG, Tool, alone, is_alive};
use testkit::{Error, Result};

/// A pipe that is full, with its other end.
async fn full_pipe() -> Result<(Stdio, pipe::Receiver)> {
    const PAGE: [u8; 4096] = [b'x'; 4096];
    let (writer, reader) = pipe::pipe()?;
    while timeout(Duration::from_millis(500), writer.writable()).await.is_ok() {
        let _ = writer.try_write(&PAGE);
    }
    Ok((writer.into_blocking_fd()?.into(), reader))
}

/// Starts a `run` with that standard error. Returns its process and the first line of its output.
async fn start(tool: &Tool, args: &[&str], err: Stdio) -> Result<(tokio::process::Child, String)> {
    let mut run = tool.command(args).stdout(Stdio::piped()).stderr(err).spawn()?;
    let out = run.stdout.take().ok_or_else(|| Error::new("no output"))?;
    let line = timeout(LONG, BufReader::new(out).lines().next_line()).await??;
    Ok((run, line.ok_or_else(|| Error::new("its output has ended"))?))
}

#[tokio::test]
async fn run_with_a_full_pipe_kills_its_command_before_the_lease_ends() -> Result {
    const LEASE: Duration = Duration::from_secs(4);
    let (server, tool) = alone().await?;
    let (err, _reader) = full_pipe().await?;
    let args = ["run", "--lease", "4s", "a", "--", "sh", "-c", "echo $$; exec sleep 600"];
    let (mut run, command) = start(&tool, &args, err).await?;
    server.freeze()?;
    sleep(LEASE).await; // the last renewal was before
    assert!(!is_alive(&command), "others may have the lock by now");
    assert_eq!(timeout(LONG, run.wait()).await??.code(), Some(79));
    Ok(())
}

#[tokio::test]
async fn run_with_a_full_pipe_renews_its_lease() -> Result {
    let (server, tool) = alone().await?;
    let (err, _reader) = full_pipe().await?;
    let script = "echo ready; sleep 9; exit 5";
    let args = ["run", "--lease", "6s", "a", "--", "sh", "-c", script];
    let (mut run, _) = start(&tool, &args, err).await?;
    // Long enough for a line about the risk.
    server.freeze()?;
    sleep(Duration::from_millis(3_300)).await;
    server.thaw()?;
    assert_eq!(timeout(LONG, run.wait()).await??.code(), Some(5), "with a lost lease, 79");
    Ok(())
}
