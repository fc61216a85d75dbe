//! Subscribes to two sentinels, to learn of a change from them at once. A message only causes a
//! query of the sentinels, because it has no epoch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join;
use rwlease_core::resp::Address;

use crate::backend::{ConnectionError, PubSubEvent};
use crate::router::connections::limits::redial_pause;
use crate::router::sentinel::SentinelGroup;
use crate::router::telemetry;

const CHANNEL: &[u8] = b"+switch-master";

/// How many sentinels are subscribed to: one may be down, or behind the others.
const SUBSCRIBED_SENTINELS: usize = 2;

/// After this much silence the channel is joined again, which is harmless, to see whether the
/// sentinel is still there. After as much again the subscription is given up.
const PROBE_AFTER: Duration = Duration::from_secs(3);

/// Keeps the subscriptions until the future is dropped.
/// Calls `on_change` when the master may have changed.
pub(crate) async fn run_subscriptions<F: Future<Output = ()>>(
    sentinels: Arc<SentinelGroup>,
    on_change: impl Fn() -> F,
) {
    let watch = |number| {
        SentinelSubscription { sentinels: &sentinels, on_change: &on_change, number }.run()
    };
    join(watch(0), watch(1)).await;
}

struct SentinelSubscription<'a, C> {
    sentinels: &'a SentinelGroup,
    on_change: &'a C,
    number: usize,
}

impl<C: Fn() -> F, F: Future<Output = ()>> SentinelSubscription<'_, C> {
    /// Subscribes to the sentinels of this subscription in turn. Each subscription has its own
    /// share of the sentinels.
    async fn run(self) {
        let mut failures = 0;
        for turn in 0_usize.. {
            let nodes = self.sentinels.nodes();
            let own: Vec<&Address> =
                nodes.iter().skip(self.number).step_by(SUBSCRIBED_SENTINELS).collect();
            let mut was_joined = false;
            if let Some(node) = turn.checked_rem(own.len()).map(|turn| own[turn])
                && let Err(failure) = self.listen(node, &mut was_joined).await
            {
                telemetry::emit_sentinel_failed(node, &failure.chain());
            }
            failures = if was_joined { 0 } else { failures + 1 };
            let clock = &self.sentinels.clock;
            clock.sleep_until(clock.now().saturating_add(redial_pause(failures))).await;
        }
    }

    /// Listens until the subscription is lost.
    async fn listen(&self, node: &Address, was_joined: &mut bool) -> Result<(), ConnectionError> {
        let SentinelGroup { settings, clock, limits, .. } = self.sentinels;
        let dial = settings.connector.subscribe(node, None);
        let dialled = limits.of_opening().apply(&**clock, node, dial).await?;
        let (subscription, mut notices) = dialled;
        let join = async || {
            let joining = subscription.subscribe(CHANNEL, false);
            limits.of_replies().apply(&**clock, node, joining).await
        };
        join().await?;
        // Whether the answer to the last join is still missing.
        let mut is_awaited = true;
        loop {
            let silent = clock.sleep_until(clock.now().saturating_add(PROBE_AFTER));
            let notice = tokio::select! {
                biased;
                notice = notices.recv() => notice,
                () = silent => {
                    if is_awaited {
                        return Err(ConnectionError::not_sent("no reply to SUBSCRIBE"));
                    }
                    join().await?;
                    is_awaited = true;
                    continue;
                }
            };
            match notice {
                Some(PubSubEvent::Subscribed { .. }) => {
                    is_awaited = false;
                    if !std::mem::replace(was_joined, true) {
                        telemetry::emit_sentinel_subscribed(node);
                        // A message may have been missed before.
                        (self.on_change)().await;
                    }
                }
                Some(PubSubEvent::Message { payload, .. }) => {
                    if self.concerns_master(&payload) {
                        (self.on_change)().await;
                    }
                }
                Some(PubSubEvent::Rejected { error, .. }) => {
                    return Err(ConnectionError::not_sent(format!("SUBSCRIBE failed: {error}")));
                }
                Some(PubSubEvent::Unsubscribed { .. }) => {
                    return Err(ConnectionError::not_sent("the sentinel closed the subscription"));
                }
                None => return Err(subscription.failure().unwrap_or_else(ConnectionError::closed)),
            }
        }
    }

    /// Returns true if a message is about the master: `<name> <old host> <old port> <new host> <new
    /// port>`.
    fn concerns_master(&self, payload: &Bytes) -> bool {
        let name = payload.split(|byte| *byte == b' ').next();
        name == Some(self.sentinels.settings.master.as_bytes())
    }
}
