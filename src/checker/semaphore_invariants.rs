//! Rules for each run of a semaphore's script, beside those for all scripts. In a world with a
//! lock, these rules find no permits.

use crate::checker::call::{CallAnswer, CallRequest};
use crate::checker::lock_view::{HolderView, LockView};
use crate::checker::step_invariants::{ScriptRun, StepInvariant};
use crate::client::acquisition::WorkerCall;
use crate::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, Grant, PermitRequest, ReleasePermitsRequest,
};

pub(super) const RULES: [(&str, StepInvariant); 7] = [
    ("no more permits are held than there are", limit_is_kept),
    ("permits in use are counted", used_is_counted),
    ("permits are granted as they were requested", grant_is_as_requested),
    ("only its holder gives permits back", others_keep_their_permits),
    ("what a shrink keeps is said", release_permits_reply_is_correct),
    ("permits go first in, first out", order_is_kept),
    ("permits that are left go to the head", head_is_granted),
];

/// The permits of living holders.
fn held_permits(view: &LockView) -> u64 {
    view.holders().map(|(_, record)| record.permits).sum()
}

/// How many permits a call requests.
fn requested(step: &ScriptRun<'_>) -> Option<u64> {
    match step.request {
        CallRequest::Acquire(AcquireRequest {
            kind: AcquireKind::Permits(PermitRequest { count, .. }),
            ..
        }) => Some(u64::from(*count)),
        _ => None,
    }
}

/// The most that a holder may keep.
fn max_kept(step: &ScriptRun<'_>) -> Option<u64> {
    match step.request {
        CallRequest::Work(WorkerCall::ReleasePermits(ReleasePermitsRequest { keep })) => {
            Some(u64::from(*keep))
        }
        // A lost partial release is repeated.
        CallRequest::Work(WorkerCall::Renew { renew, .. }) => {
            let record = step.before.holder(&step.id)?;
            (record.token == renew.token).then_some(u64::from(renew.permits))
        }
        _ => None,
    }
}

fn limit_is_kept(step: &ScriptRun<'_>) -> Option<String> {
    let (held, limit) = (held_permits(step.after), step.after.number("limit"));
    (held > limit).then(|| format!("{held} of {limit}"))
}

/// The permits of dead holders count as used until their records are removed.
fn used_is_counted(step: &ScriptRun<'_>) -> Option<String> {
    let (view, told) = (step.after, step.after.number("used"));
    let permits: u64 = view.readers.values().map(|record| record.permits).sum();
    let limit = [step.before.number("limit"), view.number("limit")];
    let stands = !step.before.is_empty() && !view.is_empty();
    (told != permits)
        .then(|| format!("{told}, and the holders have {permits}"))
        .or_else(|| (stands && limit[0] != limit[1]).then(|| format!("of a limit {limit:?}")))
}

fn grant_is_as_requested(step: &ScriptRun<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, record)| {
        let waited = step.before.waiters.get(id).map(|waiter| waiter.permits);
        let wanted = requested(step).filter(|_| step.is_mine(id)).or(waited).unwrap_or(0);
        (record.permits != wanted).then(|| format!("{id} wants {wanted}: {record:?}"))
    })
}

fn others_keep_their_permits(step: &ScriptRun<'_>) -> Option<String> {
    step.before.holders().find_map(|(id, old)| {
        let new = step.after.holder(id).filter(|new| new.token == old.token)?;
        let keeps = max_kept(step).filter(|_| step.is_mine(id)).unwrap_or(old.permits);
        (new.permits != old.permits.min(keeps)).then(|| format!("{id}, {old:?}, {new:?}"))
    })
}

fn release_permits_reply_is_correct(step: &ScriptRun<'_>) -> Option<String> {
    let CallAnswer::Shrunk { lease, .. } = step.answer else { return None };
    let record = step.before.holder(&step.id);
    let so =
        |grant: &Grant, it: &HolderView| (grant.token, grant.deadline) == (it.token, it.deadline);
    let is_so = match (lease, record) {
        (Some(grant), Some(record)) => so(grant, record),
        (lease, record) => lease.is_none() && record.is_none(),
    };
    (!is_so).then(|| format!("{lease:?}, and {record:?}"))
}

fn order_is_kept(step: &ScriptRun<'_>) -> Option<String> {
    step.granted().into_iter().filter(|(_, record)| record.permits > 0).find_map(|(id, _)| {
        let ticket = step.ticket(id).unwrap_or(u64::MAX);
        let mut waiters = step.after.living_waiters().filter(|(_, other)| other.mode == 'p');
        let passed = waiters.find(|(_, other)| other.ticket < ticket);
        passed.map(|(other, _)| format!("{other} came before {id}"))
    })
}

/// Also if a try is refused.
fn head_is_granted(step: &ScriptRun<'_>) -> Option<String> {
    let left = step.after.number("limit").saturating_sub(held_permits(step.after));
    let is_refused = matches!(step.answer, CallAnswer::Acquired(AcquireReply::Busy));
    if step.envelope.has_pump_work || (!step.changed && !is_refused) {
        return None;
    }
    match step.after.first_in_line("head") {
        Some((id, head)) => (head.permits <= left).then(|| format!("{left} left, and {id} waits")),
        None if is_refused => requested(step)
            .filter(|wanted| *wanted <= left)
            .map(|wanted| format!("{left} left, and {wanted} are refused")),
        None => None,
    }
}
