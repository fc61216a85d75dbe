//! Processes without a parent: the command of a `rwlease` that was killed, and processes that
//! nobody reaps.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tokio::time::{sleep, timeout};

use crate::fixture::{self, LONG, RWLEASE, alone, hearing, is_alive};
use testkit::Result;

/// Adopts the orphans of a command, and reaps none of them, as a PID 1 that was not made for it.
const STEPPARENT: &str = "
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) # PR_SET_CHILD_SUBREAPER
command = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
";

/// Waits until the process is dead.
async fn ends(process: &str) -> Result {
    let ended = async {
        while is_alive(process) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(timeout(LONG, ended).await?)
}

#[tokio::test]
async fn run_that_is_killed_takes_its_command_along() -> Result {
    let (_server, tool) = alone().await?;
    // SIGKILL, a signal of faults and the first real-time signal, which are not passed on.
    for signal in ["KILL", "ILL", "34"] {
        let script = "echo $$; exec sleep 600";
        let mut run = tool.start(&["run", "--lease", "1s", signal, "--", "sh", "-c", script])?;
        let command = run.line().await?;
        fixture::ran(tool.shell(&format!("kill -{signal} {}", run.id()?))).await?.expect_status(0);
        ends(&command).await?;
        assert_eq!(run.ended().await?.status, None, "a signal ended it");
    }
    Ok(())
}

/// The runtime ends idle threads after 10 s, and the end of the thread that started a process
/// counts as the death of its parent.
#[tokio::test]
async fn run_without_signals_lets_its_command_live() -> Result {
    let (_server, tool) = alone().await?;
    tool.run(&["run", "a", "--", "sleep", "11"]).await?.expect_err_lines(0, 0);
    Ok(())
}

#[tokio::test]
async fn run_with_transfer_when_killed_leaves_its_command_alive() -> Result {
    let (_server, tool) = alone().await?;
    let script = "echo $$; read line; echo $line";
    let mut command = tool.command(&["run", "--transfer", "a", "--", "sh", "-c", script]);
    let (input, mut end) = std::io::pipe()?;
    command.stdin(input);
    let mut run = fixture::start(command)?;
    let command = run.line().await?;
    run.signal(Signal::KILL)?;
    std::io::Write::write_all(&mut end, b"on\n")?;
    assert_eq!(run.line().await?, "on");
    ends(&command).await
}

#[tokio::test]
async fn run_after_revoke_does_not_wait_for_unreaped_processes() -> Result {
    let (server, tool) = alone().await?;
    // The shell waits for nothing but its input, and is gone before it could reap.
    let script = "sleep 600 & echo $!; read line";
    let mut command = hearing("python3");
    command
        .args(["-c", STEPPARENT, RWLEASE, "run", "--lease", "10s", "a", "--", "sh", "-c", script]);
    let (input, _end) = std::io::pipe()?;
    command.env("RWLEASE_URL", server.url()).stdin(input).kill_on_drop(true);
    let mut run = fixture::start(command)?;
    let orphan = run.line().await?;
    tool.run(&["revoke", "a"]).await?;
    let ran = run.ended().await?;
    assert!(!is_alive(&orphan));
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(ran.err.contains("the command ended after SIGTERM"), "{ran:?}");
    Ok(())
}

/// PID 1 of a container is the parent of all orphans there.
#[tokio::test]
async fn run_reaps_orphans_while_its_command_lives() -> Result {
    let (_server, tool) = alone().await?;
    // The first shell leaves a child to `rwlease`, which takes its place.
    let run = format!("sleep 0.5 & echo $!; exec {RWLEASE} run a -- sh -c 'echo ready; read line'");
    let mut command = tool.shell(&run);
    let (input, end) = std::io::pipe()?;
    command.stdin(input);
    let mut run = fixture::start(command)?;
    let child = run.line().await?;
    assert_eq!(run.line().await?, "ready");
    let is_reaped = async {
        while Path::new("/proc").join(&child).exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, is_reaped).await?;
    drop(end);
    run.ended().await?.expect_status(1).expect_err_lines(1, 0);
    Ok(())
}

#[tokio::test]
async fn run_as_pid_1_reaps_orphans_and_ends_with_the_status_of_its_command() -> Result {
    if !geteuid().is_root() {
        println!("a namespace of processes needs root: not run");
        return Ok(());
    }
    let (server, _) = alone().await?;
    let script = "sh -c 'sleep 0.1 & sleep 0.1 & sleep 0.2 &'; sleep 1; \
                  ps -o stat= --ppid 1 | grep -c Z; exit 5";
    let mut command = hearing("unshare");
    command.args([
        "--pid",
        "--fork",
        "--mount-proc",
        RWLEASE,
        "run",
        "a",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.env("RWLEASE_URL", server.url()).kill_on_drop(true);
    fixture::ran(command).await?.expect_output(5, "0\n");
    Ok(())
}
