//! Sends the worker's calls. Calls of one kind to one server are sent together.

use std::sync::Arc;

use futures::future::join_all;

use crate::client::ClientInner;
use crate::client::acquisition::{Acquisition, AcquisitionEvent, WorkerCall};
use crate::client::script_result::parse_reply;
use crate::clock::LocalInstant;
use crate::protocol::{HoldsRequest, ReleasePermitsRequest, ReleaseRequest, RenewReply};
use crate::router::{Call, CallError, CallReply, Priority};

pub(super) type WorkerBatch = Vec<(Arc<Acquisition>, WorkerCall)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallGroup {
    /// The number of replicas that must confirm it.
    Renewal(u32),
    Holds,
    Downgrade,
    ReleasePermits,
    Release {
        only_wait: bool,
    },
}

impl CallGroup {
    pub(super) fn of(sending: &WorkerCall) -> CallGroup {
        match sending {
            WorkerCall::Renew { replicas, .. } => CallGroup::Renewal(*replicas),
            WorkerCall::Holds { .. } => CallGroup::Holds,
            WorkerCall::Downgrade(_) => CallGroup::Downgrade,
            WorkerCall::ReleasePermits(_) => CallGroup::ReleasePermits,
            WorkerCall::Release(ReleaseRequest { wait_only: only_wait }) => {
                CallGroup::Release { only_wait: *only_wait }
            }
        }
    }
}

/// Sends a batch, and handles each answer when it arrives.
pub(super) async fn send_batch(
    client: Arc<ClientInner>,
    kind: CallGroup,
    batch: WorkerBatch,
    now: LocalInstant,
) {
    let calls: Vec<Call> =
        batch.iter().map(|(one, sending)| build_call(&client, one, sending)).collect();
    let latest = now.saturating_add(client.settings.call_timeout);
    let until = batch.iter().map(|(_, sending)| reply_deadline(sending, latest)).max();
    let until = until.unwrap_or(latest);
    let (client, router) = (&client, &client.transport);
    let take_in = |at: usize, result| {
        let (acquisition, sending) = &batch[at];
        client.apply(acquisition, reply_event(sending, result));
    };
    match kind {
        // The connections for replicated calls group calls that arrive together.
        CallGroup::Renewal(replicas @ 1..) => {
            join_all(calls.iter().enumerate().map(|(at, call)| async move {
                take_in(at, router.call_replicated(call, replicas, until).await);
            }))
            .await;
        }
        CallGroup::Renewal(0) => router.each(&calls, until, Priority::Renewals, take_in).await,
        _ => router.each(&calls, until, Priority::Normal, take_in).await,
    }
}

fn build_call(client: &ClientInner, acquisition: &Acquisition, sending: &WorkerCall) -> Call {
    let (scripts, id, lock) = (client.scripts, acquisition.id, &acquisition.lock);
    match sending {
        WorkerCall::Renew { renew, .. } => renew.call(scripts, id, lock),
        WorkerCall::Holds { .. } => HoldsRequest { id: id.as_str() }.call(scripts, lock),
        WorkerCall::Downgrade(downgrade) => downgrade.call(scripts, id, lock),
        WorkerCall::ReleasePermits(shrink) => shrink.call(scripts, id, lock),
        WorkerCall::Release(release) => release.call(scripts, id, lock),
    }
}

/// The time after which an answer is useless: for a renewal or a question, the end of the lease.
fn reply_deadline(sending: &WorkerCall, latest: LocalInstant) -> LocalInstant {
    match sending {
        WorkerCall::Renew { ends, .. } | WorkerCall::Holds { ends } => latest.min(*ends),
        _ => latest,
    }
}

fn reply_event(sending: &WorkerCall, result: Result<CallReply, CallError>) -> AcquisitionEvent {
    match sending {
        WorkerCall::Renew { .. } => {
            AcquisitionEvent::RenewReply(parse_reply(result, RenewReply::read))
        }
        WorkerCall::Holds { .. } => {
            AcquisitionEvent::HoldsReply(parse_reply(result, HoldsRequest::read))
        }
        WorkerCall::Downgrade(_) => {
            AcquisitionEvent::DowngradeReply(parse_reply(result, RenewReply::read))
        }
        WorkerCall::ReleasePermits(ReleasePermitsRequest { keep }) => {
            AcquisitionEvent::ReleasePermitsReply {
                keep: *keep,
                outcome: parse_reply(result, ReleasePermitsRequest::read),
            }
        }
        WorkerCall::Release(ReleaseRequest { wait_only: only_wait }) => {
            AcquisitionEvent::WorkerReleaseReply {
                only_wait: *only_wait,
                outcome: parse_reply(result, ReleaseRequest::read),
            }
        }
    }
}
