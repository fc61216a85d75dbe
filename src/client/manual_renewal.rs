//! A renewal by the caller. The renewals of the worker continue.

use rwlease_core::acquisition::{AcquisitionError, AcquisitionEvent, HeldLease, RequestStep};
use rwlease_core::protocol::{Grant, RenewReply, RenewRequest, ScriptReply, parse_reply};
use rwlease_core::time::LocalInstant;

use crate::client::ClientInner;
use crate::client::acquisition::Acquisition;
use crate::error::{AddContext, Result};

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
        let sent = (holding.renew(now), holding.confirmation(), holding.deadline);
        holding.is_held(now).then_some(sent)
    };
    let Some((renew, confirmation, ends)) = acquisition.with_lease(sending).flatten() else {
        return Err(lock.add_context(client.failure_or(AcquisitionError::LeaseLost)));
    };
    let until = ends.min(client.call_deadline(confirmation));
    let send = async |renew: RenewRequest| {
        let call = renew.call(acquisition.id, lock);
        parse_reply(
            client.transport.call_with(&call, confirmation, until, None).await,
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
        _ => Err(lock.add_context(client.failure_or(AcquisitionError::LeaseLost))),
    }
}
