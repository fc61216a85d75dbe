//! The rules for one run of a script.

use crate::checker::Step;
use crate::court::Court;
use crate::hash::{CLIENT, Hash, Record, Waiter};
use crate::permits;
use crate::plan::SEMAPHORE;

/// The least time that a key must live longer than its records: the grace period of 10 s, minus
/// small skews.
pub const GRACE_MS: u64 = 9_000;

/// The most tokens that a call mints: for its grants, and for one forced release.
const MOST_MINTED: u64 = 33;

/// The most tokens that a cached write gets at once.
const BLOCK: u64 = 1_024;

/// The scripts that grant locks to waiters.
const PUMPS: [&str; 9] = [
    "acquire_read",
    "acquire_write",
    "release",
    "renew",
    "pump",
    "downgrade",
    "upgrade",
    "take_up",
    "force_release",
];

pub fn check(court: &Court, step: &Step<'_>) {
    check_lateness(court, step);
    check_shape(court, step);
    check_exclusion(court, step);
    check_life(court, step);
    check_pump(court, step);
    let Some(before) = step.before else { return };
    check_leases(court, step, before);
    check_marks(court, step, before);
    check_fence(court, step, before);
    check_windows(court, step, before);
    check_waiters(court, step, before);
    check_limits(court, step, before);
    check_reply(court, step, before);
    if step.lock == SEMAPHORE {
        permits::check(court, step, before);
    }
}

/// A request for a lock carries a time until which it is valid, even if it is a duplicate.
fn check_lateness(court: &Court, step: &Step<'_>) {
    let requests =
        step.script.starts_with("acquire") || matches!(step.script, "upgrade" | "take_up");
    let is_late = (1..step.now).contains(&step.not_after);
    if requests && is_late && step.status() != "stale" {
        court.accuse("who comes too late gets nothing", || {
            format!(
                "lock {}: {} is {} past {}",
                step.lock,
                step.script,
                step.status(),
                step.not_after
            )
        });
    }
}

fn check_shape(court: &Court, step: &Step<'_>) {
    let hash = step.after;
    if let Some(malformed) = &hash.malformed {
        court.accuse("a hash is well formed", || {
            format!("lock {} after {}: {malformed}", step.lock, step.script)
        });
    }
    let first_end = hash.readers.values().map(|record| record.deadline).min();
    let holds_and_waits = |(id, waiter): &(&String, &Waiter)| {
        let (writes, reads) = (hash.writes(id, step.now), hash.reads(id, step.now));
        if waiter.mode == 'u' { writes } else { writes || reads }
    };
    if let Some((id, waiter)) = hash.waiters.iter().find(holds_and_waits) {
        court.accuse("nobody waits for what it holds", || {
            format!("lock {} after {}: {id} {waiter:?}", step.lock, step.script)
        });
    }
    if let Some((id, _)) =
        hash.writer.as_ref().filter(|(id, _)| hash.writes(id, step.now) && hash.reads(id, step.now))
    {
        court.accuse("nobody holds in two modes", || {
            format!("lock {} after {}: {id}", step.lock, step.script)
        });
    }
    if hash.read_min.unwrap_or(0) > first_end.unwrap_or(u64::MAX) {
        court.accuse("no dead reader is overlooked", || {
            format!("lock {}: {:?} is after {first_end:?}", step.lock, hash.read_min)
        });
    }
}

/// The records of the hash must not conflict either.
fn check_exclusion(court: &Court, step: &Step<'_>) {
    let (writers, readers): (Vec<_>, Vec<_>) =
        step.after.leases(step.now).partition(|(_, writes, _)| *writes);
    if !writers.is_empty() && !readers.is_empty() {
        court.accuse("a hash has no reader beside a writer", || {
            format!("lock {}: {writers:?} {readers:?}", step.lock)
        });
    }
}

/// A key outlives its records, and no key lives forever.
fn check_life(court: &Court, step: &Step<'_>) {
    let hash = step.after;
    if !hash.exists || !step.trusts_clocks {
        return;
    }
    let leases = hash.leases(step.now).map(|(_, _, record)| record.deadline);
    let waits = hash.waiters.values().map(|waiter| waiter.seen + waiter.ttl);
    let latest = leases.chain(waits).chain([hash.fence / 1000]).max().unwrap_or(0);
    if hash.expires.is_none_or(|expires| expires < latest + GRACE_MS) {
        court.accuse("a key outlives what it says", || {
            format!("lock {} after {}: {:?} for {latest}", step.lock, step.script, hash.expires)
        });
    }
}

/// A script that frees a lock also grants it to the next waiter.
fn check_pump(court: &Court, step: &Step<'_>) {
    let hash = step.after;
    let says_more = step.reply.get(2).is_some_and(|more| more == "1");
    if says_more
        || step.status() == "stale"
        || !PUMPS.contains(&step.script)
        || hash.waiters.is_empty()
    {
        return;
    }
    let requests = step.script.starts_with("acquire") || step.script == "upgrade";
    let alive = |mode: char| {
        let waiters = hash.waiters.iter().filter(move |(_, waiter)| waiter.mode == mode);
        waiters
            .filter(|(id, waiter)| {
                (requests && *id == step.id()) || hash.is_alive(id, waiter, step.now)
            })
            .count()
    };
    let (writes, reads) =
        (hash.leases(step.now).any(|(_, writes, _)| writes), hash.leases(step.now).count() > 0);
    let is_forgotten = if reads {
        !writes && alive('w') == 0 && alive('u') == 0 && alive('r') > 0
    } else {
        alive('w') + alive('r') > 0
    };
    if is_forgotten {
        court.accuse("whatever frees a lock grants it", || {
            format!("lock {} after {}: {hash:?}", step.lock, step.script)
        });
    }
}

/// Only the acquisition itself ends or shortens its lease, and an ended lease stays ended.
fn check_leases(court: &Court, step: &Step<'_>, before: &Hash) {
    let lock = step.lock;
    for (id, writes, record) in before.leases(step.now) {
        let heir = step.heir_of(id);
        let is_mine = step.id() == heir;
        let ends = step.script == "release" && is_mine && step.args.len() == 1;
        if ends || step.script == "force_release" || (before.forced < step.after.forced) {
            continue;
        }
        let after = step.after.lease(heir, step.now);
        if after.is_none_or(|after| after.deadline < record.deadline) {
            court.accuse("no lease is shortened", || {
                format!(
                    "lock {lock}: {} of {} made {id}'s {record:?} ({writes}) {after:?}",
                    step.script,
                    step.id()
                )
            });
        }
        let is_longer = after
            .is_some_and(|after| after.deadline > record.deadline && after.token == record.token);
        if is_longer && record.token <= before.revoked {
            court.accuse("what is revoked is not made longer", || {
                format!("lock {lock}: {id}'s {record:?} {after:?}")
            });
        }
        if is_longer && !is_mine {
            court.accuse("only its holder makes a lease longer", || {
                format!("lock {lock}: {id}'s {record:?} {after:?}")
            });
        }
    }
}

/// A cached holder can be recalled or marked as used. It never becomes plainly cached again.
fn check_marks(court: &Court, step: &Step<'_>, before: &Hash) {
    let rank = |state| "hbck".find(state);
    for (id, writes, had) in before.leases(step.now).filter(|(_, _, had)| had.is_claimed) {
        let stays = |(other, still_writes, has): &(&str, bool, Record)| {
            *other == id && *still_writes == writes && has.token == had.token
        };
        if let Some((_, _, has)) = step.after.leases(step.now).find(stays)
            && rank(has.state) > rank(had.state)
        {
            court.accuse("marks fall", || {
                format!("lock {} after {}: {id}'s {had:?} is {has:?}", step.lock, step.script)
            });
        }
    }
}

/// The last token follows the clock. Only a block of tokens of a cached write runs ahead, and not
/// for long.
fn check_fence(court: &Court, step: &Step<'_>, before: &Hash) {
    let clock = (step.now + 1) * 1000;
    let allowed = (before.fence + MOST_MINTED).max(clock + BLOCK);
    if step.script != "raise_token" && step.after.fence > allowed {
        court.accuse("the last token keeps to the clock", || {
            let fences = (before.fence, step.after.fence);
            format!("lock {} after {}: {fences:?} at {clock}", step.lock, step.script)
        });
    }
}

/// An unclaimed grant lasts for its waiter's claim window at most.
fn check_windows(court: &Court, step: &Step<'_>, before: &Hash) {
    for (id, _, record) in step.after.leases(step.now).filter(|(_, _, record)| !record.is_claimed) {
        let waited = before.waiters.get(id).filter(|waiter| waiter.mode != 'u');
        if let Some(waiter) = waited
            && record.deadline > step.now + waiter.window
        {
            court.accuse("an unclaimed grant lasts for the claim window", || {
                format!(
                    "lock {}: {id}'s {record:?} at {}, window {}",
                    step.lock, step.now, waiter.window
                )
            });
        }
    }
}

/// A waiter leaves the queue by a grant, by its own call, or after its death.
fn check_waiters(court: &Court, step: &Step<'_>, before: &Hash) {
    for (id, waiter) in &before.waiters {
        let is_gone =
            !step.after.waiters.contains_key(id) && step.after.lease(id, step.now).is_none();
        let hears_nothing = waiter.node == step.here && step.here != "-";
        let has_lapsed = before.has_lapsed(&id[..CLIENT], step.now);
        let is_another = step.id() != id && waiter.mode != 'u';
        // The waiter wants more permits than a lowered limit allows.
        let wants_too_much = step.after.limit.is_some_and(|limit| waiter.permits > limit);
        if is_gone
            && is_another
            && !wants_too_much
            && !hears_nothing
            && !has_lapsed
            && before.is_alive(id, waiter, step.now)
        {
            court.accuse("the living are not mistaken for dead", || {
                format!(
                    "lock {}: {} of {} drops {id}: {waiter:?}",
                    step.lock,
                    step.script,
                    step.id()
                )
            });
        }
    }
    if step.after.waiters.values().filter(|waiter| waiter.mode == 'u').count() > 1 {
        court.accuse("one reader waits for an upgrade", || {
            format!("lock {}: {:?}", step.lock, step.after.waiters)
        });
    }
}

/// The queue has a limit, and a server with full memory accepts no new waiter.
fn check_limits(court: &Court, step: &Step<'_>, before: &Hash) {
    let id = step.id();
    let is_new = before.lease(id, step.now).is_none() && !before.waiters.contains_key(id);
    if !is_new || !step.script.starts_with("acquire") {
        return;
    }
    let waits = step.after.waiters.contains_key(id);
    let is_over = step.limit().is_some_and(|limit| step.after.waiters.len() > limit);
    if waits && step.ticket().is_none() && is_over {
        court.accuse("a queue has its limit", || {
            format!("lock {}: {} wait", step.lock, step.after.waiters.len())
        });
    }
    if step.memory_is_full && (waits || step.after.lease(id, step.now).is_some()) {
        court.accuse("a full memory takes nobody new", || format!("lock {}: {id}", step.lock));
    }
}

/// The reply of a script must be true.
fn check_reply(court: &Court, step: &Step<'_>, before: &Hash) {
    let (id, lock, status) = (step.id(), step.lock, step.status());
    let had = before.lease(id, step.now);
    let has = step.after.lease(id, step.now);
    // A renewal grants what it can, which may be an upgrade of the same acquisition.
    let upgrades = before.upgrader.as_deref() == Some(id) && step.after.upgrader.is_none();
    let is_true = match (step.script, status) {
        // There was a record, whether its lease had ended or not; or a forced release had ended it.
        ("release", "released") => before.knows(id) && has.is_none(),
        ("release", "expired") => before.knows(id) && had.is_none() && has.is_none(),
        ("release", "absent" | "left") => has.is_none() || step.args.get(1) == Some(&"wait"),
        ("renew", "renewed" | "revoked") => {
            let outlives =
                |has: Record| step.number(4).is_some_and(|deadline| has.deadline >= deadline);
            let is_newer = |has: Record| step.number(3).is_some_and(|token| has.token > token);
            let holds_no_more = step.args[2] == "w" || !step.after.writes(id, step.now);
            had.is_some_and(|had| had.token.to_string() == step.args[3])
                && (step.says(has) && holds_no_more
                    || upgrades && has.is_some_and(|has| is_newer(has) && outlives(has)))
        }
        ("renew", "other") => {
            let is_left = |(had, has): (Record, Record)| {
                (had.token, had.deadline, had.state) == (has.token, has.deadline, has.state)
            };
            step.says(had)
                && had.is_some_and(|had| had.token.to_string() != step.args[3])
                && (upgrades || had.zip(has).is_some_and(is_left))
        }
        // The acquisition may wait, because a duplicated request arrived after its release. The
        // renewal itself may then grant it.
        ("renew", "lost") => {
            has.is_none_or(|has| before.waiters.contains_key(id) && has.token > before.fence)
        }
        ("acquire_read" | "acquire_write", "granted") => step.says(has),
        ("acquire_read" | "acquire_write", "queued") => step.after.waiters.contains_key(id),
        ("acquire_read" | "acquire_write", "refused") => has.is_none() || had.is_some(),
        ("downgrade", "granted") => {
            step.says(has) && had.is_some_and(|had| had.token.to_string() == step.args[1])
        }
        ("upgrade", "granted") => {
            let wrote = before.writer.as_ref().is_some_and(|(writer, _)| writer == id);
            step.says(has) && (wrote || has.is_some_and(|has| has.token > before.fence))
        }
        // The old acquisition has nothing any more, and the new one has its lease.
        ("take_up", "granted") => {
            let token = |record: Record| record.token.to_string() == step.args[4];
            let from = before.lease(step.args[3], step.now);
            step.says(has)
                && has.is_some_and(token)
                && (from.is_some_and(token) || had.is_some_and(token))
                && step.after.lease(step.args[3], step.now).is_none_or(|left| !token(left))
        }
        ("take_up", "lost") => had == has,
        (_, "stale") => before.says_the_same(step.after) || !step.after.exists,
        // A holder with a token above the given one keeps its lease.
        (_, "forced") => {
            let limit = id.parse().unwrap_or(u64::MAX).min(before.fence);
            let is_cut_off = |(_, _, record): (&str, bool, Record)| record.token > limit;
            step.after.fence > before.fence && step.after.leases(step.now).all(is_cut_off)
        }
        _ => true,
    };
    if !is_true {
        court.accuse("a script says what is so", || {
            format!("lock {lock}: {} of {id} says {status}, from {had:?} to {has:?}", step.script)
        });
    }
    let undoes = step.script == "downgrade"
        && before.writer.as_ref().is_some_and(|(writer, record)| {
            writer == id && record.token.to_string() != step.args[1]
        })
        && step.after.readers.contains_key(id);
    if undoes {
        court.accuse("a late downgrade undoes no upgrade", || format!("lock {lock}: {id}"));
    }
    let rises = step.script == "renew"
        && before.reads(id, step.now)
        && step.after.writes(id, step.now)
        && !upgrades;
    if rises {
        court.accuse("a renewal makes a lease no stronger", || format!("lock {lock}: {id}"));
    }
}
