//! Rules for each run of a semaphore's script, beside those for all scripts. In a world with a
//! lock, these rules find no permits.

use crate::checker::call::{Answer, Request};
use crate::checker::rules::{Rule, Step};
use crate::checker::view::{Record, View};
use crate::client::acquisition::Sending;
use crate::protocol::{Acquire, Acquired, Goal, Grant, Permits, Shrink};

pub(super) const RULES: [(&str, Rule); 7] = [
    ("no more permits are held than there are", limit_is_kept),
    ("permits in use are counted", used_is_counted),
    ("permits are granted as they were requested", grant_is_as_requested),
    ("only its holder gives permits back", permits_of_others),
    ("what a shrink keeps is said", shrink_is_true),
    ("permits go first in, first out", order_is_kept),
    ("permits that are left go to the head", head_is_granted),
];

/// The permits of living holders.
fn held(view: &View) -> u64 {
    view.holders().map(|(_, record)| record.permits).sum()
}

/// How many permits a call requests.
fn requested(step: &Step<'_>) -> Option<u64> {
    match step.request {
        Request::Acquire(Acquire { goal: Goal::Permits(Permits { count, .. }), .. }) => {
            Some(u64::from(*count))
        }
        _ => None,
    }
}

/// The most that a holder may keep.
fn kept(step: &Step<'_>) -> Option<u64> {
    match step.request {
        Request::Work(Sending::Shrink(Shrink { keep })) => Some(u64::from(*keep)),
        // A lost partial release is repeated.
        Request::Work(Sending::Renew { renew, .. }) => {
            let record = step.before.holder(&step.id)?;
            (record.token == renew.token).then_some(u64::from(renew.permits))
        }
        _ => None,
    }
}

fn limit_is_kept(step: &Step<'_>) -> Option<String> {
    let (held, limit) = (held(step.after), step.after.number("limit"));
    (held > limit).then(|| format!("{held} of {limit}"))
}

/// The permits of dead holders count as used until their records are removed.
fn used_is_counted(step: &Step<'_>) -> Option<String> {
    let (view, told) = (step.after, step.after.number("used"));
    let permits: u64 = view.readers.values().map(|record| record.permits).sum();
    let limit = [step.before.number("limit"), view.number("limit")];
    let stands = !step.before.is_empty() && !view.is_empty();
    (told != permits)
        .then(|| format!("{told}, and the holders have {permits}"))
        .or_else(|| (stands && limit[0] != limit[1]).then(|| format!("of a limit {limit:?}")))
}

fn grant_is_as_requested(step: &Step<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, record)| {
        let waited = step.before.waiters.get(id).map(|waiter| waiter.permits);
        let wanted = requested(step).filter(|_| step.is_mine(id)).or(waited).unwrap_or(0);
        (record.permits != wanted).then(|| format!("{id} wants {wanted}: {record:?}"))
    })
}

fn permits_of_others(step: &Step<'_>) -> Option<String> {
    step.before.holders().find_map(|(id, old)| {
        let new = step.after.holder(id).filter(|new| new.token == old.token)?;
        let keeps = kept(step).filter(|_| step.is_mine(id)).unwrap_or(old.permits);
        (new.permits != old.permits.min(keeps)).then(|| format!("{id}, {old:?}, {new:?}"))
    })
}

fn shrink_is_true(step: &Step<'_>) -> Option<String> {
    let Answer::Shrunk { lease, .. } = step.answer else { return None };
    let record = step.before.holder(&step.id);
    let so = |grant: &Grant, it: &Record| (grant.token, grant.deadline) == (it.token, it.deadline);
    let is_so = match (lease, record) {
        (Some(grant), Some(record)) => so(grant, record),
        (lease, record) => lease.is_none() && record.is_none(),
    };
    (!is_so).then(|| format!("{lease:?}, and {record:?}"))
}

fn order_is_kept(step: &Step<'_>) -> Option<String> {
    step.granted().into_iter().filter(|(_, record)| record.permits > 0).find_map(|(id, _)| {
        let ticket = step.ticket(id).unwrap_or(u64::MAX);
        let mut waiters = step.after.living_waiters().filter(|(_, other)| other.mode == 'p');
        let passed = waiters.find(|(_, other)| other.ticket < ticket);
        passed.map(|(other, _)| format!("{other} came before {id}"))
    })
}

/// Also if a try is refused.
fn head_is_granted(step: &Step<'_>) -> Option<String> {
    let left = step.after.number("limit").saturating_sub(held(step.after));
    let is_refused = matches!(step.answer, Answer::Acquired(Acquired::Refused));
    if step.envelope.more || (!step.changed && !is_refused) {
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
