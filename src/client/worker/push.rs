//! What comes by subscription.

use std::sync::Arc;

use crate::client::Client;
use crate::client::acquisition::Pushed;
use crate::client::telemetry;
use crate::protocol::Push;
use crate::router::Event;

/// Has the client hear of its grants, in whatever task reads the subscription: no other stands
/// between a push and the one who waits for it.
pub(crate) fn listen(client: &Arc<Client>) {
    let known = Arc::downgrade(client);
    client.router.listen(Box::new(move |event| {
        if let Some(client) = known.upgrade() {
            hear(&client, event);
        }
    }));
}

fn hear(client: &Client, event: Event) {
    match event {
        Event::Poll { slot } => {
            for acquisition in client.waiters_in(slot) {
                acquisition.with_acquiring(|acquiring| acquiring.poll = true);
                acquisition.changed.notify_waiters();
            }
        }
        Event::Message { address, payload, received, .. } => {
            let Some(push) = Push::read(&payload) else {
                return;
            };
            for (id, grant) in &push.grants {
                let Some(acquisition) = client.find(id) else {
                    continue;
                };
                telemetry::pushed(&acquisition.lock, &address, grant.token);
                acquisition.with_acquiring(|acquiring| {
                    let known = acquiring.pushed.as_ref();
                    // Messages from two servers, while a slot moves, need not come in their order.
                    if known.is_none_or(|known| known.grant.token < grant.token) {
                        acquiring.pushed = Some(Pushed {
                            grant: *grant,
                            now: push.now,
                            received,
                            from: address.clone(),
                        });
                    }
                });
                acquisition.changed.notify_waiters();
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
    async fn those_who_wait_look_in_the_order_of_their_places() {
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
        hear(&locks.client.0, Event::Poll { slot: lock.slot() });
        tokio::time::sleep(Duration::from_millis(10)).await;
        let soon = engine.tally().scripts;
        assert!((5..=15).contains(&soon), "{soon} of {WAITERS} in 10 ms");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(engine.tally().scripts, WAITERS as u64);
    }
}
