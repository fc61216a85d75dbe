//! A renewal by the caller, besides those of the worker.

use crate::client::ClientInner;
use crate::client::acquisition::{
    Acquisition, AcquisitionEvent, HeldLease, RequestStep, lease_lost_error,
};
use crate::client::script_result::{ScriptReply, parse_reply};
use crate::clock::LocalInstant;
use crate::error::Result;
use crate::protocol::{Grant, RenewReply, RenewRequest};

/// The server's answer to a renewal that succeeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalConfirmation {
    pub(crate) grant: Grant,
    /// By the server's clock, ms.
    pub(crate) server_now: u64,
    pub(crate) sent_at: LocalInstant,
}

/// Extends the lease to its requested length, counted from now.
///
/// If the future is dropped, the server may or may not carry out the renewal. The lease here is
/// unchanged.
pub(crate) async fn renew(
    client: &ClientInner,
    acquisition: &Acquisition,
) -> Result<RenewalConfirmation> {
    let lock = &acquisition.lock;
    let now = client.clock.now();
    let sending = |holding: &HeldLease| {
        let sent = (holding.renew(now), holding.replicas(), holding.deadline);
        holding.is_held(now).then_some(sent)
    };
    let Some((renew, replicas, ends)) = acquisition.with_lease(sending).flatten() else {
        return Err(lock.add_context(client.failure_or(lease_lost_error())));
    };
    let until = ends.min(now.saturating_add(client.settings.call_timeout));
    let send = async |renew: RenewRequest| {
        let call = renew.call(client.scripts, acquisition.id, lock);
        parse_reply(
            client.transport.call_replicated(&call, replicas, until).await,
            RenewReply::read,
        )
    };
    let mut outcome = send(renew).await;
    if let Ok(ScriptReply { body: RenewReply::Other(grant), .. }) = &outcome
        && let Some(renew) =
            acquisition.with_lease(|held| held.renew_upgrade(grant.token, now)).flatten()
    {
        outcome = send(renew).await;
    }
    let confirmed = match &outcome {
        Ok(ScriptReply { body: RenewReply::Renewed(grant), envelope, sent_at: sent, .. }) => {
            Some(RenewalConfirmation {
                grant: *grant,
                server_now: envelope.server_now,
                sent_at: *sent,
            })
        }
        _ => None,
    };
    let is_held = || acquisition.with_lease(|held| held.is_held(client.clock.now())) == Some(true);
    match (client.apply(acquisition, AcquisitionEvent::RenewReply(outcome)).next_step, confirmed) {
        (Some(RequestStep::Failed(error)), _) => Err(lock.add_context(client.failure_or(error))),
        (_, Some(confirmed)) if is_held() => Ok(confirmed),
        _ => Err(lock.add_context(client.failure_or(lease_lost_error()))),
    }
}
