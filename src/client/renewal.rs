//! A renewal by the caller, besides those of the worker.

use crate::client::Client;
use crate::client::acquisition::{Acquisition, Event, Holding, Next, lost};
use crate::client::reply::{Told, read};
use crate::clock::Moment;
use crate::error::Result;
use crate::protocol::{Grant, Renew, Renewed};

/// The server's answer to a renewal that succeeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub(crate) grant: Grant,
    /// By the server's clock, ms.
    pub(crate) server_now: u64,
    pub(crate) sent: Moment,
}

/// Extends the lease to its requested length, counted from now.
///
/// If the future is dropped, the server may or may not carry out the renewal. The lease here is
/// unchanged.
pub(crate) async fn renew(client: &Client, acquisition: &Acquisition) -> Result<Confirmed> {
    let lock = &acquisition.lock;
    let now = client.clock.now();
    let sending = |holding: &Holding| {
        let sent = (holding.renew(now), holding.replicas(), holding.ends);
        holding.is_held(now).then_some(sent)
    };
    let Some((renew, replicas, ends)) = acquisition.holding(sending).flatten() else {
        return Err(lock.with_lock(client.failure_or(lost())));
    };
    let until = ends.min(now.after(client.settings.call_timeout));
    let send = async |renew: Renew| {
        let call = renew.call(client.scripts, acquisition.id, lock);
        read(client.router.call_replicated(&call, replicas, until).await, Renewed::read)
    };
    let mut outcome = send(renew).await;
    if let Ok(Told { what: Renewed::Other(grant), .. }) = &outcome
        && let Some(renew) =
            acquisition.holding(|held| held.renew_upgrade(grant.token, now)).flatten()
    {
        outcome = send(renew).await;
    }
    let confirmed = match &outcome {
        Ok(Told { what: Renewed::Held(grant), envelope, sent, .. }) => {
            Some(Confirmed { grant: *grant, server_now: envelope.now, sent: *sent })
        }
        _ => None,
    };
    let is_held = || acquisition.holding(|held| held.is_held(client.clock.now())) == Some(true);
    match (client.on(acquisition, Event::Renewed(outcome)).next, confirmed) {
        (Some(Next::Failed(error)), _) => Err(lock.with_lock(client.failure_or(error))),
        (_, Some(confirmed)) if is_held() => Ok(confirmed),
        _ => Err(lock.with_lock(client.failure_or(lost()))),
    }
}
