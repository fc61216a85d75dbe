//! redis/rueidis#539: the host of a redirect is an IPv6 address without brackets, and is cut at
//! its first colon.
//!
//! Redirects and maps with IPv6 addresses are followed.

use rwlease::Client;

use crate::soon;
use testkit::{Fake, ServerAct};

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_an_address_of_version_6_is_followed() {
    let node = lone_node("").await;
    // The node is reached by this address of version 6 alone.
    let six = Fake::start_at("::1", Some(&node), ServerAct::forward).await.unwrap();
    let port = six.port();
    let four = Fake::before(&node, move |act| {
        let is_call = act.is("EVALSHA") || act.is("EVAL");
        match is_call {
            true => {
                let slot = rwlease::Slot::of(act.words.get(3).map_or("", |key| key)).get();
                ServerAct::bytes(format!("-MOVED {slot} ::1:{port}\r\n"))
            }
            false => ServerAct::forward(act),
        }
    });
    let four = four.await.unwrap();
    let announce = format!("CONFIG SET cluster-announce-port {}", four.port());
    node.run_words::<()>(&announce).await.unwrap();
    super::until_announced(&node, four.port()).await;
    let locks = Client::connect([four.url()]).await.unwrap();
    let _ = soon(locks.rwlock("doc").unwrap().write()).await.unwrap().release().await.unwrap();
    assert!(six.connections() > 0);
}
