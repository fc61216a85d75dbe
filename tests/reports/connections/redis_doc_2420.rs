//! redis/redis-doc#2420: a node that prefers host names and has none is listed as `?`. Clients
//! resolve that as a name, or take it for the node that was asked.
//!
//! A node that is listed as `?` is used by the address that stands beside it.

use rwlease::Client;

use crate::soon;

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn node_that_is_listed_as_a_question_mark_is_used_by_its_address() {
    let line = "cluster-preferred-endpoint-type hostname";
    let node = lone_node(line).await;
    let listed = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    let listed: redis::Value = node.run(&listed).await.unwrap();
    assert!(
        format!("{listed:?}").contains("\"?\"") || format!("{listed:?}").contains("'?'"),
        "{listed:?}"
    );
    let locks = Client::connect([node.url()]).await.unwrap();
    let _ = soon(locks.rwlock("doc").unwrap().write()).await.unwrap().release().await.unwrap();
}
