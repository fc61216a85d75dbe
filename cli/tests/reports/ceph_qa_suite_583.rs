//! ceph/ceph-qa-suite#583: `flock` starts a command that leaves a daemon behind. The daemon has
//! the descriptor of the lock, so the lock stays held for as long as that lives.
//!
//! What a command leaves behind holds nothing of the lock: no socket, and no place.

use crate::support::{Result, StandaloneServer};
use crate::tool::Tool;

#[tokio::test]
async fn run_gives_its_command_no_socket_and_the_lock_ends_with_it() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new([server.url()]);
    let script = "setsid sleep 30 >/dev/null 2>&1 </dev/null & ls -l /proc/self/fd";
    let ran = tool.run(&["run", "--lease", "60s", "build", "--", "sh", "-c", script]).await?;
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!ran.out.contains("socket:"), "{ran:?}");
    assert_eq!(tool.status("build").await?["locked"], false);
    Ok(())
}
