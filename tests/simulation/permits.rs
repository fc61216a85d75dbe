//! The rules for one run of a semaphore's script, in addition to those of locks.

use crate::checker::Step;
use crate::court::Court;
use crate::hash::{Hash, Record, Waiter};

pub fn check(court: &Court, step: &Step<'_>, before: &Hash) {
    check_limit(court, step, before);
    check_order(court, step, before);
    check_pump(court, step);
    check_reply(court, step, before);
}

/// Whether there are enough free permits for the largest request of a living waiter.
pub fn is_enough_for_any(hash: &Hash, now: u64) -> bool {
    let used: u64 = hash.leases(now).map(|(_, _, record)| record.permits).sum();
    let wanted = hash.waiters.values().filter(|waiter| waiter.seen + waiter.ttl > now);
    let most = wanted.map(|waiter| waiter.permits).max().unwrap_or(0);
    hash.limit.is_some_and(|limit| used + most <= limit)
}

/// No grant exceeds the limit. Only after the limit was lowered can more permits be in use, and
/// then none is granted.
fn check_limit(court: &Court, step: &Step<'_>, before: &Hash) {
    let hash = step.after;
    let is_over = hash.limit.is_some_and(|limit| hash.used > limit);
    if is_over && hash.used > before.used {
        court.accuse("a hash has no more permits in use than its limit", || {
            format!("after {}: {} of {:?}, and {}", step.script, hash.used, hash.limit, before.used)
        });
    }
    let grown = hash.readers.iter().find(|(id, record)| {
        before
            .readers
            .get(*id)
            .is_some_and(|had| had.token == record.token && had.permits < record.permits)
    });
    if let Some((id, record)) = grown {
        court.accuse("a holder gets no further permits", || {
            format!("after {}: {id} {record:?}", step.script)
        });
    }
    let may_change = step.script == "set_limit" && step.status() == "set";
    let lives = before.expires.is_none_or(|expires| expires > step.now);
    if before.limit != hash.limit && before.exists && lives && hash.exists && !may_change {
        court.accuse("only its call changes a limit", || {
            let (limits, now) = ((before.limit, hash.limit), step.now);
            format!("{} at {now}: {limits:?}, the key until {:?}", step.script, before.expires)
        });
    }
}

/// No request is granted while an earlier one waits.
fn check_order(court: &Court, step: &Step<'_>, before: &Hash) {
    let granted = step.after.leases(step.now).map(|(id, _, _)| id);
    for id in granted.filter(|id| before.lease(id, step.now).is_none()) {
        let comes_back = step.id() == id && step.ticket().is_some(); // it may have lost its place
        let was_before = |other: &str| match before.waiters.contains_key(id) {
            true => before.stands_behind(id, other),
            false => !comes_back,
        };
        let still_waits =
            |other: &&String| step.after.waiters.contains_key(*other) && was_before(other);
        if let Some(other) = before.waiters.keys().find(still_waits) {
            court.accuse("permits are given first in, first out", || {
                format!("{} grants {id}, which is behind {other}", step.script)
            });
        }
    }
}

/// A script that frees permits or changes the limit also grants the next waiter.
fn check_pump(court: &Court, step: &Step<'_>) {
    let hash = step.after;
    let says_more = step.reply.get(2).is_some_and(|more| more == "1");
    let does_nothing = matches!(step.status(), "stale" | "limit" | "full");
    if says_more || does_nothing || step.script == "inspect" {
        return;
    }
    let is_head = |(id, _): &(&String, &Waiter)| {
        hash.waiters.values().all(|waiter| waiter.next != id.as_str())
    };
    let Some((id, head)) = hash.waiters.iter().find(is_head) else { return };
    let is_enough = hash.limit.is_some_and(|limit| hash.used + head.permits <= limit);
    if is_enough && hash.is_alive(id, head, step.now) {
        court.accuse("whatever frees permits grants them", || {
            format!("after {}: {hash:?}", step.script)
        });
    }
}

/// The reply of a script must be true.
fn check_reply(court: &Court, step: &Step<'_>, before: &Hash) {
    let (had, has) = (before.lease(step.id(), step.now), step.after.lease(step.id(), step.now));
    let number = |at: usize| step.args.get(at).and_then(|word| word.parse::<u64>().ok());
    let is_true = match (step.script, step.status()) {
        // A duplicated request may arrive after some of its permits were released.
        ("acquire", "granted") => {
            let wanted = |has: Record| match had {
                Some(had) => has.permits == had.permits,
                None => Some(has.permits) == number(2),
            };
            step.says(has) && has.is_some_and(wanted)
        }
        ("acquire", "queued") => step.after.waiters.contains_key(step.id()),
        ("acquire", "refused") => has.is_none(),
        ("acquire", "limit") => {
            has.is_none() && step.number(3) == step.after.limit && step.number(3) != number(3)
                || before.waiters.contains_key(step.id())
                || step.ticket().is_some()
        }
        ("shrink", "kept") => {
            let kept = had.map(|had| had.permits).min(number(1));
            step.says(has) && has.map(|has| has.permits) == kept && step.number(5) == kept
        }
        ("shrink", "lost") => had.is_none(),
        // A lost partial release is repeated.
        ("renew", "renewed") => {
            let kept = had.map(|had| had.permits).min(number(2));
            step.says(has)
                && has.map(|has| has.permits) == kept
                && had.map(|had| had.token) == number(3)
        }
        ("renew", "other") => {
            let left = |record: Record| (record.token, record.deadline, record.permits);
            step.says(has) && had.map(left) == has.map(left) && step.number(3) != number(3)
        }
        ("set_limit", "set") => step.after.limit == number(1),
        ("set_limit", "limit") => {
            before.limit == step.after.limit && step.number(3) == step.after.limit
        }
        _ => true,
    };
    if !is_true {
        court.accuse("a script says what is so", || {
            let (id, status) = (step.id(), step.status());
            format!("{} of {id} says {status}, from {had:?} to {has:?}", step.script)
        });
    }
}
