//! Rules for the contents of the hash.

use crate::checker::lock_view::LockView;
use crate::checker::step_invariants::ScriptRun;
use crate::checker::time::SERVER_NOW;

/// How long the key of an idle lock lives at most, in ms.
const KEEP: u64 = 60_000;

/// How long a key outlives its last record, in ms.
const GRACE: u64 = 10_000;

pub(super) fn readers_are_dense(step: &ScriptRun<'_>) -> Option<String> {
    let LockView { readers, array, .. } = step.after;
    let count = step.after.number("readers");
    if readers.len() as u64 != count || array.len() as u64 != count {
        return Some(format!(
            "{count} readers, {} records, {} indices",
            readers.len(),
            array.len()
        ));
    }
    let is_at_home = |(index, id): (&u64, &String)| {
        readers.get(id).is_some_and(|record| record.index == *index) && *index < count
    };
    (!array.iter().all(is_at_home)).then(|| format!("{array:?}"))
}

pub(super) fn waiters_are_linked(step: &ScriptRun<'_>) -> Option<String> {
    let view = step.after;
    let count = |name: &str, wanted: usize| {
        let told = view.number(name);
        (told != wanted as u64).then(|| format!("{name} says {told}, and there are {wanted}"))
    };
    let fair = view.waiters.values().filter(|waiter| waiter.mode == 'w' && waiter.is_fair).count();
    let upgrader = view.word("upgrader").filter(|id| !view.waiters.contains_key(*id));
    count("waiters", view.waiters.len())
        .or_else(|| count("fair", fair))
        .or_else(|| upgrader.map(|id| format!("the upgrader {id} does not wait")))
        .or_else(|| list_is_linked(view, 'w', "writers_head", "writers_tail"))
        .or_else(|| list_is_linked(view, 'r', "readers_head", "readers_tail"))
        .or_else(|| list_is_linked(view, 'p', "head", "tail"))
}

fn list_is_linked(view: &LockView, mode: char, head: &str, tail: &str) -> Option<String> {
    let wanted = view.waiters.values().filter(|waiter| waiter.mode == mode).count();
    let (mut at, mut before, mut ticket, mut found) = (view.word(head).unwrap_or("-"), "-", 0, 0);
    while at != "-" {
        let Some(waiter) = view.waiters.get(at) else {
            return Some(format!("{at} is linked and does not wait"));
        };
        found += 1;
        if waiter.mode != mode || waiter.previous != before || found > wanted {
            return Some(format!("{at} is linked wrongly"));
        }
        if waiter.ticket < ticket {
            return Some(format!("{at} stands behind a higher ticket"));
        }
        (before, at, ticket) = (at, &waiter.next, waiter.ticket);
    }
    let ends = view.word(tail).unwrap_or("-");
    (found != wanted || ends != before)
        .then(|| format!("{found} of {wanted} in the list to {tail} {ends}"))
}

pub(super) fn empty_fields_are_removed(step: &ScriptRun<'_>) -> Option<String> {
    let view = step.after;
    let nobody_reads = view.readers.is_empty();
    let readers = ["read_min", "forced"].into_iter().find(|field| view.number(field) > 0);
    let sweep = view.word("sweep").map(|_| "sweep");
    let of_readers = readers.or(sweep).filter(|_| nobody_reads);
    let is_idle = nobody_reads && view.waiters.is_empty() && view.writer.is_none();
    let life = view.ends.filter(|ends| is_idle && *ends > SERVER_NOW + KEEP);
    of_readers
        .map(|field| format!("{field} without readers"))
        .or_else(|| life.map(|ends| format!("an idle lock lives until {ends}")))
}

pub(super) fn line_has_key_expiry(step: &ScriptRun<'_>) -> Option<String> {
    let (view, told) = (step.after, step.after.number("life"));
    (!view.is_empty() && view.ends != Some(told))
        .then(|| format!("the line tells {told}, the key ends at {:?}", view.ends))
}

pub(super) fn read_min_is_not_late(step: &ScriptRun<'_>) -> Option<String> {
    let least = step.after.readers.values().map(|record| record.deadline).min()?;
    let told = step.after.number("read_min");
    (told > least).then(|| format!("{told}, and one ends at {least}"))
}

pub(super) fn key_lives(step: &ScriptRun<'_>) -> Option<String> {
    let view = step.after;
    if view.is_empty() {
        return None;
    }
    let Some(ends) = view.ends else { return Some("it never ends".into()) };
    let deadlines = view.holders().map(|(_, record)| record.deadline);
    let last = deadlines.max().filter(|last| ends < last + GRACE);
    let is_used = view.holders().next().is_some() || !view.waiters.is_empty();
    let short = ends < SERVER_NOW + GRACE && step.changed && is_used;
    let waiters = view.living_waiters().map(|(_, waiter)| waiter.ends());
    let place = waiters.max().filter(|last| ends < last + GRACE);
    last.map(|last| format!("it ends at {ends}, a lease at {last}"))
        .or_else(|| place.map(|last| format!("it ends at {ends}, a place in the queue at {last}")))
        .or_else(|| short.then(|| format!("it ends at {ends}, before the grace is over")))
}

pub(super) fn writer_is_alone(step: &ScriptRun<'_>) -> Option<String> {
    let holders = step.after.holders().count();
    (step.after.writes() && holders > 1)
        .then(|| format!("{:?}", step.after.holders().collect::<Vec<_>>()))
}
