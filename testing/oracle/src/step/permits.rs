//! Rules for semaphores. A lock has no permits, so they find none in it.

use std::cmp::min;

use crate::LockHash;
use crate::step::{Setting, Step};

/// The permits in use are those of all records, including dead ones.
pub(super) fn used_is_counted(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let (told, sum) = (hash.number("used"), hash.records().map(|it| it.permits).sum::<u64>());
    (told != sum).then(|| format!("{told}, and the holders have {sum}"))
}

/// Only a lowered limit leaves more permits in use, and then no call adds to them.
pub(super) fn limit_is_kept(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let [old, used] = [before, step.after].map(|hash| hash.number("used"));
    let limit = step.after.number("limit");
    (used > limit && used > old).then(|| format!("{used} of {limit}, and {old} before"))
}

/// The limit of a living semaphore is changed by `set_limit` alone.
pub(super) fn limit_stays(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let [old, new] = [before, step.after].map(|hash| hash.text("limit"));
    let stands = !before.is_empty() && !before.is_expired() && !step.after.is_empty();
    let may_change = step.name() == "set_limit" && step.status() == "set";
    (old != new && stands && !may_change).then(|| format!("from {old:?} to {new:?}"))
}

/// A new holder has the permits that it requested first, as its waiter or by its call.
pub(super) fn grant_is_as_requested(step: &Step<'_>, before: &LockHash) -> Option<String> {
    step.granted().find_map(|new| {
        let asked = step.wanted_permits().filter(|_| step.is_mine(&new.id));
        let waited = before.waiters.get(&new.id).map(|waiter| waiter.permits);
        let wanted = waited.or(asked).unwrap_or(0);
        (new.permits != wanted).then(|| format!("{wanted} were requested: {new:?}"))
    })
}

/// A holder has as many permits as before, or as few as its own call keeps.
pub(super) fn others_keep_their_permits(step: &Step<'_>, before: &LockHash) -> Option<String> {
    before.records().find_map(|old| {
        let new = step.after.records().find(|new| (&new.id, new.token) == (&old.id, old.token))?;
        let is_held = before.holder(&old.id).is_some() && step.is_mine(&old.id);
        let kept = kept(step, old.token).filter(|_| is_held).unwrap_or(old.permits);
        (new.permits != min(old.permits, kept)).then(|| format!("{old:?} is {new:?}"))
    })
}

/// The most permits that the caller keeps, by a partial release or by a renewal that repeats one
/// that was lost.
pub(super) fn kept(step: &Step<'_>, token: u64) -> Option<u64> {
    match step.script {
        "semaphore/release_permits" => step.number_arg(3),
        "semaphore/renew" => step.number_arg(4).filter(|_| step.named_token() == Some(token)),
        _ => None,
    }
}
