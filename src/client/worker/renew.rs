//! Renewals, and the end of leases that were not renewed in time.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures::future::join_all;

use super::reply::{Told, read};
use crate::client::acquisition::{Acquisition, PendingTransition, State, TransitionKind};
use crate::client::deadline;
use crate::client::lost::Loss;
use crate::client::telemetry;
use crate::client::{Client, RELEASE_GRACE};
use crate::clock::Moment;
use crate::error::Error;
use crate::protocol::{Renew, Renewed};
use crate::router::{Answer, Call, CallError, Reason};

pub(super) async fn renew(client: Arc<Client>, batch: Vec<Arc<Acquisition>>) {
    let now = client.clock.now();
    let (calls, until) = calls(&client, &batch, now);
    client
        .router
        .each(&calls, until, |at, result| apply_renewal(&client, &batch[at], result))
        .await;
}

/// As `renew`, where replicas must confirm it: the connections for that make groups of what comes
/// together.
pub(super) async fn renew_confirmed(
    client: Arc<Client>,
    batch: Vec<Arc<Acquisition>>,
    replicas: u32,
) {
    let now = client.clock.now();
    let (calls, until) = calls(&client, &batch, now);
    let (client, router) = (&client, &client.router);
    join_all(batch.iter().zip(&calls).map(|(acquisition, call)| async move {
        let result = router.call_replicated(call, replicas, until).await;
        apply_renewal(client, acquisition, result);
    }))
    .await;
}

/// The calls, and until when they are of use: a renewal that comes late is of none, but nothing
/// waits for it either.
fn calls(client: &Client, batch: &[Arc<Acquisition>], now: Moment) -> (Vec<Call>, Moment) {
    let mut latest = now;
    let calls = batch.iter().map(|acquisition| {
        let lease = acquisition.with_holding(|holding| {
            latest = latest.max(holding.ends);
            holding.renewals.lease(now, holding.lease)
        });
        let renew = Renew {
            id: acquisition.id,
            // If it was let go meanwhile: never shorter, so this changes nothing.
            lease: lease.unwrap_or(Duration::from_millis(1)),
        };
        renew.call(client.scripts, &acquisition.lock)
    });
    (calls.collect(), latest.min(now.after(client.settings.call_timeout)))
}

/// Takes in what a renewal came to, and has the worker look again when it must.
pub(crate) fn apply_renewal(
    client: &Client,
    acquisition: &Acquisition,
    result: Result<Answer, CallError>,
) {
    let now = client.clock.now();
    let mut state = acquisition.state();
    let State::Held(holding) = &mut *state else {
        return;
    };
    holding.renewing = false;
    if holding.lost || holding.releasing {
        return;
    }
    if !holding.is_held(now) {
        // Somebody may have seen that it was lost by now: so it stays, whatever the server says.
        return lose(client, acquisition, state, now);
    }
    let told = read(result, Renewed::read);
    if let Ok(told) = &told
        && told.envelope.more
    {
        client.pump(&acquisition.lock);
    }
    let failure = match told {
        Ok(Told { what: Renewed::Held(grant) | Renewed::Revoked(grant), sent, node, .. })
            if !holding.is_named_by(grant.token, sent) =>
        {
            telemetry::renewed(&acquisition.lock, holding.mode, &node, "lost", now.since(sent));
            holding.replaced = true;
            return lose(client, acquisition, state, now);
        }
        Ok(Told { what: Renewed::Held(grant), envelope, sent, node, confirmed })
            if confirmed >= holding.replicas =>
        {
            telemetry::renewed(&acquisition.lock, holding.mode, &node, "held", now.since(sent));
            holding.failing = false;
            holding.renewals.count_one();
            let ends = deadline::ends(grant, envelope.now, sent, holding.margin);
            holding.prolong(ends);
            let next = deadline::renew_at(sent, holding.lease, fastrand::f64());
            holding.renew_at = holding.renewals.go_on(next).then_some(next);
            None
        }
        Ok(Told { what: Renewed::Held(_), confirmed, .. }) => {
            Some(format!("{confirmed} of {} replicas confirmed it", holding.replicas))
        }
        Ok(Told { what: Renewed::Revoked(_), sent, node, .. }) => {
            telemetry::renewed(&acquisition.lock, holding.mode, &node, "revoked", now.since(sent));
            (holding.revoked, holding.renew_at) = (true, None);
            acquisition.changed.notify_waiters();
            None
        }
        Ok(Told { what: Renewed::Lost, sent, node, .. }) => {
            telemetry::renewed(&acquisition.lock, holding.mode, &node, "lost", now.since(sent));
            return lose(client, acquisition, state, now);
        }
        Err(failure) => Some(failure.to_string()),
    };
    if let Some(why) = failure {
        telemetry::renewal_failed(&acquisition.lock, holding.mode, &why);
        holding.failing = true;
        holding.renew_at = holding
            .renewals
            .go_on(now)
            .then(|| deadline::retry_at(now, holding.lease, fastrand::f64()));
        acquisition.changed.notify_waiters();
    }
    let due = holding.next_due();
    drop(state);
    client.schedule(acquisition, due);
}

/// Of a lease that has ended before the worker looked: it was lost all the same.
pub(crate) fn notice_loss(client: &Client, acquisition: &Acquisition, now: Moment) {
    let state = acquisition.state();
    if let State::Held(holding) = &*state
        && !holding.releasing
        && !holding.is_held(now)
    {
        lose(client, acquisition, state, now);
    }
}

/// The server says that it has no lease with this token: if it has another one of this acquisition,
/// that is released.
pub(crate) fn take_loss(client: &Client, acquisition: &Acquisition) {
    let now = client.clock.now();
    let mut state = acquisition.state();
    if let State::Held(holding) = &mut *state
        && !holding.releasing
        && !holding.lost
    {
        holding.replaced = true;
        lose(client, acquisition, state, now);
    }
}

/// The lease is lost for good: tells all who want to know, and has what took its place released.
pub(super) fn lose(
    client: &Client,
    acquisition: &Acquisition,
    mut state: MutexGuard<'_, State>,
    now: Moment,
) {
    let State::Held(holding) = &mut *state else {
        return;
    };
    if holding.lost {
        return;
    }
    holding.lost = true;
    holding.in_doubt = holding.in_doubt();
    let replaced = holding.replaced;
    let over = acquisition.over(holding, now);
    let give_back = replaced.then(|| {
        let mut pending = PendingTransition::new(TransitionKind::GiveBack, now, holding.in_doubt);
        pending.give_up = Some(over.after(RELEASE_GRACE));
        pending
    });
    (holding.upgrade, holding.pending) = (None, give_back);
    let lock = &acquisition.lock;
    let outcome = if now < holding.ends { "taken" } else { "expired" };
    let loss = Loss {
        lock: lock.name.clone(),
        slot: lock.slot,
        mode: holding.mode,
        token: holding.token,
        held: now.since(holding.since),
    };
    drop(state);
    telemetry::lost(&loss, outcome);
    acquisition.tell_end();
    client.settings.on_lost.tell(&loss);
    if replaced {
        client.schedule(acquisition, now);
    }
}

/// Why a lease was not made longer by a call of its holder, if it was not.
pub(crate) fn refusal(result: &Result<Answer, CallError>, replicas: u32) -> Option<Error> {
    match result {
        Ok(answer) if answer.confirmed < replicas => {
            Some(crate::client::acquire::too_few_replicas(answer.confirmed, replicas))
        }
        Ok(_) => None,
        Err(CallError { reason: Reason::Refused(said), .. }) => Some(said.clone().into()),
        Err(error) => Some(Error::new(crate::error::ErrorKind::Unavailable, error.to_string())),
    }
}
