//! sesamecare/redlock#6: the name of the lock is the key of some other data. Each member refuses,
//! and the caller reads, after all retries, that no quorum could be reached.
//!
//! A quorum whose key holds other data is told so at once.

use rwlease::{ErrorKind, Redlock};

use crate::{client, soon};
use testkit::StandaloneServer;

#[tokio::test(flavor = "multi_thread")]
async fn quorum_on_a_key_with_other_data_is_foreign() {
    let (mut servers, mut members) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = StandaloneServer::start().await.unwrap();
        server.run_words::<()>("RPUSH rwlease:user data").await.unwrap();
        members.push(client(&server).await);
        servers.push(server);
    }
    let quorum = Redlock::new(members).unwrap();
    let error = soon(quorum.write("user")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}
