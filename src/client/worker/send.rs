//! Sends the worker's calls. Calls of one kind to one server are sent together.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rwlease_core::acquisition::{AcquisitionEvent, WorkerCall};
use rwlease_core::protocol::{
    Call, CallError, CallReply, Confirmation, HoldsRequest, ReleasePermitsRequest, ReleaseRequest,
    RenewReply, parse_reply,
};
use rwlease_core::time::LocalInstant;

use crate::client::ClientInner;
use crate::client::acquisition::Acquisition;
use crate::router::Priority;

pub(super) type WorkerBatch = Vec<(Arc<Acquisition>, WorkerCall)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallGroup {
    Renewal(Confirmation),
    Holds,
    Downgrade,
    ReleasePermits,
    Release { wait_only: bool },
}

impl CallGroup {
    pub(super) fn of(call: &WorkerCall) -> Self {
        match *call {
            WorkerCall::Renew { confirmation, .. } => Self::Renewal(confirmation),
            WorkerCall::Holds { .. } => Self::Holds,
            WorkerCall::Downgrade(_) => Self::Downgrade,
            WorkerCall::ReleasePermits(_) => Self::ReleasePermits,
            WorkerCall::Release(ReleaseRequest { wait_only, .. }) => Self::Release { wait_only },
        }
    }

    /// How long its calls may wait for their confirmation.
    fn confirmation_timeout(self) -> Duration {
        match self {
            CallGroup::Renewal(confirmation) => confirmation.timeout(),
            _ => Duration::ZERO,
        }
    }
}

/// Sends a batch, and handles each reply when it arrives.
pub(super) async fn send_batch(
    client: Arc<ClientInner>,
    kind: CallGroup,
    batch: WorkerBatch,
    now: LocalInstant,
) {
    let calls: Vec<Call> =
        batch.iter().map(|(acquisition, call)| build_call(acquisition, call)).collect();
    let latest =
        now.saturating_add(client.settings.acquisition.call_timeout + kind.confirmation_timeout());
    let deadline = batch.iter().map(|(_, call)| reply_deadline(call, latest)).max();
    let deadline = deadline.unwrap_or(latest);
    let (client, router) = (&client, &client.transport);
    let apply_reply = |index: usize, result| {
        let (acquisition, call) = &batch[index];
        client.apply(acquisition, reply_event(call, result));
    };
    match kind {
        CallGroup::Renewal(confirmation) if confirmation.is_empty() => {
            router.call_each(&calls, deadline, Priority::Renewals, apply_reply).await
        }
        // The connections for confirmed calls group calls that arrive together.
        CallGroup::Renewal(confirmation) => {
            join_all(calls.iter().enumerate().map(|(index, call)| async move {
                apply_reply(index, router.call_with(call, confirmation, deadline, None).await);
            }))
            .await;
        }
        _ => router.call_each(&calls, deadline, Priority::Normal, apply_reply).await,
    }
}

fn build_call(acquisition: &Acquisition, call: &WorkerCall) -> Call {
    let (id, lock) = (acquisition.id, &acquisition.lock);
    match call {
        WorkerCall::Renew { renew, .. } => renew.call(id, lock),
        WorkerCall::Holds { .. } => HoldsRequest { id: id.as_str() }.call(lock),
        WorkerCall::Downgrade(downgrade) => downgrade.call(id, lock),
        WorkerCall::ReleasePermits(request) => request.call(id, lock),
        WorkerCall::Release(release) => release.call(id, lock),
    }
}

/// The time after which an answer is useless: for a renewal or `holds`, the deadline of the lease.
fn reply_deadline(call: &WorkerCall, latest: LocalInstant) -> LocalInstant {
    match *call {
        WorkerCall::Renew { deadline, .. } | WorkerCall::Holds { deadline } => latest.min(deadline),
        _ => latest,
    }
}

fn reply_event(call: &WorkerCall, result: Result<CallReply, CallError>) -> AcquisitionEvent {
    use AcquisitionEvent as Event;
    match *call {
        WorkerCall::Renew { .. } => Event::RenewReply(parse_reply(result, RenewReply::read)),
        WorkerCall::Holds { .. } => Event::HoldsReply(parse_reply(result, HoldsRequest::read)),
        WorkerCall::Downgrade(_) => Event::DowngradeReply(parse_reply(result, RenewReply::read)),
        WorkerCall::ReleasePermits(ReleasePermitsRequest { keep }) => {
            let outcome = parse_reply(result, ReleasePermitsRequest::read);
            Event::ReleasePermitsReply { keep, outcome }
        }
        WorkerCall::Release(ReleaseRequest { wait_only, .. }) => {
            let outcome = parse_reply(result, ReleaseRequest::read);
            Event::WorkerReleaseReply { wait_only, outcome }
        }
    }
}
