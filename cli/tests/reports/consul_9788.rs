//! hashicorp/consul#9788: the session behind `consul lock` has ended, another node has the lock,
//! and the command is told to end 90 s later.
//!
//! Where the servers answer no more, the command has ended before its lease has.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::fixture::{LONG, Tool, is_alive};
use testkit::{Proxy, Result, StandaloneServer};

#[tokio::test]
async fn run_without_a_network_has_ended_its_command_before_the_next_one_holds() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    let tool = Tool::new([proxy.url()]);
    let script = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let mut run = tool.start(&["run", "--lease", "6s", "service", "--", "sh", "-c", script])?;
    let command = run.line().await?;
    sleep(Duration::from_secs(1)).await;
    proxy.drop_all();
    let lock = rwlease::Client::connect([server.url()]).await?.rwlock("service")?;
    let next = timeout(LONG, lock.write()).await??;
    assert!(!is_alive(&command), "it runs while another holds the lock");
    let _ = next.release().await?;
    let ran = run.ended().await?.expect_status(79);
    assert!(ran.err.contains("the lease was lost: no"), "the reason: {ran:?}");
    assert!(!ran.err.contains("stood still"), "not `rwlease`: {ran:?}");
    Ok(())
}
