//! The test support itself, where no other suite would fail: a failover takes one order, and no
//! process is left running.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use testkit::{Cluster, FailoverMode, PollLimit, Result, StandaloneServer};

/// Redis would otherwise count the votes of the first failover again, or start no election.
#[tokio::test]
async fn a_replica_takes_over_twice_at_one_order_each() -> Result {
    let cluster = Cluster::start().await?;
    for replica in [3, 0, 3] {
        cluster.fail_over(replica, FailoverMode::Orderly).await?;
    }
    let log = std::fs::read_to_string(cluster.node(3).folder().join("server.log"))?;
    for (event, times) in
        [("anual failover user request accepted", 2), ("tarting a failover election", 2)]
    {
        assert_eq!(log.matches(event).count(), times, "{event}: {log}");
    }
    assert!(!log.contains("unable to failover: Failover attempt expired"), "{log}");
    Ok(())
}

/// A killed process cleans nothing up, but its servers must still end.
#[tokio::test]
async fn servers_end_with_a_killed_process() -> Result {
    const CHILD: &str = "RWLEASE_TEST_CHILD";
    let server = StandaloneServer::start().await?;
    if let Ok(note) = std::env::var(CHILD) {
        server.freeze()?;
        std::fs::write(
            &note,
            format!("{} {}", server.id().unwrap_or(0), server.folder().display()),
        )?;
        tokio::time::sleep(Duration::from_secs(600)).await;
        return Ok(());
    }

    let note = server.folder().join("note");
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "cluster::servers_end_with_a_killed_process"])
        .env(CHILD, &note)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let wait_limit = PollLimit::new("the child's note");
    let text = loop {
        match std::fs::read_to_string(&note) {
            Ok(text) if text.contains(' ') => break text,
            _ => wait_limit.pause("nothing yet").await?,
        }
    };
    let (id, folder) = text.split_once(' ').unwrap_or_default();
    let id = id.parse().ok();
    assert!(is_alive(id) && Path::new(folder).exists());

    child.kill()?;
    child.wait()?;
    let wait_limit = PollLimit::new("the server of the killed process to end");
    while is_alive(id) || Path::new(folder).exists() {
        wait_limit.pause("it is there").await?;
    }
    Ok(())
}

/// Whether the process runs. A process that has ended counts as alive until it is reaped, unless
/// `init` has to reap it.
fn is_alive(id: Option<u32>) -> bool {
    let Some(id) = id.and_then(|id| Pid::from_raw(id as i32)) else {
        return false;
    };
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    let is_left_to_init = stat.contains(") Z 1 ");
    test_kill_process(id).is_ok() && !is_left_to_init
}
