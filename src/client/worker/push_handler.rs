//! Handling of subscription messages.

use std::sync::Arc;

use rwlease_core::acquisition::{AcquisitionEvent, GrantPush};
use rwlease_core::protocol::PushMessage;

use crate::client::cache::stale_recall;
use crate::client::{ClientInner, telemetry};
use crate::router;

/// Handles pushes in the task that reads the subscription, so that no other task is between a push
/// and the request that waits for it.
pub(crate) fn install_push_handler(client: &Arc<ClientInner>) {
    let Some(router) = client.transport.router() else { return };
    let weak_client = Arc::downgrade(client);
    router.subscriptions.set_listener(Box::new(move |event| {
        if let Some(client) = weak_client.upgrade() {
            handle_event(&client, event);
        }
    }));
}

fn handle_event(client: &Arc<ClientInner>, event: router::SubscriptionEvent) {
    match event {
        router::SubscriptionEvent::PollRequired { slot } => {
            for acquisition in client.waiters_in(slot) {
                client.apply(&acquisition, AcquisitionEvent::PushMissed);
            }
            client.resync_recalls(slot);
        }
        router::SubscriptionEvent::Message { slot, address, payload, received } => {
            let push = match PushMessage::read(&payload) {
                Some(PushMessage::Grants(push)) => push,
                Some(PushMessage::ForceReleased { id, token }) => {
                    if let Some(acquisition) = client.find(&id) {
                        client.apply(&acquisition, AcquisitionEvent::ForceReleased { token });
                    }
                    return;
                }
                Some(PushMessage::Recall { id, mode }) => {
                    match (client.find(&id), client.parse_own_id(&id)) {
                        (Some(acquisition), _) => acquisition.recall(mode),
                        (None, Some(ended)) => stale_recall::release_ended(client, slot, ended),
                        (None, None) => {}
                    }
                    return;
                }
                None => return,
            };
            let router = client.transport.router();
            for (id, grant) in &push.grants {
                let Some(acquisition) = client.find(id) else {
                    continue;
                };
                telemetry::record_push(&acquisition.lock, &address, grant.token);
                let pushed = GrantPush {
                    grant: *grant,
                    server_now: push.server_now,
                    received_at: received,
                    clock_bounds: router.and_then(|router| router.clock_bounds(&address)),
                    server: address.clone(),
                };
                client.apply(&acquisition, AcquisitionEvent::GrantPushed(Box::new(pushed)));
                if push.has_more_work {
                    client.grant_waiters(&acquisition.lock);
                }
            }
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
