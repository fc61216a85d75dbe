//! Rules for replies and messages.

use std::cmp::min;

use crate::step::permits::kept;
use crate::step::{Message, Step};
use crate::{Holder, LockHash};

/// A call past its time limit is too late, and no other one is. It changes nothing.
pub(super) fn late_call_is_rejected(step: &Step<'_>) -> Option<String> {
    let limit = step.number_arg(2).filter(|limit| *limit > 0 && step.has_time_limit());
    let is_late = limit.is_some_and(|limit| step.after.now > limit);
    let is_told = step.status() == "too_late";
    let is_done = !step.is_unchanged() && !step.after.is_empty(); // the key may have expired
    let is_wrong = is_late != is_told || (is_late && is_done);
    is_wrong.then(|| format!("{} is {} past {limit:?}", step.script, step.status()))
}

/// A reply has the time of its call. (A release that needs no clock does not read it.)
pub(super) fn reply_has_time(step: &Step<'_>) -> Option<String> {
    let told = step.reply.get(1)?;
    let is_unread = told == "0" && step.script.split('/').next_back() == Some("release");
    (*told != step.after.now.to_string() && !is_unread).then(|| format!("{:?}", step.reply))
}

/// A reply is true of the hash before and after its call.
pub(super) fn reply_is_true(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let (hash, id, named) = (step.after, step.id(), step.named_token());
    let (had, has) = (before.holder(id), hash.holder(id));
    let had_token = had.map(|had| had.token);
    // A renewal may also grant the upgrade of its acquisition.
    let upgrades =
        |has: &Holder| step.was_upgrader(id) && has.writes && Some(has.token) > step.number(0);
    let is_true = match (step.name(), step.status()) {
        ("acquire" | "acquire_read" | "acquire_write", "granted") => {
            has.is_some_and(|has| is_told(step, has))
        }
        ("renew", "renewed" | "revoked") => {
            let is_said = |has: &Holder| {
                is_told(step, has) || (upgrades(has) && Some(has.deadline) >= step.number(1))
            };
            let is_revoked = |has: &Holder| has.token <= hash.number("revoked_up_to");
            had.is_some()
                && had_token == named
                && step.number(0) == named
                && has.is_some_and(|has| {
                    is_said(has) && (step.status() == "renewed" || is_revoked(has) || upgrades(has))
                })
        }
        // The lease stays as it is, by another rule.
        ("renew", "other") => had.is_some_and(|had| says(step, had)) && had_token != named,
        // A renewal may also grant the lock to its acquisition, whose lease a failover has lost.
        ("renew" | "release_permits", "not_held") => had.is_none(),
        ("downgrade", "granted") => {
            had_token == named && has.is_some_and(|has| is_told(step, has) && !has.writes)
        }
        ("downgrade", "not_held") => !had.is_some_and(|had| had.writes && Some(had.token) == named),
        ("upgrade", "not_held") => !had.is_some_and(|had| !had.writes && Some(had.token) == named),
        ("upgrade", "granted") => {
            let wrote = before.writer.as_ref().is_some_and(|writer| writer.id == id);
            let is_new = |has: &Holder| wrote || has.token > before.number("fence");
            has.is_some_and(|has| is_told(step, has) && has.writes && is_new(has))
        }
        ("upgrade", "conflict") => {
            before.living_waiters().any(|other| other.mode == 'u' && other.id != id)
        }
        (_, "queued") => hash.waiters.contains_key(id),
        ("acquire", "busy") => has.is_none(),
        ("acquire_read" | "acquire_write", "busy") => {
            let is_free = !is_blocked(step, before) && before.living_waiters().next().is_none();
            (has.is_none() || had.is_some()) && (!is_free || step.has_more_work())
        }
        // The old acquisition has nothing any more, and the new one has its lease.
        ("accept_transfer", "granted") => {
            let is_it = |holder: Option<&Holder>| holder.is_some_and(|it| Some(it.token) == named);
            let [from, left] = [before, hash].map(|hash| hash.holder(step.arg(6)));
            has.is_some_and(|has| is_told(step, has))
                && is_it(has)
                && (is_it(from) || is_it(had))
                && (!is_it(left) || step.arg(6) == id)
        }
        ("accept_transfer", "not_held") => had == has,
        // A holder with a later token than the call names keeps its lease.
        ("force_release", "forced") => {
            let limit = min(named.unwrap_or(u64::MAX), before.number("fence"));
            hash.number("fence") > before.number("fence")
                && hash.holders().all(|it| it.token > limit)
        }
        ("acquire", "limit_mismatch") => {
            let is_off = step.number(0) == Some(hash.number("limit"))
                && step.number(0) != step.number_arg(6);
            (has.is_none() && is_off) || before.waiters.contains_key(id) || step.ticket().is_some()
        }
        ("release_permits", "kept") => {
            let left = had.map(|had| min(had.permits, kept(step, had.token).unwrap_or(0)));
            has.is_some_and(|has| says(step, has))
                && had.is_some_and(|had| says(step, had))
                && step.number(2) == left
        }
        ("set_limit", "set") => hash.number("limit") == step.number_arg(4).unwrap_or(0),
        ("set_limit", "limit_mismatch") => {
            before.text("limit") == hash.text("limit") && step.value(0) == hash.text("limit")
        }
        _ => true,
    };
    (!is_true).then(|| {
        format!("{} {:?} says {:?}, from {had:?} to {has:?}", step.script, step.args, step.reply)
    })
}

/// Whether the holders before a try kept it from the lock.
fn is_blocked(step: &Step<'_>, before: &LockHash) -> bool {
    match step.name() {
        "acquire_read" => before.is_written(),
        _ => before.holders().next().is_some(),
    }
}

/// Whether the reply has this token and deadline, and names the acquisition of a grant.
fn says(step: &Step<'_>, holder: &Holder) -> bool {
    let place = step.token_place();
    (place == 0 || step.value(0) == Some(&holder.id))
        && (step.number(place), step.number(place + 1))
            == (Some(holder.token), Some(holder.deadline))
}

/// Whether the reply says what a claimed lease is. A call for a cached lease gets the last token of
/// the lock too.
fn is_told(step: &Step<'_>, holder: &Holder) -> bool {
    let last = step.number(step.token_place() + 2);
    let is_last = match last {
        Some(last) => last == step.after.number("fence"),
        None => !step.is_cached() || !holder.is_cached(),
    };
    holder.is_claimed() && says(step, holder) && is_last
}

/// After a release, the acquisition has nothing that the call ends, and the reply says what it had.
/// If the call names a time, a write stands until then, and is revoked.
pub(super) fn release_ends_all(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let id = (step.name() == "release").then(|| step.id())?;
    let [waited, waits] = [before, step.after].map(|hash| hash.waiters.get(id));
    let (had, has) = (before.has_record(id), step.after.holder(id));
    let is_wait_only = step.ends_wait_only();
    let kept = step.kept_deadline(before);
    let is_kept = |has: &Holder| {
        let is_revoked = has.token <= step.after.number("revoked_up_to");
        says(step, has) && Some(has.deadline) == kept && is_revoked
    };
    let status = match step.status() {
        "upgrade_granted" => !has.is_some_and(|has| has.writes && says(step, has)),
        "kept" => !has.is_some_and(|has| has.writes && is_kept(has)),
        _ if kept.is_some() => true,
        "released" => !had || is_wait_only,
        "force_released" => had || before.record(id).is_none() || is_wait_only,
        // The end of an upgrader's lease is reported before that of its wait.
        "left_queue" => waited.is_none() || (had && !is_wait_only),
        _ => !is_wait_only && (had || waited.is_some_and(|waiter| waiter.mode != 'u')),
    };
    let is_left = waits.is_some() || (has.is_some() && !is_wait_only && kept.is_none());
    (status || is_left).then(|| {
        format!("{:?}, had a record: {had}, waited: {waited:?}; {has:?}, {waits:?}", step.reply)
    })
}

/// A message of a grant has the token and the deadline of a lease, and one of a forced end that of
/// none.
pub(super) fn messages_are_true(step: &Step<'_>) -> Option<String> {
    let wrong = step.setting.messages?.iter().find(|message| match message {
        Message::Grant { id, token, deadline } => {
            let lease = step.after.holder(id);
            lease.is_none_or(|lease| (lease.token, lease.deadline) != (*token, *deadline))
        }
        Message::Ended { id, token } => step.after.holder(id).is_some_and(|it| it.token == *token),
        Message::Recall { .. } => false,
    });
    wrong.map(|wrong| format!("{wrong:?}"))
}

/// Each waiter that another acquisition's call grants the lock gets a message, if it is subscribed.
pub(super) fn grantees_are_told(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let messages = step.setting.messages?;
    let is_told = |new: &Holder| {
        messages.iter().any(|it| matches!(it, Message::Grant { id, .. } if *id == new.id))
    };
    let hears = |new: &&Holder| {
        let waiter = before.waiters.get(&new.id).filter(|waiter| step.is_here(&waiter.node));
        waiter.is_some_and(|waiter| step.is_subscribed(waiter.client()) == Some(true))
    };
    let mut others = step.granted().filter(|new| !step.is_mine(&new.id)).filter(hears);
    others.find(|new| !is_told(new)).map(|new| format!("{new:?}"))
}

/// A forced release tells the writer whose lease it ends; of readers it tells only a few.
pub(super) fn force_released_are_told(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let messages = step.setting.messages.filter(|_| step.name() == "force_release")?;
    let is_over = |old: &&Holder| {
        let new = step.after.holder(&old.id);
        new.is_none_or(|new| new.token != old.token && !step.was_upgrader(&old.id))
    };
    let is_told = |old: &Holder| {
        let is_end = |it: &Message| matches!(it, Message::Ended { id, token } if (id, *token) == (&old.id, old.token));
        messages.iter().any(is_end)
    };
    let over: Vec<&Holder> = before.holders().filter(is_over).collect();
    let is_missed = match before.is_written() {
        true => !over.iter().all(|old| is_told(old)),
        false => !over.is_empty() && !over.iter().any(|old| is_told(old)),
    };
    is_missed.then(|| format!("{over:?}, {messages:?}"))
}
