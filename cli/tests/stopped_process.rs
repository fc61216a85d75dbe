//! A `run` that is stopped past its lease.

use rustix::process::Signal;
use rwlease::Client;

use crate::fixture::{alone, is_alive};
use testkit::Result;

#[tokio::test]
async fn run_stopped_past_its_lease_kills_its_command_on_waking() -> Result {
    let (server, tool) = alone().await?;
    let script = "trap '' TERM; sleep 600 & echo $$; echo $!; wait; wait";
    let mut run = tool.start(&["run", "--lease", "1500ms", "a", "--", "sh", "-c", script])?;
    let (command, child) = (run.line().await?, run.line().await?);
    run.signal(Signal::STOP)?;
    // Past its lease: somebody else has the lock.
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let guard = lock.write().await?;
    assert!(is_alive(&command) && is_alive(&child), "nobody is there to stop them");
    run.signal(Signal::CONT)?;
    let ran = run.ended().await?.expect_status(79);
    let why = "the lease was lost: `rwlease` or the machine stood still until it had ended";
    assert!(ran.err.contains(why) && ran.err.contains("was killed"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(!is_alive(&command) && !is_alive(&child));
    assert!(guard.is_held(), "the lock of the other one is not touched");
    Ok(())
}

#[tokio::test]
async fn run_stopped_past_its_lease_reports_the_loss_of_an_ended_command() -> Result {
    let (server, tool) = alone().await?;
    let mut run =
        tool.start(&["run", "--lease", "1s", "a", "--", "sh", "-c", "echo $$; sleep 0.5"])?;
    let command = run.line().await?;
    run.signal(Signal::STOP)?;
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let _guard = lock.write().await?;
    while is_alive(&command) {
        tokio::task::yield_now().await;
    }
    run.signal(Signal::CONT)?;
    run.ended().await?.expect_status(79).expect_err(&["ended by itself"]);
    Ok(())
}
