//! Rules for the leases of holders.

use crate::checker::call::{CallAnswer, CallRequest};
use crate::checker::lock_view::HolderView;
use crate::checker::step_invariants::ScriptRun;
use crate::checker::time::SERVER_NOW;
use crate::client::acquisition::WorkerCall;
use crate::protocol::{LockMode, RenewReply};

pub(super) fn leases_of_others(step: &ScriptRun<'_>) -> Option<String> {
    step.before.holders().find_map(|(id, old)| {
        let mine = step.is_mine(id);
        let Some(new) = step.after.holder(id) else {
            let is_taken = matches!(step.request, CallRequest::Force(token) if old.token <= *token);
            return (!mine && !is_taken).then(|| format!("{id} holds no more"));
        };
        if new.deadline < old.deadline {
            Some(format!("{id} holds for less time"))
        } else if new.token != old.token {
            let upgrades = !old.writes && new.writes && step.before.waiters.contains_key(id);
            (!mine && !upgrades).then(|| format!("{id} has another lease"))
        } else if old.claimed && !new.claimed {
            Some(format!("{id} has not claimed its lease any more"))
        } else {
            (!mine && (new.deadline, new.claimed) != (old.deadline, old.claimed))
                .then(|| format!("{id} has another end"))
        }
    })
}

pub(super) fn revoked_is_not_made_longer(step: &ScriptRun<'_>) -> Option<String> {
    if let CallRequest::Revoke(token) = step.request {
        let told = step.after.number("revoked");
        let left = |record: &HolderView| record.token <= *token && record.token > told;
        let is_left = step.after.holders().any(|(_, record)| left(record));
        return is_left.then(|| format!("{token} is, and it says {told}"));
    }
    let revoked = step.before.number("revoked");
    let mut old = step.before.holders().filter(|(_, old)| old.token <= revoked);
    old.find_map(|(id, old)| {
        let new = step.after.holder(id)?;
        let is_more = new.deadline > old.deadline || (new.writes && !old.writes);
        (is_more && new.token <= revoked).then(|| format!("{id}, {old:?}, {new:?}"))
    })
}

/// A lease with the token that a renewal names is as strong as its holder says, or weaker. A lease
/// with another token stays as it is.
pub(super) fn no_more_than_is_held(step: &ScriptRun<'_>) -> Option<String> {
    let CallRequest::Work(WorkerCall::Renew { renew, .. }) = step.request else { return None };
    let old = step.before.holder(&step.id)?;
    // The pump after the renewal may grant the upgrade of its acquisition.
    let new = step.after.holder(&step.id).filter(|new| new.token == old.token)?;
    let is_wrong = match old.token == renew.token {
        true => (new.writes && renew.mode == LockMode::Read) || new.permits > renew.permits.into(),
        false => {
            (new.writes, new.deadline, new.state, new.permits)
                != (old.writes, old.deadline, old.state, old.permits)
        }
    };
    is_wrong.then(|| format!("{renew:?} of {old:?} leaves {new:?}"))
}

/// A repeated acquire finds the lease that it has; any other call renews it.
pub(super) fn lease_lasts(step: &ScriptRun<'_>) -> Option<String> {
    let lease = match step.request {
        CallRequest::Acquire(acquire) => acquire.lease,
        CallRequest::Work(WorkerCall::Renew { renew, .. }) => renew.lease,
        CallRequest::Work(WorkerCall::Downgrade(downgrade)) => downgrade.lease,
        _ => return None,
    };
    let record = step.after.holder(&step.id).filter(|record| record.claimed)?;
    let asked = SERVER_NOW + lease.as_millis() as u64;
    let old = step.before.holder(&step.id);
    let most = old.map_or(0, |old| old.deadline).max(asked);
    let is_new = old.is_none_or(|old| !old.claimed || (old.writes != record.writes));
    let revoked = step.before.number("revoked").max(step.after.number("revoked"));
    let is_anew = record.token > revoked
        && (is_new || matches!(step.answer, CallAnswer::Renewed(RenewReply::Renewed(_))));
    let is_wrong = record.deadline > most || (is_anew && record.deadline < asked);
    is_wrong.then(|| format!("{asked} was asked, and it has {}", record.deadline))
}
