//! The one task of a client: renews, ends and releases leases, hears of grants. It never waits for one server: what it sends
//! is grouped by node and flies on its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::acquisition::{Acquisition, Holding, Leaving, Pushed, State};
use crate::client::Client;
use crate::clock::Moment;
use crate::core::lease;
use crate::node::Address;
use crate::protocol::{BadReply, Ended, Envelope, LockKey, Push, Release, Renew, Renewed, pump, pumped};
use crate::router::{Answer, Call, CallError, Event, Reason};

/// What is due within this time goes out together.
const HORIZON: Duration = Duration::from_millis(20);

/// The most calls that fly as one, so that a long list does not delay the answers of its own head.
const FLIGHT: usize = 512;

/// How long the worker sleeps when nothing is due.
const IDLE: Duration = Duration::from_secs(10);

/// How soon a release that had no answer is sent again.
const LEAVE_AGAIN: Duration = Duration::from_millis(500);

/// Added to the moment until which a lost attempt can be carried out: bounds of a server's clock differ by a little.
const GHOST_SLACK_MS: u64 = 1_000;

type Flight = BoxFuture<'static, ()>;

/// Runs until the client's last handle and its last acquisition are gone.
pub(crate) async fn run(client: Arc<Client>, mut events: mpsc::UnboundedReceiver<Event>) {
    let mut flights: FuturesUnordered<Flight> = FuturesUnordered::new();
    loop {
        let now = client.clock.now();
        let work = client.take_work(now.after(HORIZON));
        send_due(&client, work.due, now, &flights);
        for lock in work.pumps {
            flights.push(Box::pin(go_on(client.clone(), lock)));
        }
        client.drop_idle_subscriptions();
        if work.finished && flights.is_empty() {
            break;
        }
        let sleep = client.clock.sleep_until(client.sleep_until(now.after(IDLE)));
        tokio::select! {
            biased;
            Some(()) = flights.next(), if !flights.is_empty() => {}
            Some(event) = events.recv() => hear(&client, event),
            () = client.wake.notified() => {}
            () = sleep => {}
        }
    }
    client.router.close().await;
}

/// What is owed for one acquisition.
enum Owed {
    Renewal,
    Release,
}

fn send_due(client: &Arc<Client>, due: Vec<Arc<Acquisition>>, now: Moment, flights: &FuturesUnordered<Flight>) {
    let mut renewals: BTreeMap<Option<Address>, Vec<Arc<Acquisition>>> = BTreeMap::new();
    let mut releases: BTreeMap<Option<Address>, Vec<Arc<Acquisition>>> = BTreeMap::new();
    for acquisition in due {
        let group = match owed(client, &acquisition, now) {
            Some(Owed::Renewal) => &mut renewals,
            Some(Owed::Release) => &mut releases,
            None => continue,
        };
        group
            .entry(client.router.owner(acquisition.lock.slot))
            .or_default()
            .push(acquisition);
    }
    for group in renewals.into_values() {
        for flight in group.chunks(FLIGHT) {
            flights.push(Box::pin(renew(client.clone(), flight.to_vec())));
        }
    }
    for group in releases.into_values() {
        for flight in group.chunks(FLIGHT) {
            flights.push(Box::pin(leave(client.clone(), flight.to_vec())));
        }
    }
}

/// Looks at what is due, and says what to send.
fn owed(client: &Client, acquisition: &Acquisition, now: Moment) -> Option<Owed> {
    let mut state = acquisition.state();
    match &mut *state {
        State::Held(holding) if !holding.is_held(now) => {
            lose(acquisition, holding, now);
            None
        }
        State::Held(holding) => {
            let due = holding.renew_at.is_some_and(|at| at <= now.after(HORIZON));
            if due && !holding.renewing && holding.renewals.go_on(now) {
                holding.renewing = true;
                return Some(Owed::Renewal);
            }
            let next = holding
                .renew_at
                .filter(|at| !due && *at < holding.ends)
                .unwrap_or(holding.ends);
            drop(state);
            client.schedule(acquisition, next);
            None
        }
        State::Leaving(leaving) if now >= leaving.give_up => {
            drop(state);
            client.forget(acquisition);
            None
        }
        State::Leaving(leaving) if leaving.due <= now.after(HORIZON) => Some(Owed::Release),
        State::Leaving(_) | State::Asking(_) | State::Ended => None,
    }
}

fn lose(acquisition: &Acquisition, holding: &mut Holding, now: Moment) {
    if holding.lost {
        return;
    }
    holding.lost = true;
    let held = now.since(holding.since).as_secs_f64();
    let name = &acquisition.lock.name;
    warn!(name: "rwlease.lost", lock = %name, slot = %acquisition.lock.slot, token = holding.token, held);
    acquisition.changed.notify_waiters();
}

async fn renew(client: Arc<Client>, flight: Vec<Arc<Acquisition>>) {
    let now = client.clock.now();
    let mut latest = now;
    let calls: Vec<Call> = flight
        .iter()
        .map(|acquisition| {
            let lease = match &*acquisition.state() {
                State::Held(holding) => {
                    latest = latest.max(holding.ends);
                    holding.renewals.lease(now, holding.lease)
                }
                _ => Duration::from_millis(1), // let go meanwhile: never shorter, so this changes nothing
            };
            Renew {
                owner: acquisition.owner,
                lease,
            }
            .call(client.scripts, &acquisition.lock)
        })
        .collect();
    // A renewal that is late is of no use, but nothing waits for it either.
    let until = latest.min(now.after(client.settings.call_timeout));
    let results = client.router.batch(&calls, until).await;
    for (acquisition, result) in flight.iter().zip(results) {
        apply_renewal(&client, acquisition, result);
    }
}

/// Takes in what a renewal came to, and has the worker look again when it must.
pub(crate) fn apply_renewal(client: &Client, acquisition: &Acquisition, result: Result<Answer, CallError>) {
    let now = client.clock.now();
    let mut state = acquisition.state();
    let State::Held(holding) = &mut *state else { return };
    holding.renewing = false;
    match read(result, Renewed::read) {
        Ok((answer, envelope, renewed)) => {
            holding.failing = false;
            match renewed {
                Renewed::Held(grant) => {
                    holding.renewals.count_one();
                    holding.ends = holding
                        .ends
                        .max(lease::ends(grant, envelope.now, answer.sent, holding.margin));
                    let next = lease::renew_at(answer.sent, holding.lease, fastrand::f64());
                    holding.renew_at = holding.renewals.go_on(next).then_some(next);
                }
                Renewed::Revoked(_) => {
                    (holding.revoked, holding.renew_at) = (true, None);
                    acquisition.changed.notify_waiters();
                }
                Renewed::Lost => lose(acquisition, holding, now),
            }
            if envelope.more {
                client.pump(&acquisition.lock);
            }
        }
        Err(error) => {
            debug!(name: "rwlease.renew", lock = %acquisition.lock.name, outcome = "failed", %error);
            holding.failing = true;
            holding.renew_at = Some(lease::retry_at(now, holding.lease, fastrand::f64()));
            acquisition.changed.notify_waiters();
        }
    }
    if !holding.lost {
        let due = holding.renew_at.map_or(holding.ends, |at| at.min(holding.ends));
        drop(state);
        client.schedule(acquisition, due);
    }
}

async fn leave(client: Arc<Client>, flight: Vec<Arc<Acquisition>>) {
    let calls: Vec<Call> = flight
        .iter()
        .map(|one| {
            Release {
                owner: one.owner,
                only_wait: false,
            }
            .call(client.scripts, &one.lock)
        })
        .collect();
    let until = client.clock.now().after(client.settings.call_timeout);
    let results = client.router.batch(&calls, until).await;
    for (acquisition, result) in flight.iter().zip(results) {
        let next = {
            let mut state = acquisition.state();
            let State::Leaving(leaving) = &mut *state else { continue };
            left(&client, &acquisition.lock, leaving, result).then_some(leaving.due)
        };
        match next {
            Some(due) => client.schedule(acquisition, due),
            None => client.forget(acquisition),
        }
    }
}

/// Takes in the answer to a release. True if another must follow, at `leaving.due`.
fn left(client: &Client, lock: &LockKey, leaving: &mut Leaving, result: Result<Answer, CallError>) -> bool {
    let now = client.clock.now();
    match read(result, Release::read) {
        Ok((answer, envelope, _)) => {
            if envelope.more {
                client.pump(lock);
            }
            // An attempt to acquire that had no answer may still be under way: a release after it must follow.
            let ghost_until = leaving.ghost_until.or_else(|| {
                let loose = leaving.loose?.since(answer.sent);
                Some(envelope.now + loose.as_millis() as u64 + GHOST_SLACK_MS)
            });
            leaving.ghost_until = ghost_until;
            match ghost_until {
                Some(until) if envelope.now <= until => {
                    leaving.due = now.after(Duration::from_millis(until - envelope.now + 1));
                    leaving.give_up = leaving.give_up.max(leaving.due.after(client.settings.call_timeout));
                    true
                }
                _ => false,
            }
        }
        Err(Failure::Final(error)) => {
            warn!(name: "rwlease.release", lock = %lock.name, outcome = "refused", %error);
            leaving.due = now.after(LEAVE_AGAIN);
            true
        }
        Err(Failure::Passing) => {
            leaving.due = now.after(LEAVE_AGAIN);
            true
        }
    }
}

/// Sends `pump` until nothing is left over.
async fn go_on(client: Arc<Client>, lock: LockKey) {
    loop {
        let until = client.clock.now().after(client.settings.call_timeout);
        match client
            .router
            .call(&pump(client.scripts, &lock), until)
            .await
            .map(|answer| pumped(answer.reply))
        {
            Ok(Ok(Envelope { more: true, .. })) => {}
            _ => return, // what is still left is found by the head of the queue when it looks
        }
    }
}

fn hear(client: &Arc<Client>, event: Event) {
    match event {
        Event::Look { slot } => {
            for acquisition in client.in_slot(slot) {
                if let State::Asking(asking) = &mut *acquisition.state() {
                    asking.look = true;
                    acquisition.changed.notify_one();
                }
            }
        }
        Event::Message {
            address,
            payload,
            received,
            ..
        } => {
            let Some(push) = Push::read(&payload) else { return };
            for (owner, grant) in &push.grants {
                let Some(acquisition) = client.find(owner) else {
                    continue;
                };
                if let State::Asking(asking) = &mut *acquisition.state() {
                    let from = address.clone();
                    asking.pushed = Some(Pushed {
                        grant: *grant,
                        now: push.now,
                        received,
                        from,
                    });
                    acquisition.changed.notify_one();
                }
                if push.more {
                    client.pump(&acquisition.lock);
                }
            }
        }
    }
}

/// A call that told nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no answer")]
    Passing,
    #[error("{0}")]
    Final(crate::Error),
}

fn read<T>(
    result: Result<Answer, CallError>,
    reader: impl FnOnce(crate::node::Reply) -> Result<(Envelope, T), BadReply>,
) -> Result<(AnswerTimes, Envelope, T), Failure> {
    match result {
        Ok(Answer { reply, sent, .. }) => {
            let (envelope, told) = reader(reply).map_err(|bad| Failure::Final(bad.into()))?;
            Ok((AnswerTimes { sent }, envelope, told))
        }
        Err(error) if matches!(error.reason, Reason::Refused(_) | Reason::Garbled(_)) => {
            Err(Failure::Final(error.into()))
        }
        Err(_) => Err(Failure::Passing),
    }
}

struct AnswerTimes {
    sent: Moment,
}

/// How the release of a lease went, told to the one who waits for it.
pub(crate) fn ended(result: Result<Answer, CallError>) -> Result<(Envelope, Ended, bool), CallError> {
    let answer = result?;
    let retried = answer.loose.is_some();
    match Release::read(answer.reply) {
        Ok((envelope, ended)) => Ok((envelope, ended, retried)),
        Err(bad) => {
            let reason = match bad {
                BadReply::Error(said) => Reason::Refused(said),
                BadReply::Garbled(what) => Reason::Garbled(what),
            };
            Err(CallError {
                reason,
                loose: None,
                last: None,
            })
        }
    }
}
