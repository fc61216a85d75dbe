//! A lease that is lost: the command is stopped before anybody else is let in.

use std::time::Duration;

use rwlease::Locks;

use crate::support::{Result, StandaloneServer};
use crate::tool::{Tool, is_alive};

#[tokio::test]
async fn run_after_revoke_gives_its_command_a_grace() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let script = "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = tool.start(&["run", "--lease", "3s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    tool.run(&["revoke", "a"]).await?;
    let ran = run.ended().await?;
    assert_eq!((ran.status, ran.out.as_str()), (Some(79), "cleaned up\n"), "{ran:?}");
    let why = "the lease was lost: it was revoked";
    assert!(ran.err.contains(why) && ran.err.contains("after SIGTERM"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_kills_a_command_that_ignores_sigterm_before_the_next_grant() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let script = "trap '' TERM; sleep 600 & echo $$; echo $!; wait; wait";
    let mut run = tool.start(&["run", "--lease", "10s", "a", "--", "sh", "-c", script])?;
    let (command, child) = (run.line().await?, run.line().await?);
    let locks = Locks::connect([server.url()]).await?;
    let lock = locks.rwlock("a")?;
    let next = async {
        let guard = lock.write().await?;
        let alive = (is_alive(&command), is_alive(&child));
        let _ = guard.release().await?;
        Ok::<_, rwlease::Error>(alive)
    };
    let revoke = async {
        tool.until("a", |status| status["waiters"] == 1).await?;
        tool.run(&["revoke", "a"]).await
    };
    assert!(is_alive(&command) && is_alive(&child));
    let (alive, revoked) = tokio::join!(next, revoke);
    assert!(revoked?.out.contains("revoked"));
    assert_eq!(alive?, (false, false), "the next one holds while they run");
    let ran = run.ended().await?;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(ran.err.contains("was killed"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_after_revoke_kills_processes_left_by_its_command() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let script = "(trap '' TERM; while :; do sleep 0.05; done) & echo $!; wait";
    let mut run = tool.start(&["run", "--lease", "10s", "a", "--", "sh", "-c", script])?;
    let child = run.line().await?;
    assert!(is_alive(&child));
    let locks = Locks::connect([server.url()]).await?;
    tool.run(&["revoke", "a"]).await?;
    let next = locks.rwlock("a")?.write().await?;
    assert!(!is_alive(&child), "the next one holds while it runs");
    let _ = next.release().await?;
    let ran = run.ended().await?;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(ran.err.contains("was killed"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_after_force_release_gives_no_grace() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let script = "trap 'echo graced; sleep 600' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = tool.start(&["run", "--lease", "2s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    let forced = tool.run(&["release", "--force", "a"]).await?;
    assert_eq!(forced.status, Some(0), "{forced:?}");
    let ran = run.ended().await?;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(!ran.out.contains("graced"), "{ran:?}");
    assert!(ran.err.contains("a forced release"), "{ran:?}");
    assert!(ran.err.contains("was killed"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_whose_servers_answer_no_more_ends_with_its_command() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let mut run =
        tool.start(&["run", "--lease", "2s", "a", "--", "sh", "-c", "echo $$; exec sleep 600"])?;
    let command = run.line().await?;
    server.freeze()?;
    while is_alive(&command) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A call to the server would take its 10 seconds.
    let ran = tokio::time::timeout(Duration::from_secs(7), run.ended()).await??;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(ran.err.contains("the lease was lost: no"), "the reason: {ran:?}");
    assert!(!ran.err.contains("stood still"), "not `rwlease`: {ran:?}");
    server.thaw()
}

#[tokio::test]
async fn run_whose_replicas_are_gone_says_that_they_did_not_confirm() -> Result {
    let primary = StandaloneServer::start().await?;
    let replica = primary.start_replica().await?;
    let tool = Tool::new([primary.url()]);
    let script = "echo ready; exec sleep 600";
    let mut run =
        tool.start(&["run", "--replicas", "1", "--lease", "4s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    replica.freeze()?;
    let ran = run.ended().await?;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert!(ran.err.contains("replicas"), "{ran:?}");
    replica.thaw()
}
