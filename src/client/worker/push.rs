//! What comes by subscription.

use std::sync::Arc;

use crate::client::Client;
use crate::client::acquisition::{Event, Pushed};
use crate::client::telemetry;
use crate::protocol::Message;
use crate::router;

/// Has the client hear of its grants, in whatever task reads the subscription: no task
/// stands between a push and the request that waits for it.
pub(crate) fn listen(client: &Arc<Client>) {
    let known = Arc::downgrade(client);
    client.router.listen(Box::new(move |event| {
        if let Some(client) = known.upgrade() {
            hear(&client, event);
        }
    }));
}

fn hear(client: &Client, event: router::Event) {
    match event {
        router::Event::Poll { slot } => {
            for acquisition in client.waiters_in(slot) {
                client.on(&acquisition, Event::Missed);
            }
            client.look_for_recalls(slot);
        }
        router::Event::Message { address, payload, received, .. } => {
            let push = match Message::read(&payload) {
                Some(Message::Grants(push)) => push,
                Some(Message::Recall { id, mode }) => {
                    if let Some(acquisition) = client.find(&id) {
                        acquisition.recall(mode);
                    }
                    return;
                }
                None => return,
            };
            for (id, grant) in &push.grants {
                let Some(acquisition) = client.find(id) else {
                    continue;
                };
                telemetry::pushed(&acquisition.lock, &address, grant.token);
                let pushed = Pushed {
                    grant: *grant,
                    now: push.now,
                    received,
                    bound: client.router.bound(&address),
                    from: address.clone(),
                };
                client.on(&acquisition, Event::Pushed(Box::new(pushed)));
                if push.more {
                    client.pump(&acquisition.lock);
                }
            }
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    #![allow(clippy::disallowed_methods)]

    use std::time::Duration;

    use super::*;
    use crate::Locks;
    use crate::embedded::Engine;

    const WAITERS: usize = 100;

    /// A queue of a hundred does not come to the server at once.
    #[tokio::test(start_paused = true)]
    async fn waiters_poll_in_the_order_of_their_places() {
        let engine = Engine::builder().masters(1).replicas(0).build();
        let rare = Duration::from_secs(60);
        let settings = Locks::builder().poll_interval(rare).waiter_ttl(10 * rare).lease(10 * rare);
        let locks = settings.connect_embedded(&engine).await.unwrap();
        let lock = locks.rwlock("looked at").unwrap();
        let _held = lock.write().await.unwrap();
        for _ in 0..WAITERS {
            let lock = lock.clone();
            tokio::spawn(async move { lock.write().await.map(drop) });
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        engine.reset_tally();
        hear(&locks.client.0, router::Event::Poll { slot: lock.slot() });
        tokio::time::sleep(Duration::from_millis(10)).await;
        let soon = engine.tally().scripts;
        assert!((5..=15).contains(&soon), "{soon} of {WAITERS} in 10 ms");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(engine.tally().scripts, WAITERS as u64);
    }
}
