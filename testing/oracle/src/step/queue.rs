//! Rules for the queue.

use crate::step::Step;
use crate::{Holder, LockHash, Waiter};

/// The waiters that a script searches for the place of a returning one: sixteen from either end.
const MAX_SEARCHED: usize = 32;

/// The holders that a call checks, if they are in the way.
const MAX_READERS_CHECKED: usize = 16;

/// A living waiter leaves the queue only by a grant or its own call, because its client has no
/// subscription, as an upgrader that may not be upgraded, or for more permits than a lowered limit
/// has.
pub(super) fn live_waiters_stay(step: &Step<'_>, before: &LockHash) -> Option<String> {
    before.living_waiters().find_map(|waiter| {
        let is_upgrade = waiter.mode == 'u';
        let holder = step.after.holder(&waiter.id);
        let stays = step.after.waiters.contains_key(&waiter.id)
            || holder.is_some_and(|holder| holder.writes || !is_upgrade);
        let leaves = step.is_mine(&waiter.id)
            && (step.is_acquire() || matches!(step.name(), "release" | "upgrade"));
        // Its read is over, revoked or was taken up.
        let reads = |hash: &LockHash| {
            let holder = hash.holder(&waiter.id);
            holder.is_some_and(|holder| holder.token > step.after.number("revoked_up_to"))
        };
        let is_over = is_upgrade && !(reads(before) && reads(step.after));
        let hears = step.is_subscribed(waiter.client());
        let is_gone = hears != Some(true)
            && (step.is_here(&waiter.node) || before.has_lapsed(waiter.client(), waiter.last_seen));
        let limit = step.after.text("limit").and_then(|limit| limit.parse().ok());
        let wants_too_much = limit.is_some_and(|limit| waiter.permits > limit);
        let may_go = leaves || is_over || is_gone || wants_too_much;
        (!stays && !may_go).then(|| format!("{} drops {waiter:?}", step.script))
    })
}

/// No call grants the lock to another acquisition that is known to be dead. (The lock may forget a
/// lapse in the same call.)
pub(super) fn dead_are_not_granted(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let is_dead = |waiter: &&Waiter| !before.is_alive(waiter) && !step.after.is_alive(waiter);
    others_granted(step, before).find(is_dead).map(|it| format!("{it:?}"))
}

/// A waiter without a subscription at its server gets no message, so it gets no grant. (But an
/// upgrader's read has become the write.)
pub(super) fn unsubscribed_are_skipped(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let is_gone = |waiter: &&Waiter| {
        waiter.mode != 'u'
            && step.is_here(&waiter.node)
            && step.is_subscribed(waiter.client()) == Some(false)
    };
    others_granted(step, before).find(is_gone).map(|it| format!("{it:?}"))
}

/// The waiters that another acquisition's call has granted the lock.
fn others_granted<'a>(
    step: &'a Step<'_>,
    before: &'a LockHash,
) -> impl Iterator<Item = &'a Waiter> {
    let others = step.granted().filter(|new| !step.is_mine(&new.id));
    others.filter_map(|new| before.waiters.get(&new.id))
}

/// A write ended in this call: it was removed, or had expired.
fn write_ended(step: &Step<'_>, before: &LockHash) -> bool {
    before.writer.as_ref().is_some_and(|old| {
        let same = |new: &Holder| (&new.id, new.token) == (&old.id, old.token);
        !step.after.writer.as_ref().is_some_and(same)
    })
}

/// When a write ends, and only then, the phase of the waiting readers goes up to the last ticket.
pub(super) fn reader_phase_is_closed(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let [old, new] = [before, step.after].map(|hash| hash.number("reader_phase"));
    // The call may have queued its own acquisition before it saw that the write is over.
    let tickets = [before, step.after].map(|hash| hash.number("ticket"));
    let ended = write_ended(step, before);
    let is_wrong = new != old && new > 0 && !(ended && tickets.contains(&new));
    let is_late = |waiter: &Waiter| {
        waiter.mode == 'r' && waiter.ticket > new && step.after.waiters.contains_key(&waiter.id)
    };
    let is_open = ended && !step.after.is_written() && before.living_waiters().any(is_late);
    (is_wrong || is_open).then(|| format!("from {old} to {new}, the last tickets are {tickets:?}"))
}

/// The first pair of a new lease and a waiter that it has `passed` and that still waits. Without a
/// wait before it, the new lease has the greatest ticket of all.
fn passed<'a>(
    step: &'a Step<'_>,
    before: &'a LockHash,
    passed: impl Fn(&Holder, u64, &Waiter) -> bool,
) -> Option<String> {
    let waits = |waiter: &&Waiter| {
        let is_still = step.after.waiters.get(&waiter.id).is_some_and(|it| step.waits(it));
        is_still && before.is_alive(waiter)
    };
    let left: Vec<&Waiter> = before.waiters.values().filter(waits).collect();
    step.granted().find_map(|new| {
        let waited = before.waiters.get(&new.id).map(|waiter| waiter.ticket);
        let asked = step.ticket().filter(|_| step.is_mine(&new.id));
        let ticket = waited.or(asked).unwrap_or(u64::MAX);
        let other = left.iter().find(|other| other.id != new.id && passed(new, ticket, other))?;
        Some(format!("{new:?} (ticket {ticket}) before {other:?}"))
    })
}

/// Whether a lease is the upgrade of a read.
fn is_upgrade(step: &Step<'_>, before: &LockHash, new: &Holder) -> bool {
    let had_read = before.readers.contains_key(&new.id) && new.writes;
    had_read || (step.name() == "upgrade" && step.is_mine(&new.id)) || step.was_upgrader(&new.id)
}

/// Nothing is granted while a reader waits for its upgrade.
pub(super) fn upgrade_goes_first(step: &Step<'_>, before: &LockHash) -> Option<String> {
    passed(step, before, |_, _, other| {
        other.mode == 'u'
            && step.after.holder(&other.id).is_some()
            && before.holder(&other.id).is_some()
    })
}

/// Waiting writers go in the order of their tickets, and so do waiting readers and the waiters of a
/// semaphore. Who did not wait goes last. (In a long queue, one that came back may stand behind its
/// place.)
pub(super) fn modes_go_in_order(step: &Step<'_>, before: &LockHash) -> Option<String> {
    passed(step, before, |new, ticket, other| {
        let mode = match (new.writes, step.after.shape()) {
            (true, _) => 'w',
            (false, "P") => 'p',
            (false, _) => 'r',
        };
        other.mode == mode
            && other.ticket < ticket
            && !is_upgrade(step, before, new)
            && !before.stands_behind(&other.id, &new.id)
    })
}

/// No writer is granted the lock while a reader waits whose phase has come: at the latest when a
/// write ends. A writer that only tries passes no reader.
pub(super) fn phase_goes_first(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let phase = step.after.number("reader_phase");
    passed(step, before, |new, ticket, other| {
        let tries = ticket == u64::MAX && step.is_try();
        let is_due = other.ticket <= phase || tries || write_ended(step, before);
        new.writes && other.mode == 'r' && is_due && !is_upgrade(step, before, new)
    })
}

/// No reader passes a phase-fair writer that waits, unless its phase has come.
pub(super) fn readers_wait(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let phase = before.number("reader_phase").max(step.after.number("reader_phase"));
    passed(step, before, |new, ticket, other| {
        !new.writes && other.mode == 'w' && other.is_fair && ticket > phase
    })
}

/// A waiter that joins stands behind all earlier tickets.
pub(super) fn nobody_comes_before_its_place(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let came = step.after.waiters.values().filter(|it| !before.waiters.contains_key(&it.id));
    came.into_iter().find_map(|waiter| {
        let behind = step.after.waiters.get(&waiter.next)?;
        (behind.ticket < waiter.ticket).then(|| format!("{waiter:?} before {behind:?}"))
    })
}

/// A list keeps the order of tickets, if it is short enough that a script finds any place in it.
/// (Two waiters may have one ticket after a failover that lost writes.)
pub(super) fn who_comes_back_finds_its_place(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let is_in_order = |queue: &[&Waiter]| queue.is_sorted_by_key(|waiter| waiter.ticket);
    ['r', 'w', 'p'].into_iter().find_map(|mode| {
        let queue = step.after.queue(mode);
        let is_wrong =
            queue.len() <= MAX_SEARCHED && is_in_order(&before.queue(mode)) && !is_in_order(&queue);
        is_wrong.then(|| format!("{queue:?}"))
    })
}

/// A call after which a waiter can have the lock grants it, or says that more is to do.
pub(super) fn next_is_granted(step: &Step<'_>) -> Option<String> {
    let hash = step.after;
    let does_nothing = match (step.name(), step.status()) {
        ("inspect" | "holds" | "raise_token", _) | (_, "too_late") => true,
        (_, status) if hash.shape() == "P" => matches!(status, "limit_mismatch" | "queue_full"),
        // It did not look.
        _ => step.is_try() && step.is_unchanged(),
    };
    if step.has_more_work() || does_nothing {
        None
    } else if hash.shape() == "P" {
        next_permits(step)
    } else {
        next_holder(step).filter(|_| !hash.is_written())
    }
}

fn next_holder(step: &Step<'_>) -> Option<String> {
    let hash = step.after;
    let readers = hash.holders().count();
    let upgrader = step.living('u').find(|waiter| hash.holder(&waiter.id).is_some());
    let writes = step.living('w').next().is_some();
    let reader = hash.queue('r').into_iter().find(|waiter| step.waits(waiter));
    // A reader that goes before the writers belongs to the phase, or all readers go first.
    let is_next = |reader: &&Waiter| {
        !writes
            || reader.ticket <= hash.number("reader_phase")
            || (!reader.is_fair && hash.number("fair_writers") == 0)
    };
    let left = match upgrader {
        _ if readers == 0 => hash.waiters.values().find(|waiter| step.waits(waiter)),
        Some(_) => upgrader.filter(|_| readers == 1),
        None => reader.filter(is_next),
    };
    left.map(|left| format!("{left:?} could have it after {}: {:?}", step.script, hash.fields))
}

fn next_permits(step: &Step<'_>) -> Option<String> {
    let hash = step.after;
    // A try does not look at many holders for dead ones, and goes on where an earlier pass ended.
    let is_midway = step.before.is_some_and(|before| before.text("sweep").is_some());
    let sees_all = !step.is_try() || (hash.readers.len() <= MAX_READERS_CHECKED && !is_midway);
    let used = if sees_all { hash.held_permits() } else { hash.number("used") };
    let left = hash.number("limit").saturating_sub(used);
    let head = hash.queue('p').into_iter().find(|waiter| step.waits(waiter));
    let wanted = match head {
        Some(head) => Some(head.permits),
        // The call may have granted a waiter that was before it.
        None if step.before?.living_waiters().next().is_some() => None,
        None => step.wanted_permits().filter(|_| step.status() == "busy"),
    };
    let wanted = wanted.filter(|wanted| *wanted <= left)?;
    Some(format!("{left} are left, and {wanted} are requested by {head:?} or {:?}", step.args))
}

/// A queue takes no new waiter beyond the limit that its call names.
pub(super) fn limit_is_kept(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let count = step.after.waiters.len();
    let is_over = step.max_waiters().is_some_and(|limit| count > limit);
    let joined = step.after.waiters.contains_key(step.id()) && step.ticket().is_none();
    (is_over && joined && is_new(step, before)).then(|| format!("{count} wait"))
}

/// A server whose memory is full takes no new holder and no new waiter.
pub(super) fn full_memory_takes_nobody(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let id = step.id();
    let is_there = step.after.waiters.contains_key(id) || step.after.holder(id).is_some();
    let is_wrong =
        step.setting.is_memory_full && step.is_acquire() && is_there && is_new(step, before);
    is_wrong.then(|| id.to_owned())
}

fn is_new(step: &Step<'_>, before: &LockHash) -> bool {
    before.holder(step.id()).is_none() && !before.waiters.contains_key(step.id())
}
