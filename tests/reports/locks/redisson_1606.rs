//! redisson/redisson#1606: a lock on several servers is released only where the client knows that
//! it has it. Where the server has taken it and the answer was lost, it stays.
//!
//! A quorum is released at each member that may have granted it, also after a failed acquisition.

use rwlease::Quorum;

use crate::support::{CutPoint, PollLimit, Proxy, StandaloneServer, connect};
use crate::{LONG, SECOND, soon};

#[tokio::test(flavor = "multi_thread")]
async fn quorum_is_released_where_the_answer_was_lost() {
    let (mut servers, mut proxies, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = StandaloneServer::start().await.unwrap();
        let proxy = Proxy::start(&server).await.unwrap();
        members.push(connect(&[proxy.url()]).await.unwrap());
        servers.push(server);
        proxies.push(proxy);
    }
    let quorum = Quorum::new(members).unwrap();
    let take = || quorum.mutex("job").lease(LONG).member_timeout(SECOND);
    let _ = take().await.unwrap().release().await.unwrap();
    for cut in [1, 2] {
        // First a majority answers, then none does.
        for proxy in &proxies[..cut] {
            drop(proxy.trap("job", CutPoint::AfterIt));
        }
        if let Some(guard) = soon(take().try_once()).await.unwrap_or(None) {
            let _ = guard.release().await.unwrap();
        }
        let wait_limit = PollLimit::limited("all members to be free", crate::SOON);
        for server in &servers {
            while server.run_words::<bool>("EXISTS job").await.unwrap() {
                wait_limit.pause(format!("{cut} answers were lost")).await.unwrap();
            }
        }
    }
}
