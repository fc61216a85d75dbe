//! Rules for replies and messages.

use crate::checker::call::{CallAnswer, CallRequest};
use crate::checker::lock_view::HolderView;
use crate::checker::step_invariants::ScriptRun;
use crate::checker::time::SERVER_NOW;
use crate::client::acquisition::WorkerCall;
use crate::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, Grant, LockMode, ReleaseReply, RenewReply,
};

pub(super) fn late_call_is_rejected(step: &ScriptRun<'_>) -> Option<String> {
    let is_late = step.not_after > 0 && SERVER_NOW > step.not_after;
    let is_stale = matches!(step.answer, CallAnswer::Acquired(AcquireReply::TooLate));
    match (is_late, is_stale) {
        (true, false) => Some("it was carried out".into()),
        (false, true) => Some("it was in time".into()),
        _ => (is_stale && step.changed).then(|| "something was done".into()),
    }
}

pub(super) fn reply_matches_state(step: &ScriptRun<'_>) -> Option<String> {
    let grant = match step.answer {
        CallAnswer::Acquired(AcquireReply::Granted(grant))
        | CallAnswer::Renewed(RenewReply::Renewed(grant))
        | CallAnswer::Downgraded(RenewReply::Renewed(grant)) => *grant,
        CallAnswer::Acquired(AcquireReply::Queued { .. }) => return queued_is_true(step),
        CallAnswer::Acquired(AcquireReply::Busy) => return busy_matches_state(step),
        CallAnswer::Acquired(AcquireReply::UpgradeConflict) => {
            let mut upgraders = step.before.living_waiters().filter(|(_, it)| it.mode == 'u');
            let is_alone = upgraders.all(|(id, _)| step.is_mine(id));
            return is_alone.then(|| "nobody else waits to upgrade".into());
        }
        CallAnswer::Renewed(RenewReply::Revoked(grant)) => {
            let is_so = step.after.number("revoked") >= grant.token;
            return (!is_so).then(|| "it was not revoked".into());
        }
        CallAnswer::Downgraded(RenewReply::NotHeld)
        | CallAnswer::Acquired(AcquireReply::NotHeld) => {
            return not_held_matches_state(step);
        }
        CallAnswer::Renewed(RenewReply::Other(grant)) => return other_is_true(step, *grant),
        // The pump after a renewal may grant the turn of a waiter whose lease was lost in a
        // failover.
        CallAnswer::Renewed(RenewReply::NotHeld) => {
            return step.before.holder(&step.id).map(|_| "lost, and it held".into());
        }
        _ => return None,
    };
    if matches!(step.answer, CallAnswer::Renewed(_)) && step.before.holder(&step.id).is_none() {
        return Some("what is over is renewed".into());
    }
    let Some(record) = step.after.holder(&step.id) else {
        return Some("it holds nothing".into());
    };
    if matches!(step.answer, CallAnswer::Renewed(_)) && named_token(step) != Some(grant.token) {
        return Some(format!("{grant:?} is renewed by another token"));
    }
    // The pump after the renewal of an upgrader may grant its upgrade; the reply names the read.
    let upgrades = step.before.waiters.get(&step.id).is_some_and(|waiter| waiter.mode == 'u');
    if upgrades && record.writes && grant.token < record.token {
        return None;
    }
    let HolderView { token, deadline, claimed, state, .. } = *record;
    // A call that keeps a cached lease cached gets the last token in any case.
    let knows_last = grant.last_token == step.after.number("fence");
    let is_told = knows_last || (!matches!(state, 'k' | 'c') && grant.last_token == token);
    let is_so = (grant.token, grant.deadline) == (token, deadline) && is_told;
    (!claimed || !is_so).then(|| format!("{grant:?}, and {record:?}"))
}

fn other_is_true(step: &ScriptRun<'_>, grant: Grant) -> Option<String> {
    let record = step.before.holder(&step.id);
    let is_told = |it: &HolderView| (it.token, it.deadline) == (grant.token, grant.deadline);
    let is_so = record.is_some_and(is_told) && named_token(step) != Some(grant.token);
    (!is_so).then(|| format!("{grant:?}, and {record:?}"))
}

fn queued_is_true(step: &ScriptRun<'_>) -> Option<String> {
    let waits = step.after.waiters.contains_key(&step.id);
    (!waits).then(|| "queued, and it does not wait".into())
}

fn busy_matches_state(step: &ScriptRun<'_>) -> Option<String> {
    let CallRequest::Acquire(AcquireRequest { kind: AcquireKind::Lock(mode, _), .. }) =
        step.request
    else {
        return None;
    };
    let is_in_the_way = match mode {
        LockMode::Read => step.before.writes(),
        LockMode::Write => step.before.holders().next().is_some(),
    };
    let is_free = !is_in_the_way && step.before.living_waiters().next().is_none();
    (is_free && !step.envelope.has_pump_work).then(|| "refused, and it is free".into())
}

fn not_held_matches_state(step: &ScriptRun<'_>) -> Option<String> {
    let named = named_token(step)?;
    let upgrades = matches!(step.request, CallRequest::Acquire(_));
    let held = step.before.holder(&step.id)?;
    (held.token == named && held.writes != upgrades).then(|| "lost, and it held".into())
}

/// The token of the lease to change or to renew.
fn named_token(step: &ScriptRun<'_>) -> Option<u64> {
    match step.request {
        CallRequest::Work(WorkerCall::Downgrade(downgrade)) => Some(downgrade.token),
        CallRequest::Work(WorkerCall::Renew { renew, .. }) => Some(renew.token),
        CallRequest::Acquire(AcquireRequest { kind: AcquireKind::Upgrade { token }, .. }) => {
            Some(*token)
        }
        _ => None,
    }
}

pub(super) fn release_ends_all(step: &ScriptRun<'_>) -> Option<String> {
    if let CallAnswer::Released { only_wait: true, .. } = step.answer {
        let waits = step.after.waiters.contains_key(&step.id);
        return waits.then(|| "it still waits".into());
    }
    let (CallAnswer::Released { ended, .. } | CallAnswer::GivenBack(ended)) = step.answer else {
        return None;
    };
    let (held, waits) = (step.before.had_record(&step.id), step.before.waiters.get(&step.id));
    if step.after.holder(&step.id).is_some() || step.after.waiters.contains_key(&step.id) {
        return Some("it is still there".into());
    }
    if held != (*ended == ReleaseReply::Released) {
        return Some(format!("{ended:?}, and its record stood: {held}"));
    }
    // The end of an upgrader's lease is reported before that of its wait.
    let left = !held && waits.is_some_and(|waiter| waiter.mode != 'u');
    (left && *ended != ReleaseReply::LeftQueue).then(|| format!("{ended:?}, and it waited"))
}

pub(super) fn change_names_token(step: &ScriptRun<'_>) -> Option<String> {
    let (old, new) = (step.before.holder(&step.id)?, step.after.holder(&step.id)?);
    let named = named_token(step)?;
    // Another call may also grant the upgrade for which the acquisition waits.
    let upgrades = new.writes && step.before.waiters.contains_key(&step.id);
    (old.writes != new.writes && old.token != named && !upgrades)
        .then(|| format!("{named} was named, and {} changed", old.token))
}

pub(super) fn messages_match_state(step: &ScriptRun<'_>) -> Option<String> {
    let grants = step.pushes.iter().flat_map(|push| &push.grants);
    let is_so = |id: &str, grant: &Grant| {
        let record = step.after.holder(id);
        record.is_some_and(|it| (it.token, it.deadline) == (grant.token, grant.deadline))
    };
    if let Some(wrong) = grants.into_iter().find(|(id, grant)| !is_so(id, grant)) {
        return Some(format!("{wrong:?}"));
    }
    let holds = |id: &str, token: u64| step.after.holder(id).is_some_and(|it| it.token == token);
    let wrong = step.ended.iter().find(|(id, token)| holds(id, *token));
    wrong.map(|wrong| format!("{wrong:?} still holds"))
}

/// The call that ends them tells them; but with many readers it tells only a few.
pub(super) fn force_released_are_notified(step: &ScriptRun<'_>) -> Option<String> {
    if !matches!(step.request, CallRequest::Force(_)) {
        return None;
    }
    // This call may grant the upgrade of a reader that waits to write.
    let upgrader = step.before.word("upgrader");
    let is_over = |id: &str, old: &HolderView| {
        let new = step.after.holder(id);
        new.is_none_or(|new| new.token != old.token && upgrader.is_none_or(|it| it != id))
    };
    let is_told = |id: &str, old: &HolderView| {
        step.ended.iter().any(|told| (told.0.as_str(), told.1) == (id, old.token))
    };
    let mut over = step.before.holders().filter(|(id, old)| is_over(id, old));
    match step.before.writes() {
        true => over.find(|(id, old)| !is_told(id, old)).map(|(id, _)| id.to_owned()),
        false => over.next().filter(|_| step.ended.is_empty()).map(|(id, _)| id.to_owned()),
    }
}

pub(super) fn grantees_are_notified(step: &ScriptRun<'_>) -> Option<String> {
    let is_told =
        |id: &str| step.pushes.iter().flat_map(|push| &push.grants).any(|(told, _)| told == id);
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id)?;
        let hears =
            waiter.node == step.server && step.is_client_subscribed(id) && !step.is_mine(id);
        (hears && !is_told(id)).then(|| id.to_owned())
    })
}

pub(super) fn grant_lasts_claim_timeout(step: &ScriptRun<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, record)| {
        let waiter = step.before.waiters.get(id)?;
        if step.is_mine(id) {
            return None;
        }
        // An upgrader's lease lasts at least as long as its read did.
        let read = step.before.holder(id).map_or(0, |read| read.deadline);
        let wrong = record.claimed || record.deadline != read.max(SERVER_NOW + waiter.window);
        wrong.then(|| format!("{id} until {}", record.deadline))
    })
}
