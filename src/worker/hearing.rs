//! What comes by subscription.

use std::sync::Arc;

use crate::acquisition::Pushed;
use crate::client::Client;
use crate::protocol::Push;
use crate::router::Event;

pub(super) fn hear(client: &Arc<Client>, event: Event) {
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
                acquisition.with_asking(|asking| {
                    asking.pushed = Some(Pushed {
                        grant: *grant,
                        now: push.now,
                        received,
                        from: address.clone(),
                    });
                });
                acquisition.changed.notify_waiters();
                if push.more {
                    client.pump(&acquisition.lock);
                }
            }
        }
    }
}
