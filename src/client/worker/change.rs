//! Leases that are changed in the background: waits for an upgrade that are over, and downgrades.

use std::sync::Arc;

use super::release::{AGAIN, ghost_gone, releases};
use super::renew::take_loss;
use super::reply::{Failure, Told, read};
use crate::client::Client;
use crate::client::acquisition::{Acquisition, Errand, ErrandKind, State};
use crate::client::deadline;
use crate::client::telemetry;
use crate::clock::Moment;
use crate::protocol::{Downgrade, Ended, Mode, Release, Renewed};
use crate::router::{Answer, CallError};

pub(super) async fn end_waits(client: Arc<Client>, flight: Vec<Arc<Acquisition>>) {
    end(client, flight, ErrandKind::EndWait).await;
}

/// Releases what took the place of lost leases.
pub(super) async fn give_back(client: Arc<Client>, flight: Vec<Arc<Acquisition>>) {
    end(client, flight, ErrandKind::GiveBack).await;
}

async fn end(client: Arc<Client>, flight: Vec<Arc<Acquisition>>, kind: ErrandKind) {
    let calls = releases(&client, &flight, kind == ErrandKind::EndWait);
    let until = client.clock.now().after(client.settings.call_timeout);
    client
        .router
        .each(&calls, until, |at, result| {
            apply_end(&client, &flight[at], kind, result)
        })
        .await;
}

pub(super) async fn downgrade(client: Arc<Client>, flight: Vec<Arc<Acquisition>>) {
    let now = client.clock.now();
    let calls: Vec<_> = flight
        .iter()
        .map(|acquisition| {
            let held = acquisition.with_holding(|holding| (holding.token, holding.renewals.lease(now, holding.lease)));
            let (token, lease) = held.unwrap_or((1, AGAIN)); // let go meanwhile: no such token, nothing is done
            let owner = acquisition.owner;
            Downgrade { owner, token, lease }.call(client.scripts, &acquisition.lock)
        })
        .collect();
    let until = now.after(client.settings.call_timeout);
    client
        .router
        .each(&calls, until, |at, result| {
            apply_downgrade(&client, &flight[at], result)
        })
        .await;
}

fn apply_end(client: &Client, acquisition: &Acquisition, kind: ErrandKind, result: Result<Answer, CallError>) {
    let now = client.clock.now();
    let told = read(result, Release::read);
    let mut state = acquisition.state();
    let State::Held(holding) = &mut *state else { return };
    let errand = holding.errand.as_mut();
    // The lease may have been lost meanwhile, and owe something else.
    let Some(errand) = errand.filter(|errand| errand.kind == kind) else {
        return;
    };
    errand.sent = false;
    match told {
        Ok(Told {
            what: Ended::Writing(grant),
            ..
        }) => {
            (holding.token, holding.token_since) = (grant.token, now);
            holding.errand = Some(Errand::new(ErrandKind::Downgrade, now, None));
        }
        Ok(Told { envelope, sent, .. }) => {
            if envelope.more {
                client.pump(&acquisition.lock);
            }
            match ghost_gone(&mut errand.ghost_until, errand.loose, envelope.now, sent, now) {
                Some(due) => errand.due = due,
                None => holding.errand = None,
            }
        }
        Err(_) if errand.give_up.is_some_and(|give_up| now >= give_up) => holding.errand = None,
        Err(failure) => put_off(acquisition, errand, &failure, now),
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
    let State::Held(holding) = &mut *state else { return };
    let errand = holding.errand.as_mut();
    let Some(errand) = errand.filter(|errand| errand.kind == ErrandKind::Downgrade) else {
        return;
    };
    errand.sent = false;
    match told {
        Ok(Told {
            what: Renewed::Held(grant) | Renewed::Revoked(grant),
            envelope,
            sent,
            ..
        }) => {
            if envelope.more {
                client.pump(&acquisition.lock);
            }
            (holding.mode, holding.errand) = (Mode::Read, None);
            // Where replicas have to confirm a lease, the next renewal makes it longer.
            if holding.replicas == 0 && holding.is_held(now) {
                let ends = deadline::ends(grant, envelope.now, sent, holding.margin);
                holding.prolong(ends);
            }
        }
        Ok(Told {
            what: Renewed::Lost, ..
        }) => {
            drop(state);
            return take_loss(client, acquisition);
        }
        Err(failure) => put_off(acquisition, errand, &failure, now),
    }
    let due = holding.next_due();
    drop(state);
    acquisition.changed.notify_waiters();
    client.schedule(acquisition, due);
}

fn put_off(acquisition: &Acquisition, errand: &mut Errand, failure: &Failure, now: Moment) {
    if let Failure::Final(error) = failure {
        telemetry::change_refused(&acquisition.lock, error);
    }
    errand.due = now.after(AGAIN);
}
