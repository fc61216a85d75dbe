//! The one task of a client: renews, ends, changes and releases leases, hears of grants. It never
//! waits for one server: what it sends is grouped by node and sent by itself, and each answer
//! counts as it comes.

mod change;
mod push;
mod release;
mod renew;
mod reply;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::client::Client;
use crate::client::acquisition::{Acquisition, Holding, State, TransitionKind};
use crate::clock::Moment;
use crate::node::Address;
use crate::protocol::{Envelope, LockKey, pump, pumped};

pub(crate) use push::listen;
pub(crate) use release::ended;
pub(crate) use renew::{apply_renewal, notice_loss, refusal, take_loss};

/// What is due within this time goes out together.
const HORIZON: Duration = Duration::from_millis(20);

/// The most calls in one batch.
const BATCH: usize = 512;

/// How long the worker sleeps when nothing is due.
const IDLE: Duration = Duration::from_secs(10);

type Dispatch = BoxFuture<'static, ()>;

/// Runs until the client's last handle and its last acquisition are gone.
pub(crate) async fn run(client: Arc<Client>) {
    let mut batches: FuturesUnordered<Dispatch> = FuturesUnordered::new();
    let mut tidy_at = client.clock.now().after(IDLE);
    loop {
        let now = client.clock.now();
        let work = client.take_work(now.after(HORIZON));
        send_due(&client, work.due, now, &batches);
        for lock in work.pumps {
            batches.push(Box::pin(go_on(client.clone(), lock)));
        }
        if now >= tidy_at {
            client.drop_idle_subscriptions();
            tidy_at = now.after(IDLE);
        }
        if work.finished && batches.is_empty() {
            break;
        }
        let sleep = client.clock.sleep_until(client.sleep_until(tidy_at));
        tokio::select! {
            biased;
            Some(()) = batches.next(), if !batches.is_empty() => {}
            () = client.wake.notified() => {}
            () = sleep => {}
        }
    }
    client.router.close().await;
}

/// What is sent for an acquisition; calls of one kind to one server are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Renewal,
    /// So many replicas must confirm it.
    ConfirmedRenewal(u32),
    EndOfWait,
    Downgrade,
    GiveBack,
    Release,
}

fn send_due(
    client: &Arc<Client>,
    due: Vec<Arc<Acquisition>>,
    now: Moment,
    batches: &FuturesUnordered<Dispatch>,
) {
    let mut groups: BTreeMap<(Kind, Option<Address>), Vec<Arc<Acquisition>>> = BTreeMap::new();
    for acquisition in due {
        let id = client.router.master_of(acquisition.lock.slot);
        for kind in look(client, &acquisition, now).into_iter().flatten() {
            let group = groups.entry((kind, id.clone())).or_default();
            group.push(acquisition.clone());
        }
    }
    for ((kind, _), group) in groups {
        for batch in group.chunks(BATCH) {
            batches.push(dispatch(kind, client.clone(), batch.to_vec()));
        }
    }
}

fn dispatch(kind: Kind, client: Arc<Client>, batch: Vec<Arc<Acquisition>>) -> Dispatch {
    match kind {
        Kind::Renewal => Box::pin(renew::renew(client, batch)),
        Kind::ConfirmedRenewal(replicas) => {
            Box::pin(renew::renew_confirmed(client, batch, replicas))
        }
        Kind::EndOfWait => Box::pin(change::end_waits(client, batch)),
        Kind::Downgrade => Box::pin(change::downgrade(client, batch)),
        Kind::GiveBack => Box::pin(change::give_back(client, batch)),
        Kind::Release => Box::pin(release::release(client, batch)),
    }
}

/// Looks at what is due, and says what to send.
fn look(client: &Client, acquisition: &Acquisition, now: Moment) -> [Option<Kind>; 2] {
    let mut state = acquisition.state();
    match &mut *state {
        State::Held(holding) if holding.releasing => [None; 2],
        State::Held(holding) if holding.lost => {
            let change = due_change(holding, now.after(HORIZON));
            let due =
                holding.pending.as_ref().filter(|pending| !pending.sent).map(|pending| pending.due);
            drop(state);
            if let Some(due) = due {
                client.schedule(acquisition, due);
            }
            [None, change]
        }
        State::Held(holding) if !holding.is_held(now) => {
            renew::lose(client, acquisition, state, now);
            [None; 2]
        }
        State::Held(holding) => {
            let horizon = now.after(HORIZON);
            let mut renewal = None;
            if !holding.renewing && holding.renew_at.is_some_and(|at| at <= horizon) {
                if holding.renewals.go_on(now) {
                    holding.renewing = true;
                    renewal = Some(match holding.replicas {
                        0 => Kind::Renewal,
                        replicas => Kind::ConfirmedRenewal(replicas),
                    });
                } else {
                    holding.renew_at = None;
                }
            }
            let change = due_change(holding, horizon);
            let next = holding.next_due();
            drop(state);
            client.schedule(acquisition, next);
            [renewal, change]
        }
        State::Releasing(releasing) if now >= releasing.give_up => {
            drop(state);
            client.forget(acquisition);
            [None; 2]
        }
        State::Releasing(releasing) if releasing.sent => [None; 2],
        State::Releasing(releasing) if releasing.due <= now.after(HORIZON) => {
            releasing.sent = true;
            [Some(Kind::Release), None]
        }
        State::Releasing(releasing) => {
            let due = releasing.due;
            drop(state);
            client.schedule(acquisition, due);
            [None; 2]
        }
        State::Acquiring(_) | State::Ended => [None; 2],
    }
}

/// The change of a lease that is to be sent by then, if one is; it counts as sent from here on.
fn due_change(holding: &mut Holding, horizon: Moment) -> Option<Kind> {
    let pending = holding.pending.as_mut();
    let pending = pending.filter(|pending| !pending.sent && pending.due <= horizon)?;
    (pending.sent, pending.tried) = (true, true);
    Some(match pending.kind {
        TransitionKind::EndWait => Kind::EndOfWait,
        TransitionKind::Downgrade => Kind::Downgrade,
        TransitionKind::GiveBack => Kind::GiveBack,
    })
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
            _ => return, // what is still left is found by the head of the queue when it polls
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    #![allow(clippy::disallowed_methods)]

    use super::*;
    use crate::embedded::Engine;
    use crate::{ErrorKind, LeaseState, Locks};

    /// Whoever changes a lease has the worker look at it, also if it was given up at that moment
    /// and its release is on its way.
    #[tokio::test(start_paused = true)]
    async fn a_release_on_its_way_is_not_sent_again() {
        let engine = Engine::builder().masters(1).replicas(0).build();
        let locks = Locks::builder().connect_embedded(&engine).await.unwrap();
        let guard = locks.rwlock("releasing").unwrap().write().await.unwrap();
        let acquisition = guard.acquisition.clone();
        engine.faults().pause(0);
        engine.reset_tally();
        drop(guard);
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(20)).await; // within the time of one attempt
            locks.client.0.schedule(&acquisition, locks.client.0.clock.now());
        }
        assert!(matches!(&*acquisition.state(), State::Releasing(releasing) if releasing.sent));
        engine.faults().resume(0);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(matches!(&*acquisition.state(), State::Ended));
        assert_eq!(engine.tally().scripts, 1);
    }

    /// Where replicas have to confirm a lease, a renewal that too few of them confirm makes it no
    /// longer.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_no_replica_confirms_does_not_count() {
        let engine = Engine::builder().masters(1).build();
        let locks = Locks::builder().connect_embedded(&engine).await.unwrap();
        let lease = Duration::from_secs(9);
        let lock = locks.rwlock("confirmed").unwrap();
        let guard = lock.write().lease(lease).replicas(1).await.unwrap();
        let ends = || guard.acquisition.with_holding(|holding| holding.ends).unwrap();
        let first = ends();
        engine.faults().hold_back(1);
        tokio::time::sleep(lease / 2).await;
        assert_eq!((guard.state(), ends()), (LeaseState::Uncertain, first));
        let error = guard.renew().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(ends(), first);
        engine.faults().catch_up(1);
        tokio::time::sleep(lease / 6).await;
        assert_eq!(guard.state(), LeaseState::Held);
        assert!(ends() > first);
    }
}
