//! ceph/ceph-qa-suite#583: `flock` starts a command that leaves a daemon behind. The daemon has
//! the descriptor of the lock, so the lock stays held for as long as that lives.
//!
//! What a command leaves behind holds nothing of the lock: no socket, and no place.

use crate::fixture::alone;
use testkit::Result;

#[tokio::test]
async fn run_gives_its_command_no_socket_and_the_lock_ends_with_it() -> Result {
    let (_server, tool) = alone().await?;
    let script = "setsid sleep 30 >/dev/null 2>&1 </dev/null & ls -l /proc/self/fd";
    let ran = tool.exits(&["run", "--lease", "60s", "build", "--", "sh", "-c", script], 0).await?;
    assert!(!ran.out.contains("socket:"), "{ran:?}");
    assert_eq!(tool.status("build").await?["locked"], false);
    Ok(())
}
