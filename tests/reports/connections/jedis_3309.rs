//! redis/jedis#3309: all nodes of a managed cluster are replaced, and only the name that the
//! client was given leads to the new ones. The client knows the old addresses alone, forever.
//!
//! When no known node answers, the servers that the client was given are asked again.

use rwlease::Client;

use crate::{SOON, soon};
use testkit::{Fake, Proxy, ServerAct};

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn seeds_are_asked_again_when_all_known_addresses_are_gone() {
    let node = lone_node("").await;
    let seed = Fake::before(&node, ServerAct::forward).await.unwrap();
    let (first, second) = (Proxy::start(&node).await.unwrap(), Proxy::start(&node).await.unwrap());
    for (number, place) in [&first, &second].into_iter().enumerate() {
        let announce = format!("CONFIG SET cluster-announce-port {}", place.port());
        node.run_words::<()>(&announce).await.unwrap();
        super::until_announced(&node, place.port()).await;
        if number == 1 {
            first.close();
        }
        // The same client, whose map names the first place.
        static CLIENT: tokio::sync::OnceCell<Client> = tokio::sync::OnceCell::const_new();
        let url = seed.url();
        let locks = CLIENT.get_or_init(async || {
            let settings = Client::builder().call_timeout(SOON);
            settings.urls([url]).connect().await.unwrap()
        });
        let lock = locks.await.rwlock("doc").unwrap();
        let _ = soon(lock.write()).await.unwrap().release().await.unwrap();
    }
}
