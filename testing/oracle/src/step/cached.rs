//! Rules for cached leases.

use crate::step::Step;
use crate::{Holder, LockHash};

/// A holder that was recalled or is in use does not return to its earlier state, and only a claim
/// makes a lease cached. (A downgrade may: it may be that no client requests the read.)
pub(super) fn marks_fall(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let rank = |holder: &Holder| "kcb".find(holder.state);
    before.holders().find_map(|old| {
        let new = step.after.holder(&old.id).filter(|new| new.token == old.token)?;
        let is_wrong = match (rank(old), rank(new)) {
            (Some(old), Some(new)) => new < old,
            (Some(_), None) => true,
            (None, Some(new)) => old.is_claimed() || new > 0,
            (None, None) => false,
        };
        (is_wrong && old.writes == new.writes).then(|| format!("{old:?} is {new:?}"))
    })
}

/// Each call of the first waiter recalls the cached leases in its way.
pub(super) fn first_waiter_recalls(step: &Step<'_>) -> Option<String> {
    let (hash, recalled) = (step.after, step.recalls()?);
    let me = hash.waiters.get(step.id()).filter(|_| step.status() == "queued")?;
    let is_at_head = || hash.first_in_line(me.mode).is_some_and(|first| first.id == me.id);
    let is_first = match me.mode {
        'u' => true,
        'w' => is_at_head() && hash.text("upgrader").is_none(),
        _ => is_at_head() && hash.living_waiters().all(|other| other.mode == 'r'),
    };
    let is_unasked = |holder: &&Holder| {
        holder.is_cached()
            && holder.id != me.id
            && (holder.writes || me.mode != 'r')
            && step.is_subscribed(crate::client_of(&holder.id)) == Some(true)
            && !recalled.contains(&holder.id.as_str())
    };
    let unasked = hash.holders().find(is_unasked).filter(|_| is_first && !step.has_more_work());
    unasked.map(|holder| format!("{holder:?} is not asked by {me:?}"))
}
