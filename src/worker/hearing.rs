//! What comes by subscription.

use std::sync::Arc;

use crate::acquisition::Pushed;
use crate::client::Client;
use crate::observe;
use crate::protocol::Push;
use crate::router::Event;

/// Has the client hear of its grants, in whatever task reads the subscription: no other stands between a push and the one who waits for it.
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
        Event::Look { slot } => {
            for acquisition in client.waiters_in(slot) {
                acquisition.with_asking(|asking| asking.look = true);
                acquisition.changed.notify_waiters();
            }
        }
        Event::Message {
            address,
            payload,
            received,
            ..
        } => {
            let Some(push) = Push::read(&payload) else { return };
            for (owner, grant) in &push.grants {
                let Some(acquisition) = client.find(owner) else {
                    continue;
                };
                observe::pushed(&acquisition.lock, &address, grant.token);
                acquisition.with_asking(|asking| {
                    let known = asking.pushed.as_ref();
                    // Messages from two servers, while a slot moves, need not come in their order.
                    if known.is_none_or(|known| known.grant.token < grant.token) {
                        asking.pushed = Some(Pushed {
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
