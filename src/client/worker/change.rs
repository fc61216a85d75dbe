//! Leases that are changed in the background: waits for an upgrade that are over, and downgrades.

use std::sync::Arc;

use super::release::{AGAIN, doubt_ends, releases};
use super::renew::take_loss;
use super::reply::{Failure, Told, read};
use crate::client::Client;
use crate::client::acquisition::{Acquisition, PendingTransition, State, TransitionKind};
use crate::client::deadline;
use crate::client::telemetry;
use crate::clock::Moment;
use crate::protocol::{Downgrade, Ended, Mode, Release, Renewed};
use crate::router::{Answer, CallError};

pub(super) async fn end_waits(client: Arc<Client>, batch: Vec<Arc<Acquisition>>) {
    end(client, batch, TransitionKind::EndWait).await;
}

/// Releases what took the place of lost leases.
pub(super) async fn give_back(client: Arc<Client>, batch: Vec<Arc<Acquisition>>) {
    end(client, batch, TransitionKind::GiveBack).await;
}

async fn end(client: Arc<Client>, batch: Vec<Arc<Acquisition>>, kind: TransitionKind) {
    let calls = releases(&client, &batch, kind == TransitionKind::EndWait);
    let until = client.clock.now().after(client.settings.call_timeout);
    client
        .router
        .each(&calls, until, |at, result| apply_end(&client, &batch[at], kind, result))
        .await;
}

pub(super) async fn downgrade(client: Arc<Client>, batch: Vec<Arc<Acquisition>>) {
    let now = client.clock.now();
    let calls: Vec<_> = batch
        .iter()
        .map(|acquisition| {
            let held = acquisition.with_holding(|holding| {
                (holding.token, holding.renewals.lease(now, holding.lease))
            });
            let (token, lease) = held.unwrap_or((1, AGAIN)); // let go meanwhile: no such token, nothing is done
            let id = acquisition.id;
            Downgrade { id, token, lease }.call(client.scripts, &acquisition.lock)
        })
        .collect();
    let until = now.after(client.settings.call_timeout);
    client
        .router
        .each(&calls, until, |at, result| apply_downgrade(&client, &batch[at], result))
        .await;
}

fn apply_end(
    client: &Client,
    acquisition: &Acquisition,
    kind: TransitionKind,
    result: Result<Answer, CallError>,
) {
    let now = client.clock.now();
    let told = read(result, Release::read);
    let mut state = acquisition.state();
    let State::Held(holding) = &mut *state else {
        return;
    };
    let pending = holding.pending.as_mut();
    // The lease may have been lost meanwhile, and owe something else.
    let Some(pending) = pending.filter(|pending| pending.kind == kind) else {
        return;
    };
    pending.sent = false;
    match told {
        Ok(Told { what: Ended::Writing(grant), .. }) => {
            (holding.token, holding.token_since) = (grant.token, now);
            holding.pending = Some(PendingTransition::new(TransitionKind::Downgrade, now, None));
        }
        Ok(Told { envelope, sent, .. }) => {
            if envelope.more {
                client.pump(&acquisition.lock);
            }
            match doubt_ends(&mut pending.in_doubt_until, pending.in_doubt, envelope.now, sent, now)
            {
                Some(due) => pending.due = due,
                None => holding.pending = None,
            }
        }
        Err(_) if pending.give_up.is_some_and(|give_up| now >= give_up) => holding.pending = None,
        Err(failure) => put_off(acquisition, pending, &failure, now),
    }
    let due = holding.next_due();
    drop(state);
    acquisition.changed.notify_waiters();
    client.schedule(acquisition, due);
}

fn apply_downgrade(client: &Client, acquisition: &Acquisition, result: Result<Answer, CallError>) {
    let now = client.clock.now();
    let told = read(result, Renewed::read);
    let mut state = acquisition.state();
    let State::Held(holding) = &mut *state else {
        return;
    };
    let pending = holding.pending.as_mut();
    let Some(pending) = pending.filter(|pending| pending.kind == TransitionKind::Downgrade) else {
        return;
    };
    pending.sent = false;
    match told {
        Ok(Told {
            what: Renewed::Held(grant) | Renewed::Revoked(grant), envelope, sent, ..
        }) => {
            if envelope.more {
                client.pump(&acquisition.lock);
            }
            (holding.mode, holding.pending) = (Mode::Read, None);
            // Where replicas have to confirm a lease, the next renewal makes it longer.
            if holding.replicas == 0 && holding.is_held(now) {
                let ends = deadline::ends(grant, envelope.now, sent, holding.margin);
                holding.prolong(ends);
            }
        }
        Ok(Told { what: Renewed::Lost, .. }) => {
            drop(state);
            return take_loss(client, acquisition);
        }
        Err(failure) => put_off(acquisition, pending, &failure, now),
    }
    let due = holding.next_due();
    drop(state);
    acquisition.changed.notify_waiters();
    client.schedule(acquisition, due);
}

fn put_off(
    acquisition: &Acquisition,
    pending: &mut PendingTransition,
    failure: &Failure,
    now: Moment,
) {
    if let Failure::Final(error) = failure {
        telemetry::change_refused(&acquisition.lock, error);
    }
    pending.due = now.after(AGAIN);
}
