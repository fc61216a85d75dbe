//! `rwlease run --hand-on` and `--take-up`: the lock goes on to the command.

use rwlease::{ErrorKind, Locks, Ticket};

use crate::support::{Result, StandaloneServer};
use crate::tool::{RWLEASE, Tool};

#[tokio::test]
async fn run_transfer_is_accepted_and_released_by_the_command() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    for mode in ["--read", "--write"] {
        // The inner one goes on when the outer one has ended, and still has the lock.
        let inner = "echo $RWLEASE_TOKEN; echo ${RWLEASE_TICKET:-none}; echo $1; exit 7";
        let script = format!(
            "echo $RWLEASE_TOKEN; {RWLEASE} run --take-up a -- sh -c '{inner}' x \"$$\"; echo $?"
        );
        let ran = tool.run(&["run", mode, "--hand-on", "a", "--", "sh", "-c", &script]).await?;
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{ran:?}");
        let lines: Vec<&str> = ran.out.lines().collect();
        assert_eq!(lines[0], lines[1], "the token is the same");
        assert_eq!((lines[2], lines[4]), ("none", "7"), "the ticket is used up");
        assert_eq!(tool.status("a").await?["locked"], false);
    }
    Ok(())
}

#[tokio::test]
async fn run_transfer_keeps_the_lock_held_after_run_has_ended() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let ran = tool.run(&["run", "--hand-on", "a", "--", "printenv", "RWLEASE_TICKET"]).await?;
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(tool.status("a").await?["locked"], true, "nobody has released it");
    let ticket: Ticket = ran.out.trim().parse()?;
    let locks = Locks::connect([server.url()]).await?;
    let guard = locks.take_up(&ticket).await?;
    assert_eq!(guard.token(), ticket.token());
    let mut late = tool.command(&["run", "--take-up", "a", "--", "true"]);
    late.env("RWLEASE_TICKET", ticket.to_string());
    let ran = crate::tool::ran(late).await?;
    assert_eq!(ran.status, Some(79), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(!ran.err.contains(&ticket.to_string()), "{ran:?}");
    let _ = guard.release().await?;
    assert_eq!(locks.take_up(&ticket).await.unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

#[tokio::test]
async fn run_transfer_to_a_missing_command_leaves_the_lock_free() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let ran = tool.run(&["run", "--hand-on", "a", "--", "/no/such/command"]).await?;
    assert_eq!(ran.status, Some(127), "{ran:?}");
    assert_eq!(tool.status("a").await?["locked"], false);
    Ok(())
}

#[tokio::test]
async fn run_accept_transfer_with_an_invalid_value_is_a_usage_error() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    let ran = tool.run(&["run", "--take-up", "a", "--", "true"]).await?;
    assert_eq!(ran.status, Some(64), "{ran:?}");
    for (ticket, name) in [
        ("nonsense", "a"),
        ("rwlease-ticket-1:w:99999999999000001D:1700000000000000:1700000:b", "a"),
    ] {
        let mut command = tool.command(&["run", "--take-up", name, "--", "true"]);
        command.env("RWLEASE_TICKET", ticket);
        let ran = crate::tool::ran(command).await?;
        assert_eq!(ran.status, Some(64), "{ran:?}");
        assert!(ran.err.contains("RWLEASE_TICKET") && !ran.err.contains("9999"), "{ran:?}");
    }
    let ran = tool.run(&["run", "--take-up", "--read", "a", "--", "true"]).await?;
    assert_eq!(ran.status, Some(64), "{ran:?}");
    Ok(())
}
