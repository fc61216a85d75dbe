//! Subscribes to two sentinels, to learn of a change from them at once. A message only causes a
//! query of the sentinels, because it has no epoch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join;

use crate::node::{Address, NodeError, Notice};
use crate::router::DIALS;
use crate::router::sentinels::Sentinels;
use crate::router::telemetry;
use crate::router::topology::Topology;

const CHANNEL: &[u8] = b"+switch-master";

/// How many sentinels are subscribed to: one may be down, or behind the others.
const WATCHED: usize = 2;

/// After this much silence the channel is joined again, which is harmless, to see whether the
/// sentinel is still there. After as much again the subscription is given up.
const SILENCE: Duration = Duration::from_secs(3);

/// Keeps the subscriptions until the future is dropped.
pub(crate) async fn watch(sentinels: Arc<Sentinels>, topology: Arc<Topology>) {
    let watch = |number| Watch { sentinels: &sentinels, topology: &topology, number }.run();
    join(watch(0), watch(1)).await;
}

/// One of the subscriptions.
struct Watch<'a> {
    sentinels: &'a Sentinels,
    topology: &'a Arc<Topology>,
    number: usize,
}

impl Watch<'_> {
    /// Subscribes to one sentinel after the other, except those that the other watches use.
    async fn run(self) {
        let mut failures = 0;
        for turn in 0_usize.. {
            let nodes = self.sentinels.nodes();
            let own: Vec<&Address> = nodes.iter().skip(self.number).step_by(WATCHED).collect();
            let mut was_joined = false;
            if let Some(node) = turn.checked_rem(own.len()).map(|turn| own[turn])
                && let Err(failure) = self.listen(node, &mut was_joined).await
            {
                telemetry::sentinel_failed(node, &failure);
            }
            failures = if was_joined { 0 } else { failures + 1 };
            let clock = &self.sentinels.clock;
            clock.sleep_until(clock.now().after(DIALS.pause(failures))).await;
        }
    }

    /// Listens until the subscription is lost.
    async fn listen(&self, node: &Address, was_joined: &mut bool) -> Result<(), NodeError> {
        let Sentinels { settings, clock, limits, .. } = self.sentinels;
        let dial = settings.connector.subscribe(node);
        let dialled = self.sentinels.within(limits.of_opening(), node, dial).await?;
        let (subscription, mut notices) = dialled;
        let join = async || {
            let joining = subscription.join(CHANNEL, false);
            self.sentinels.within(limits.of_replies(), node, joining).await
        };
        join().await?;
        // Whether the answer to the last join is still missing.
        let mut is_awaited = true;
        loop {
            let silent = clock.sleep_until(clock.now().after(SILENCE));
            let notice = tokio::select! {
                biased;
                notice = notices.recv() => notice,
                () = silent => {
                    if is_awaited {
                        return Err(NodeError::unsent("the sentinel is silent"));
                    }
                    join().await?;
                    is_awaited = true;
                    continue;
                }
            };
            match notice {
                Some(Notice::Joined { .. }) => {
                    is_awaited = false;
                    if !std::mem::replace(was_joined, true) {
                        telemetry::sentinel_joined(node);
                        // A message may have been missed before.
                        self.topology.hear_of_change().await;
                    }
                }
                Some(Notice::Message { payload, .. }) => {
                    if self.is_ours(&payload) {
                        self.topology.hear_of_change().await;
                    }
                }
                Some(Notice::Refused { error, .. }) => {
                    return Err(NodeError::unsent(error.to_string()));
                }
                Some(Notice::Left { .. }) => {
                    return Err(NodeError::unsent("the sentinel ended the subscription"));
                }
                None => return Err(subscription.failure().unwrap_or_else(NodeError::gone)),
            }
        }
    }

    /// Returns true if a message is about the master: `<name> <old host> <old port> <new host> <new
    /// port>`.
    fn is_ours(&self, payload: &Bytes) -> bool {
        let name = payload.split(|byte| *byte == b' ').next();
        name == Some(self.sentinels.settings.master.as_bytes())
    }
}
