//! Rules for the leases of holders.

use crate::LockHash;
use crate::step::Step;

/// Only a release or a forced release ends a lease, and nothing makes it shorter or takes its claim
/// back.
pub(super) fn no_lease_is_shortened(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let names = |token: u64| step.named_token().is_some_and(|named| token <= named);
    before.holders().find_map(|old| {
        let heir = step.heir_of(&old.id);
        let may_end = match step.name() {
            "release" => step.is_mine(heir) && !step.ends_wait_only(),
            "force_release" => names(old.token),
            _ => false,
        };
        let new = step.after.holder(heir);
        let is_less = new.is_none_or(|new| {
            new.deadline < old.deadline
                || (new.token == old.token && old.is_claimed() && !new.is_claimed())
        });
        (is_less && !may_end).then(|| format!("{} made {old:?} {new:?}", step.script))
    })
}

/// Another acquisition's lease keeps its token, its deadline and its state of a claim. But any call
/// may grant an upgrade.
pub(super) fn others_stay(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let others = before.holders().filter(|old| !step.is_mine(step.heir_of(&old.id)));
    others.into_iter().find_map(|old| {
        let new = step.after.holder(&old.id)?;
        let upgrades = !old.writes && new.writes && step.was_upgrader(&old.id);
        let is_other = match new.token == old.token {
            true => (new.deadline, new.is_claimed()) != (old.deadline, old.is_claimed()),
            false => !upgrades,
        };
        is_other.then(|| format!("{old:?} is {new:?}"))
    })
}

/// A revoked lease gets no later deadline and is not upgraded, and `revoke` revokes all that it
/// names.
pub(super) fn revoked_is_not_made_longer(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let revoked = |hash: &LockHash| hash.number("revoked_up_to");
    if step.name() == "revoke" {
        let (named, told) = (step.named_token()?, revoked(step.after));
        let left = step.after.holders().find(|it| it.token <= named && it.token > told);
        return left.map(|left| format!("{left:?} is left, up to {named}, {told} is said"));
    }
    let limit = revoked(before);
    before.holders().filter(|old| old.token <= limit).find_map(|old| {
        let new = step.after.holder(step.heir_of(&old.id)).filter(|new| new.token <= limit)?;
        let is_more = new.deadline > old.deadline || (new.writes && !old.writes);
        is_more.then(|| format!("{old:?} is {new:?}"))
    })
}

/// A new or renewed lease lasts as long as the call says, and no call makes it last longer. (A
/// repeated acquire finds the lease that it has.)
pub(super) fn lease_lasts(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let asked = step.after.now + step.lease()?;
    let new = step.after.holder(step.id()).filter(|new| new.is_claimed())?;
    let old = before.holder(step.id());
    if step.was_upgrader(step.id()) && new.writes && step.name() != "upgrade" {
        return None; // it also granted the upgrade, with the lease that the waiter requests
    }
    if step.is_try() && before.waiters.contains_key(step.id()) {
        return None; // a waiter that also tries is granted what its place requests
    }
    let most = old.map_or(0, |old| old.deadline).max(asked);
    let is_new = old.is_none_or(|old| !old.is_claimed() || old.writes != new.writes);
    let revoked = before.number("revoked_up_to").max(step.after.number("revoked_up_to"));
    let is_anew = new.token > revoked
        && (step.status() == "renewed" || (is_new && step.status() == "granted"));
    let is_wrong = new.deadline > most || (is_anew && new.deadline < asked);
    is_wrong.then(|| format!("{asked} was asked: {old:?} is {new:?}"))
}

/// After a renewal that names the lease's token, the lease is at most as strong as the call says,
/// and never stronger than before. A lease with another token stays as it is.
pub(super) fn no_more_than_is_held(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let old = before.holder(step.id()).filter(|_| step.name() == "renew")?;
    let new = step.after.holder(step.id())?;
    let upgrades = step.was_upgrader(step.id()) && new.token > old.token;
    let is_wrong = if new.token != old.token || upgrades {
        new.writes && !old.writes && !upgrades
    } else if Some(old.token) != step.named_token() {
        (new.writes, new.deadline, new.state, new.permits)
            != (old.writes, old.deadline, old.state, old.permits)
    } else if step.script == "semaphore/renew" {
        new.permits > step.number_arg(4)?
    } else {
        new.writes && (step.arg(4) == "r" || !old.writes)
    };
    is_wrong.then(|| format!("{:?} of {old:?} leaves {new:?}", step.args))
}

/// A grant by another acquisition's call is unclaimed and lasts for the waiter's claim window, that
/// of an upgrade at least as long as its read.
pub(super) fn grant_lasts_for_its_window(step: &Step<'_>, before: &LockHash) -> Option<String> {
    step.granted().filter(|new| !step.is_mine(&new.id)).find_map(|new| {
        let waiter = before.waiters.get(&new.id)?;
        let read = before.holder(&new.id).map_or(0, |read| read.deadline);
        let ends = read.max(step.after.now + waiter.window);
        (new.is_claimed() || new.deadline != ends).then(|| format!("{new:?} instead of {ends}"))
    })
}
