//! Rules for the queue.

use crate::checker::call::{CallAnswer, CallRequest};
use crate::checker::lock_view::{LockView, WaiterView};
use crate::checker::step_invariants::ScriptRun;
use crate::client::acquisition::WorkerCall;
use crate::protocol::{AcquireKind, AcquireReply, AcquireRequest};

pub(super) fn live_waiters_stay(step: &ScriptRun<'_>) -> Option<String> {
    step.before.living_waiters().find_map(|(id, waiter)| {
        let is_granted = step.after.holder(id).is_some_and(|it| waiter.mode != 'u' || it.writes);
        let stays = is_granted || step.after.waiters.contains_key(id);
        // An upgrader waits only while it reads, and its lease may be renewed.
        let reads = |view: &LockView| {
            view.holder(id).is_some_and(|it| it.token > step.after.number("revoked"))
        };
        let may_not_upgrade = waiter.mode == 'u' && !(reads(step.before) && reads(step.after));
        let leaves = step.is_mine(id)
            && matches!(
                step.request,
                CallRequest::Acquire(_)
                    | CallRequest::OwnerRelease
                    | CallRequest::Work(WorkerCall::Release(_))
            );
        let may_go = leaves || may_not_upgrade || step.is_disconnected(id, waiter);
        (!stays && !may_go).then(|| format!("{id} is dropped"))
    })
}

pub(super) fn dead_are_not_granted(step: &ScriptRun<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id)?;
        (!step.is_mine(id) && !step.before.is_waiter_alive(id, waiter)).then(|| id.to_owned())
    })
}

/// A grant without a subscriber would get no message. But an upgrader's read has become the write.
pub(super) fn unsubscribed_are_skipped(step: &ScriptRun<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id).filter(|waiter| waiter.mode != 'u')?;
        (!step.is_mine(id) && step.is_disconnected(id, waiter)).then(|| id.to_owned())
    })
}

pub(super) fn reader_phase_is_closed(step: &ScriptRun<'_>) -> Option<String> {
    let (old, new) = (step.before.number("phase"), step.after.number("phase"));
    // The call may have queued its own acquisition before it saw that the write is over.
    let tickets = [step.before.number("ticket"), step.after.number("ticket")];
    let is_idle = step.after.number("waiters") == 0 && step.after.holders().next().is_none();
    let is_wrong = new != old && !is_idle && !(step.write_ended() && tickets.contains(&new));
    let mut waited = step.before.living_waiters().filter(|(id, waiter)| {
        waiter.mode == 'r' && waiter.ticket > new && step.after.waiters.contains_key(*id)
    });
    let is_open = step.write_ended() && waited.next().is_some() && !step.after.writes();
    ((is_wrong && new > 0) || is_open)
        .then(|| format!("from {old} to {new}, the last ticket is {}", tickets[0]))
}

pub(super) fn order_is_kept(step: &ScriptRun<'_>) -> Option<String> {
    let granted = step.granted();
    granted.into_iter().find_map(|(id, record)| {
        let waits_to_upgrade = step.before.waiters.get(id).is_some_and(|waiter| waiter.mode == 'u');
        let upgrades = matches!(
            step.request,
            CallRequest::Acquire(AcquireRequest { kind: AcquireKind::Upgrade { .. }, .. })
        );
        if waits_to_upgrade || (upgrades && step.is_mine(id)) {
            return None;
        }
        let wrong = upgrader_first(step).or_else(|| match record.writes {
            true => writer_in_order(step, id),
            false => reader_in_order(step, id),
        });
        wrong.map(|what| format!("{id}, and {what}"))
    })
}

fn upgrader_first(step: &ScriptRun<'_>) -> Option<&'static str> {
    let mut upgraders = step.live_waiters_after('u');
    upgraders.any(|(id, _)| step.after.holder(id).is_some()).then_some("an upgrader waits")
}

fn writer_in_order(step: &ScriptRun<'_>, id: &str) -> Option<&'static str> {
    let ticket = step.ticket(id).unwrap_or(u64::MAX);
    let waited_already = |reader: &str| step.before.waiters.contains_key(reader);
    if step.write_ended() && step.live_waiters_after('r').any(|(reader, _)| waited_already(reader))
    {
        Some("readers have waited for the write to end")
    } else if step.live_waiters_after('w').any(|(_, waiter)| waiter.ticket < ticket) {
        Some("another writer came before it")
    } else {
        let phase = step.after.number("phase");
        let is_due = |waiter: &WaiterView| waiter.ticket <= phase || ticket == u64::MAX;
        step.live_waiters_after('r')
            .any(|(_, waiter)| is_due(waiter))
            .then_some("it is the readers' turn")
    }
}

fn reader_in_order(step: &ScriptRun<'_>, id: &str) -> Option<&'static str> {
    let ticket = step.ticket(id).unwrap_or(u64::MAX);
    let phase = step.before.number("phase").max(step.after.number("phase"));
    let fair_writer = step.live_waiters_after('w').any(|(_, waiter)| waiter.is_fair);
    if fair_writer && ticket > phase {
        Some("a writer waits")
    } else {
        let came_before = |waiter: &WaiterView| waiter.ticket < ticket;
        step.live_waiters_after('r')
            .any(|(_, waiter)| came_before(waiter))
            .then_some("another reader came before it")
    }
}

pub(super) fn next_is_freed(step: &ScriptRun<'_>) -> Option<String> {
    let tried = matches!(step.request, CallRequest::Acquire(AcquireRequest { wait: None, .. }));
    let is_stale = matches!(step.answer, CallAnswer::Acquired(AcquireReply::TooLate));
    if step.envelope.has_pump_work || is_stale || (tried && !step.changed) || step.after.writes() {
        return None;
    }
    let readers = step.after.holders().count();
    let upgrader = step.live_waiters_after('u').find(|(id, _)| step.after.holder(id).is_some());
    let writer = step.live_waiters_after('w').next();
    let reader = step.after.first_in_line("readers_head");
    // A reader that goes before the writers belongs to the phase, or all readers go first.
    let is_next = |reader: &WaiterView| {
        writer.is_none()
            || reader.ticket <= step.after.number("phase")
            || (!reader.is_fair && step.after.number("fair") == 0)
    };
    if readers == 0 {
        step.after.living_waiters().next().map(|(id, _)| format!("free, and {id} waits"))
    } else if let Some((id, _)) = upgrader {
        (readers == 1).then(|| format!("{id} could write"))
    } else {
        let reader = reader.filter(|(_, reader)| is_next(reader));
        reader.map(|(id, _)| format!("{id} could read"))
    }
}
