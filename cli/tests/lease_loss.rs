//! A lease that is lost: the command is stopped before anybody else is let in.

use rwlease::Client;

use crate::fixture::{Tool, alone, is_alive};
use testkit::{Result, StandaloneServer};

#[tokio::test]
async fn run_after_revoke_gives_its_command_a_grace() -> Result {
    let (_server, tool) = alone().await?;
    let script = "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = tool.start(&["run", "--lease", "3s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    tool.run(&["revoke", "a"]).await?;
    let ran = run.ended().await?.expect_output(79, "cleaned up\n");
    let why = "the lease was lost: it was revoked";
    assert!(ran.err.contains(why) && ran.err.contains("after SIGTERM"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_kills_a_command_that_ignores_sigterm_before_the_next_grant() -> Result {
    let (server, tool) = alone().await?;
    let script = "trap '' TERM; sleep 600 & echo $$; echo $!; wait; wait";
    let mut run = tool.start(&["run", "--lease", "10s", "a", "--", "sh", "-c", script])?;
    let (command, child) = (run.line().await?, run.line().await?);
    let locks = Client::connect([server.url()]).await?;
    let lock = locks.rwlock("a")?;
    let next = async {
        let guard = lock.write().await?;
        let alive = (is_alive(&command), is_alive(&child));
        let _ = guard.release().await?;
        Ok::<_, rwlease::Error>(alive)
    };
    let revoke = async {
        tool.until("a", |status| status["waiter_count"] == 1).await?;
        tool.run(&["revoke", "a"]).await
    };
    assert!(is_alive(&command) && is_alive(&child));
    let (alive, revoked) = tokio::join!(next, revoke);
    assert!(revoked?.out.contains("revoked"));
    assert_eq!(alive?, (false, false), "the next one holds while they run");
    run.ended().await?.expect_status(79).expect_err(&["was killed"]);
    Ok(())
}

#[tokio::test]
async fn run_after_revoke_kills_processes_left_by_its_command() -> Result {
    let (server, tool) = alone().await?;
    let script = "(trap '' TERM; while :; do sleep 0.05; done) & echo $!; wait";
    let mut run = tool.start(&["run", "--lease", "10s", "a", "--", "sh", "-c", script])?;
    let child = run.line().await?;
    assert!(is_alive(&child));
    let locks = Client::connect([server.url()]).await?;
    tool.run(&["revoke", "a"]).await?;
    let next = locks.rwlock("a")?.write().await?;
    assert!(!is_alive(&child), "the next one holds while it runs");
    let _ = next.release().await?;
    run.ended().await?.expect_status(79).expect_err(&["was killed"]);
    Ok(())
}

#[tokio::test]
async fn run_after_force_release_gives_no_grace() -> Result {
    let (_server, tool) = alone().await?;
    let script = "trap 'echo graced; sleep 600' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = tool.start(&["run", "--lease", "2s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    tool.exits(&["release", "--force", "a"], 0).await?;
    let ran = run.ended().await?.expect_status(79);
    assert!(!ran.out.contains("graced"), "{ran:?}");
    assert!(ran.err.contains("a forced release"), "{ran:?}");
    assert!(ran.err.contains("was killed"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_whose_replicas_are_gone_says_that_they_did_not_confirm() -> Result {
    let primary = StandaloneServer::start().await?;
    let replica = primary.start_replica().await?;
    let tool = Tool::new([primary.url()]);
    let script = "echo ready; exec sleep 600";
    let options = ["run", "--min-replicas", "1", "--lease", "4s"];
    let mut run = tool.start(&[&options[..], &["a", "--", "sh", "-c", script]].concat())?;
    assert_eq!(run.line().await?, "ready");
    replica.freeze()?;
    run.ended().await?.expect_status(79).expect_err(&["replicas"]);
    replica.thaw()
}
