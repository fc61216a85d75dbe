//! A renewal that a caller makes, beside those of the worker.

use crate::client::Client;
use crate::client::acquisition::{Acquisition, Event, Holding, Next, lost};
use crate::client::reply::read;
use crate::error::Result;
use crate::protocol::Renewed;

/// Makes the lease as long again as it was requested, counted from now.
///
/// Dropped, the renewal may or may not be carried out; the lease here is as it was.
pub(crate) async fn renew(client: &Client, acquisition: &Acquisition) -> Result<()> {
    let lock = &acquisition.lock;
    let now = client.clock.now();
    let sending = |holding: &Holding| {
        let sent = (holding.renew(now), holding.replicas(), holding.ends);
        holding.is_held(now).then_some(sent)
    };
    let Some((renew, replicas, ends)) = acquisition.holding(sending).flatten() else {
        return Err(lock.with_lock(lost()));
    };
    let call = renew.call(client.scripts, acquisition.id, lock);
    let until = ends.min(now.after(client.settings.call_timeout));
    let result = client.router.call_replicated(&call, replicas, until).await;
    let outcome = read(result, Renewed::read);
    let is_held = || acquisition.holding(|held| held.is_held(client.clock.now())) == Some(true);
    match client.on(acquisition, Event::Renewed(outcome)).next {
        Some(Next::Failed(error)) => Err(lock.with_lock(error)),
        _ if is_held() => Ok(()),
        _ => Err(lock.with_lock(lost())),
    }
}
