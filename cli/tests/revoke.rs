//! `rwlease revoke` and `rwlease release --force`.

use rwlease::{Client, LeaseState};

use crate::fixture::alone;
use testkit::Result;

#[tokio::test]
async fn revoke_and_force_release_of_a_free_lock_succeed() -> Result {
    let (_server, tool) = alone().await?;
    for args in [&["revoke", "a"][..], &["release", "--force", "a"]] {
        tool.run(args).await?.expect_output(0, "nobody holds a\n");
    }
    Ok(())
}

#[tokio::test]
async fn revoke_leaves_the_lease_valid_until_it_ends() -> Result {
    let (server, tool) = alone().await?;
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let guard = lock.write().await?;
    let ran = tool.run(&["revoke", "a"]).await?;
    assert!(ran.out.starts_with("revoked a from a writer: it is free in "), "{ran:?}");
    assert_eq!(tool.status("a").await?["writer"]["revoked"], true);
    assert!(guard.renew().await.is_err());
    assert_eq!(guard.state(), LeaseState::Uncertain);
    Ok(())
}

#[tokio::test]
async fn force_release_frees_the_lock_for_the_next_run() -> Result {
    let (server, tool) = alone().await?;
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let guard = lock.read().await?;
    tool.exits(&["release", "a"], 64).await?.expect_err(&["--force"]);
    assert_eq!(tool.status("a").await?["locked"], true);
    let ran = tool.run(&["release", "--force", "a"]).await?;
    assert!(ran.out.starts_with("took a from 1 reader: tokens below "), "{ran:?}");
    let next =
        tool.run(&["run", "--timeout", "0s", "a", "--", "sh", "-c", "echo $RWLEASE_TOKEN"]).await?;
    assert!(next.out.trim().parse::<u64>()? > guard.fencing_token().get());
    Ok(())
}
