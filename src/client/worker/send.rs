//! Sends the worker's calls. Calls of one kind to one server are sent together.

use std::sync::Arc;

use futures::future::join_all;

use crate::client::Client;
use crate::client::acquisition::{Acquisition, Event, Sending};
use crate::client::reply::read;
use crate::clock::Moment;
use crate::protocol::{Holds, Release, Renewed, Shrink};
use crate::router::{Answer, Call, CallError, Priority};

pub(super) type Batch = Vec<(Arc<Acquisition>, Sending)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The number of replicas that must confirm it.
    Renewal(u32),
    Question,
    Downgrade,
    Shrink,
    Release {
        only_wait: bool,
    },
}

impl Kind {
    pub(super) fn of(sending: &Sending) -> Kind {
        match sending {
            Sending::Renew { replicas, .. } => Kind::Renewal(*replicas),
            Sending::Ask { .. } => Kind::Question,
            Sending::Downgrade(_) => Kind::Downgrade,
            Sending::Shrink(_) => Kind::Shrink,
            Sending::Release(Release { only_wait }) => Kind::Release { only_wait: *only_wait },
        }
    }
}

/// Sends a batch, and handles each answer when it arrives.
pub(super) async fn all(client: Arc<Client>, kind: Kind, batch: Batch, now: Moment) {
    let calls: Vec<Call> = batch.iter().map(|(one, sending)| call(&client, one, sending)).collect();
    let latest = now.after(client.settings.call_timeout);
    let until = batch.iter().map(|(_, sending)| of_use_until(sending, latest)).max();
    let until = until.unwrap_or(latest);
    let (client, router) = (&client, &client.router);
    let take_in = |at: usize, result| {
        let (acquisition, sending) = &batch[at];
        client.on(acquisition, answered(sending, result));
    };
    match kind {
        // The connections for replicated calls group calls that arrive together.
        Kind::Renewal(replicas @ 1..) => {
            join_all(calls.iter().enumerate().map(|(at, call)| async move {
                take_in(at, router.call_replicated(call, replicas, until).await);
            }))
            .await;
        }
        Kind::Renewal(0) => router.each(&calls, until, Priority::Renewals, take_in).await,
        _ => router.each(&calls, until, Priority::Normal, take_in).await,
    }
}

fn call(client: &Client, acquisition: &Acquisition, sending: &Sending) -> Call {
    let (scripts, id, lock) = (client.scripts, acquisition.id, &acquisition.lock);
    match sending {
        Sending::Renew { renew, .. } => renew.call(scripts, id, lock),
        Sending::Ask { .. } => Holds { id: id.as_str() }.call(scripts, lock),
        Sending::Downgrade(downgrade) => downgrade.call(scripts, id, lock),
        Sending::Shrink(shrink) => shrink.call(scripts, id, lock),
        Sending::Release(release) => release.call(scripts, id, lock),
    }
}

/// The time after which an answer is useless: for a renewal or a question, the end of the lease.
fn of_use_until(sending: &Sending, latest: Moment) -> Moment {
    match sending {
        Sending::Renew { ends, .. } | Sending::Ask { ends } => latest.min(*ends),
        _ => latest,
    }
}

fn answered(sending: &Sending, result: Result<Answer, CallError>) -> Event {
    match sending {
        Sending::Renew { .. } => Event::Renewed(read(result, Renewed::read)),
        Sending::Ask { .. } => Event::Asked(read(result, Holds::read)),
        Sending::Downgrade(_) => Event::Downgraded(read(result, Renewed::read)),
        Sending::Shrink(Shrink { keep }) => {
            Event::Shrunk { keep: *keep, outcome: read(result, Shrink::read) }
        }
        Sending::Release(Release { only_wait }) => {
            Event::Released { only_wait: *only_wait, outcome: read(result, Release::read) }
        }
    }
}
