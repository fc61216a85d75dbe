//! Rules for cached leases.

use crate::checker::call::CallAnswer;
use crate::checker::lock_view::{HolderView, LockView};
use crate::checker::step_invariants::ScriptRun;
use crate::protocol::AcquireReply;

/// A lease that was recalled or is in use does not return to its earlier state, except by a
/// downgrade: it may be that no client wants the read of a recalled write.
pub(super) fn cache_state_only_advances(step: &ScriptRun<'_>) -> Option<String> {
    let rank = |record: &HolderView| "kcb".find(record.state);
    step.before.holders().find_map(|(id, old)| {
        let new = step.after.holder(id).filter(|new| new.token == old.token)?;
        let is_wrong = match (rank(old), rank(new)) {
            (Some(old), Some(new)) => new < old,
            (Some(_), None) => true,
            (None, Some(_)) => old.claimed,
            (None, None) => false,
        };
        (is_wrong && old.writes == new.writes)
            .then(|| format!("{id} was {}, and is {}", old.state, new.state))
    })
}

pub(super) fn cached_are_counted(step: &ScriptRun<'_>) -> Option<String> {
    let LockView { readers, marks, .. } = step.after;
    let is_marked = |(id, record): &(&String, &HolderView)| {
        marks.contains(*id) == matches!(record.state, 'k' | 'c')
    };
    let counted = step.after.number("cached");
    if counted != marks.len() as u64 {
        return Some(format!("{counted}, and there are {marks:?}"));
    }
    readers.iter().find(|it| !is_marked(it)).map(|(id, record)| format!("{id}, {record:?}"))
}

/// Each call of the first waiter recalls the cached leases in its way.
pub(super) fn first_waiter_recalls(step: &ScriptRun<'_>) -> Option<String> {
    let (view, CallAnswer::Acquired(AcquireReply::Queued { .. })) = (step.after, step.answer)
    else {
        return None;
    };
    let me = view.waiters.get(&step.id)?;
    let is_at = |head| view.first_in_line(head).is_some_and(|(id, _)| id == step.id);
    let is_first = match me.mode {
        'u' => true,
        'w' => is_at("writers_head") && view.word("upgrader").is_none(),
        _ => is_at("readers_head") && view.living_waiters().all(|(_, other)| other.mode == 'r'),
    };
    let is_in_the_way = |id: &str, record: &HolderView| {
        let blocks = record.writes || me.mode != 'r';
        matches!(record.state, 'k' | 'c')
            && id != step.id
            && blocks
            && step.is_client_subscribed(id)
    };
    let mut holders = view.holders().filter(|(id, record)| is_in_the_way(id, record));
    let unasked = holders.find(|(id, _)| !step.recalls.iter().any(|asked| asked == id));
    let (id, _) = unasked.filter(|_| is_first && !step.envelope.has_pump_work)?;
    Some(format!("{id} is not asked"))
}
