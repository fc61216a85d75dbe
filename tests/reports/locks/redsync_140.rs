//! go-redsync/redsync#140: one of several servers does not answer, and each acquisition and each
//! release waits for it, though most have answered.
//!
//! A quorum waits for a silent member no longer than for its `member_timeout`.

use rwlease::Quorum;

use crate::support::StandaloneServer;
use crate::{MS, client, soon};

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_a_silent_member_takes_and_releases_soon() {
    let (mut servers, mut members) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = StandaloneServer::start().await.unwrap();
        members.push(client(&server).await);
        servers.push(server);
    }
    let quorum = Quorum::new(members).unwrap();
    servers[1].freeze().unwrap();
    let rounds = async {
        // With the ten seconds of a call each, it would take minutes.
        for _ in 0..10 {
            let guard = quorum.write("job").member_timeout(200 * MS).await.unwrap();
            let _ = guard.release().await.unwrap();
        }
    };
    soon(rounds).await;
}
