//! etcd-io/etcd#10840: the command under `etcdctl lock` lacks some variables that were set for
//! `etcdctl`, so it cannot use the same servers by itself.
//!
//! The command has the whole environment of `rwlease run`.

use crate::fixture::{self, Tool};
use testkit::{Result, StandaloneServer};

#[tokio::test]
async fn run_leaves_the_environment_of_its_command_whole() -> Result {
    let server = StandaloneServer::start().await?;
    let mut command = Tool::new([server.url()]).command(&["run", "a", "--", "env"]);
    command.envs([("MY_API", "3"), ("RWLEASE_PREFIX", "mine:"), ("RWLEASE_NO_SUCH", "kept")]);
    let ran = fixture::ran(command).await?;
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for line in [&format!("RWLEASE_URL={}", server.url()), "MY_API=3", "RWLEASE_PREFIX=mine:"] {
        assert!(ran.out.lines().any(|own| own == line), "{line} in {ran:?}");
    }
    assert!(ran.out.lines().any(|own| own == "RWLEASE_NO_SUCH=kept"), "{ran:?}");
    Ok(())
}
