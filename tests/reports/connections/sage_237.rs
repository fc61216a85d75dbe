//! ghostdogpr/sage#237: nodes behind a load balancer announce no host
//! (`cluster-preferred-endpoint-type unknown-endpoint`), which means the host that was asked. One
//! such entry makes the whole map unreadable.
//!
//! An entry without a host leads to the host that named it, in maps and in redirects.

use rwlease::Client;

use crate::soon;

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_host_is_the_one_that_was_asked() {
    let line = "cluster-preferred-endpoint-type unknown-endpoint";
    let node = lone_node(line).await;
    let locks = Client::connect([node.url()]).await.unwrap();
    let _ = soon(locks.rwlock("doc").unwrap().write()).await.unwrap().release().await.unwrap();
}
