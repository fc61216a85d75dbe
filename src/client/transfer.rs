//! Handing a lease on to another client.

use std::time::Duration;

use rwlease_core::acquisition::{AcquisitionError, AcquisitionEvent};
use rwlease_core::protocol::{AcquisitionId, LockMode};

use crate::client::acquisition::Acquisition;
use crate::client::{ClientInner, manual_renewal};
use crate::error::{AddContext, Result};

/// The lease as the client that takes it up must name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferredLease {
    pub(crate) mode: LockMode,
    pub(crate) id: AcquisitionId,
    pub(crate) token: u64,
    /// When it ends, server ms.
    pub(crate) deadline: u64,
}

/// Renews the lease as [`renew_and_drain`], and stops tracking it.
///
/// If the future is dropped, the lease is unchanged.
pub(crate) async fn begin_transfer(
    client: &ClientInner,
    acquisition: &Acquisition,
) -> Result<TransferredLease> {
    let handed_on = renew_and_drain(client, acquisition).await?;
    client.apply(acquisition, AcquisitionEvent::Transfer);
    Ok(handed_on)
}

/// Renews the lease to its full length, and waits until the server can carry out no earlier call of
/// the acquisition. A late acquire would find that the acquisition does not hold the lock, and
/// would acquire the lock again, or join the queue, without a client that tracks it.
///
/// It does not wait longer for a server whose clock was set back, or is behind after the slot has
/// moved to it. That server may carry out a late acquire. No client uses the lease or the place
/// that the acquire gets, and it expires.
pub(crate) async fn renew_and_drain(
    client: &ClientInner,
    acquisition: &Acquisition,
) -> Result<TransferredLease> {
    let mut certain_after = None;
    loop {
        let confirmed = manual_renewal::renew(client, acquisition).await?;
        let server_now = confirmed.server_now;
        let held = acquisition
            .with_lease(|held| (held.mode, held.token, held.in_doubt(), held.requested_lease()));
        let Some((mode, token, in_doubt, lease)) = held else {
            return Err(acquisition
                .lock
                .add_context(client.failure_or(AcquisitionError::LeaseLost))); // the client was shut down
        };
        let ends =
            || in_doubt.map_or(0, |doubt| doubt.latest_server_time(server_now, confirmed.sent_at));
        let after = *certain_after.get_or_insert_with(ends);
        let is_settled = in_doubt.is_none_or(|doubt| confirmed.sent_at >= doubt.settled_at());
        if server_now > after || is_settled {
            let (id, deadline) = (acquisition.id, confirmed.grant.deadline);
            return Ok(TransferredLease { mode, id, token, deadline });
        }
        // Nobody else may renew the lease.
        let left = Duration::from_millis((after - server_now).saturating_add(1)).min(lease / 3);
        let due = client.clock.now().saturating_add(left);
        let settled_at = in_doubt.map_or(due, |doubt| doubt.settled_at());
        client.clock.sleep_until(due.min(settled_at)).await;
    }
}
