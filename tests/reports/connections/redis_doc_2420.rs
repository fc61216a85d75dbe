//! redis/redis-doc#2420: a node that prefers host names and has none is listed as `?`. Clients
//! resolve that as a name, or take it for the node that was asked.
//!
//! A node that is listed as `?` is an error that names the setting, and no endless attempt.

use rwlease::Locks;

use crate::{SECOND, soon};

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn node_that_is_listed_as_a_question_mark_is_an_error_in_time() {
    let line = "cluster-preferred-endpoint-type hostname";
    let node = lone_node("127.0.0.1", line).await;
    let attempt = async {
        let settings = Locks::builder().call_timeout(2 * SECOND);
        let locks = settings.servers([node.url()]).connect().await?;
        locks.rwlock("doc")?.write().timeout(2 * SECOND).await.map(drop)
    };
    let error = soon(attempt).await.unwrap_err();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    assert!(text.contains('?'), "{text}");
}
