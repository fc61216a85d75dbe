//! Releases in the background, and what comes of those that somebody waits for.

use std::sync::Arc;
use std::time::Duration;

use super::HORIZON;
use super::reply::{Failure, Told, read};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::client::acquisition::{Acquisition, Releasing, State};
use crate::client::in_doubt::InDoubt;
use crate::client::telemetry;
use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::protocol::{BadReply, Ended, Envelope, LockKey, Release};
use crate::router::{Answer, Call, CallError, Reason};

/// How soon what had no answer is sent again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// A release that fails again and again. Nothing of it is random: what failed together goes out
/// again in one batch.
const PAUSES: Backoff = Backoff::new(AGAIN, Duration::from_secs(16));

pub(super) async fn release(client: Arc<Client>, batch: Vec<Arc<Acquisition>>) {
    let calls = releases(&client, &batch, false);
    let until = client.clock.now().after(client.settings.call_timeout);
    client
        .router
        .each(&calls, until, |at, result| apply_release(&client, &batch[at], result))
        .await;
}

pub(super) fn releases(client: &Client, batch: &[Arc<Acquisition>], only_wait: bool) -> Vec<Call> {
    batch
        .iter()
        .map(|one| {
            let release = Release { id: one.id, only_wait };
            release.call(client.scripts, &one.lock)
        })
        .collect()
}

fn apply_release(client: &Client, acquisition: &Acquisition, result: Result<Answer, CallError>) {
    let next = {
        let mut state = acquisition.state();
        let State::Releasing(releasing) = &mut *state else {
            return;
        };
        releasing.sent = false;
        released(client, &acquisition.lock, releasing, result).then_some(releasing.due)
    };
    match next {
        Some(due) => client.schedule(acquisition, due),
        None => client.forget(acquisition),
    }
}

/// Takes in the answer to a release. True if another must follow, at `releasing.due`.
fn released(
    client: &Client,
    lock: &LockKey,
    releasing: &mut Releasing,
    result: Result<Answer, CallError>,
) -> bool {
    let now = client.clock.now();
    match read(result, Release::read) {
        Ok(Told { envelope, sent, what, node, .. }) => {
            telemetry::released(lock, &node, &what, now.since(sent));
            if envelope.more {
                client.pump(lock);
            }
            let Some(due) = doubt_ends(
                &mut releasing.in_doubt_until,
                releasing.in_doubt,
                envelope.now,
                sent,
                now,
            ) else {
                return false;
            };
            releasing.due = due;
            releasing.give_up = releasing.give_up.max(due.after(client.settings.call_timeout));
        }
        // There is no lock any more that it could be released from.
        Err(Failure::Final(error))
            if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Incompatible) =>
        {
            return false;
        }
        Err(failure) => {
            if let Failure::Final(error) = failure {
                telemetry::release_failed(&lock.name, lock.slot, &error);
            }
            releasing.due = now.after(PAUSES.whole(releasing.failures));
            releasing.failures += 1;
        }
    }
    true
}

/// An attempt that had no answer may still be under way: then what ends it must be sent once more,
/// at this moment. `None` if nothing can come any more.
pub(super) fn doubt_ends(
    in_doubt_until: &mut Option<u64>,
    in_doubt: Option<InDoubt>,
    server_now: u64,
    sent: Moment,
    now: Moment,
) -> Option<Moment> {
    let until = match *in_doubt_until {
        Some(until) => until,
        None => in_doubt?.server_ms(server_now, sent),
    };
    *in_doubt_until = Some(until);
    // What is due goes out earlier by up to the horizon, which would be too early for the last one.
    (server_now <= until)
        .then(|| now.after(Duration::from_millis(until - server_now + 1)).after(HORIZON))
}

/// How the release of a lease went, told to the one who waits for it; and whether more than one
/// attempt was made.
pub(crate) fn ended(
    lock: &LockKey,
    result: Result<Answer, CallError>,
) -> Result<(Envelope, Ended, bool), CallError> {
    let answer =
        result.inspect_err(|error| telemetry::release_failed(&lock.name, lock.slot, error))?;
    let took = answer.received.since(answer.sent);
    let retried = answer.in_doubt.is_some();
    match Release::read(answer.reply) {
        Ok((envelope, ended)) => {
            telemetry::released(lock, &answer.address, &ended, took);
            Ok((envelope, ended, retried))
        }
        Err(bad) => {
            let reason = match bad {
                BadReply::Error(said) => Reason::Refused(said),
                BadReply::Garbled(what) => Reason::Garbled(what),
            };
            Err(CallError { reason, in_doubt: None, last: None })
        }
    }
}
