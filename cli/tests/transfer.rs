//! `rwlease run --transfer` and `--accept-transfer`: the command gets the held lock.

use rwlease::{Client, ErrorKind, LeaseTransfer};

use crate::fixture::{RWLEASE, Tool, alone};
use testkit::Result;

#[tokio::test]
async fn run_transfer_is_accepted_and_released_by_the_command() -> Result {
    let (_server, tool) = alone().await?;
    for mode in ["--read", "--write"] {
        // The inner one goes on when the outer one has ended, and still has the lock.
        let inner = "echo $RWLEASE_TOKEN; echo ${RWLEASE_TRANSFER:-none}; echo $1; exit 7";
        let script = format!(
            "echo $RWLEASE_TOKEN; {RWLEASE} run --accept-transfer a -- sh -c '{inner}' x \"$$\"; echo $?"
        );
        let ran = tool.run(&["run", mode, "--transfer", "a", "--", "sh", "-c", &script]).await?;
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{ran:?}");
        let lines: Vec<&str> = ran.out.lines().collect();
        assert_eq!(lines[0], lines[1], "the token is the same");
        assert_eq!((lines[2], lines[4]), ("none", "7"), "the command does not get the transfer");
        assert_eq!(tool.status("a").await?["locked"], false);
    }
    Ok(())
}

#[tokio::test]
async fn run_transfer_keeps_the_lock_held_after_run_has_ended() -> Result {
    let (server, tool) = alone().await?;
    let ran =
        tool.exits(&["run", "--transfer", "a", "--", "printenv", "RWLEASE_TRANSFER"], 0).await?;
    assert_eq!(tool.status("a").await?["locked"], true, "nobody has released it");
    let transfer: LeaseTransfer = ran.out.trim().parse()?;
    let locks = Client::connect([server.url()]).await?;
    let guard = locks.accept_transfer(&transfer).await?;
    assert_eq!(guard.fencing_token().get(), transfer.fencing_token().get());
    let late = tool.env("RWLEASE_TRANSFER", transfer.to_string());
    let ran = late.exits(&["run", "--accept-transfer", "a", "--", "true"], 79).await?;
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(!ran.err.contains(&transfer.to_string()), "{ran:?}");
    let _ = guard.release().await?;
    assert_eq!(locks.accept_transfer(&transfer).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    Ok(())
}

#[tokio::test]
async fn run_transfer_to_a_missing_command_leaves_the_lock_free() -> Result {
    let (_server, tool) = alone().await?;
    tool.exits(&["run", "--transfer", "a", "--", "/no/such/command"], 127).await?;
    assert_eq!(tool.status("a").await?["locked"], false);
    Ok(())
}

#[tokio::test]
async fn run_accept_transfer_with_an_invalid_value_is_a_usage_error() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    tool.exits(&["run", "--accept-transfer", "a", "--", "true"], 64).await?;
    for (transfer, name) in [
        ("nonsense", "a"),
        ("rwlease-transfer-1:w:99999999999000001D:1700000000000000:1700000:b", "a"),
    ] {
        let tool = tool.env("RWLEASE_TRANSFER", transfer);
        let ran = tool.exits(&["run", "--accept-transfer", name, "--", "true"], 64).await?;
        assert!(ran.err.contains("RWLEASE_TRANSFER") && !ran.err.contains("9999"), "{ran:?}");
    }
    tool.exits(&["run", "--accept-transfer", "--read", "a", "--", "true"], 64).await?;
    Ok(())
}
