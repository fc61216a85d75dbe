//! etcd-io/etcd#10840: the command under `etcdctl lock` lacks some variables that were set for
//! `etcdctl`, so it cannot use the same servers by itself.
//!
//! The command has the whole environment of `rwlease run`.

use crate::fixture::alone;
use testkit::Result;

#[tokio::test]
async fn run_leaves_the_environment_of_its_command_whole() -> Result {
    let (server, tool) = alone().await?;
    let tool = tool.env("MY_API", "3").env("RWLEASE_PREFIX", "mine:");
    let ran = tool.env("RWLEASE_NO_SUCH", "kept").exits(&["run", "a", "--", "env"], 0).await?;
    for line in [&format!("RWLEASE_URL={}", server.url()), "MY_API=3", "RWLEASE_PREFIX=mine:"] {
        assert!(ran.out.lines().any(|own| own == line), "{line} in {ran:?}");
    }
    assert!(ran.out.lines().any(|own| own == "RWLEASE_NO_SUCH=kept"), "{ran:?}");
    Ok(())
}
