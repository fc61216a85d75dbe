//! The rare states. A simulation that never reaches them shows nothing.

use oracle::{Holder, LockHash};

use crate::census::Census;
use crate::checker::Step;

/// The index of the mark in a reply that recalls a holder.
const RECALLED: usize = 6;

/// States that a command and its reply show.
pub fn by_reply(census: &Census, words: &[&[u8]], reply: &[String]) {
    let Some(first) = reply.first() else { return };
    let state = match first.split(' ').next().unwrap_or("") {
        "-MOVED" => "MOVED followed",
        "-ASK" => "ASK answered",
        "-NOSCRIPT" => "script unknown",
        "-CLUSTERDOWN" => "CLUSTERDOWN answered",
        "-OOM" => "refused for want of memory",
        _ if words[0] == b"ASKING" => "ASK followed",
        _ if words[0] == b"WAIT" => by_wait(words, first),
        _ if !words[0].starts_with(b"EVAL") => return,
        _ => match first.split(' ').next().unwrap_or("") {
            "too_late" => "a late duplicate was refused",
            "queued" => "waited",
            "busy" => "a try was refused",
            "not_held" => "a renewal came too late",
            "queue_full" => "a queue was full",
            "recalling" => "a strict try met caches alone",
            "left_queue" => "a wait was given up",
            _ => return,
        },
    };
    census.count(state);
}

/// Whether as many replicas as wanted confirmed the writes.
fn by_wait(words: &[&[u8]], found: &str) -> &'static str {
    let wanted = words.get(1).and_then(|wanted| std::str::from_utf8(wanted).ok()?.parse().ok());
    match (wanted, found.parse::<u64>()) {
        (Some(wanted), Ok(found)) if found >= wanted => "enough replicas confirmed it",
        _ => "too few replicas confirmed it",
    }
}

/// States that a change of the hash shows.
pub fn by_change(census: &Census, step: &Step<'_>) {
    let Some(before) = step.before else { return };
    let (after, now, id) = (step.after, step.after.now, step.id());
    census.count_if("work was left over", step.has_more_work());
    census.count_if("went on with what was left over", step.script == "grant_waiters");
    if after.number("reader_phase") > before.number("reader_phase") {
        census.count("a phase was closed");
    }
    let sweeps = [before, after].map(|hash| hash.text("sweep"));
    if sweeps.iter().all(Option::is_some) && sweeps[0] != sweeps[1] {
        census.count("a sweep was continued");
    }
    census.count_if("a claim lapsed", after.lapsed != before.lapsed && !after.lapsed.is_empty());
    let mut dead_readers = before.readers.values().filter(|reader| reader.deadline <= now);
    if dead_readers.any(|dead| dead.id != id && !after.readers.contains_key(&dead.id)) {
        census.count("a dead reader was swept away");
    }
    for waiter in before.waiters.values() {
        let is_gone = waiter.id != id
            && !after.waiters.contains_key(&waiter.id)
            && after.holder(&waiter.id).is_none();
        if is_gone {
            let was_alive = before.is_alive(waiter) && !before.has_lapsed(waiter.client(), 0);
            if !was_alive {
                census.count("a dead waiter was skipped");
            } else if waiter.node == step.arg(1) && waiter.mode != 'u' {
                census.count("a waiter that hears nothing was passed over");
            }
        }
    }
    by_caches(census, step, before);
    let (had, has) = (before.holder(id), after.holder(id));
    if had.is_some_and(|had| !had.is_claimed()) && has.is_some_and(Holder::is_claimed) {
        census.count(if step.script == "renew" {
            "a push was claimed"
        } else {
            "a grant was found by a look"
        });
    }
    if step.is_acquire() && had.is_some_and(Holder::is_claimed) && step.status() == "granted" {
        census.count("an unknown outcome was resolved");
        if step.replica_lags {
            census.count("an unknown outcome was resolved while a replica lagged");
        }
    }
    if step.script == "renew" && step.replica_lags && before.stored == after.stored {
        census.count("a renewal changed nothing while a replica lagged");
    }
    let has_new_token =
        |writer: &Holder| writer.id == id && step.named_token() != Some(writer.token);
    if step.script == "renew" {
        if had.is_some_and(|had| had.writes) && has.is_some_and(|has| !has.writes) {
            census.count("a renewal repeated a lost downgrade");
        }
        census.count_if("a renewal named another token", step.status() == "other");
    }
    if step.script == "downgrade" && before.writer.as_ref().is_some_and(has_new_token) {
        census.count("a downgrade came after the next upgrade");
    }
    if step.script == "release" && had.is_none() && before.record(id).is_some() {
        census.count("released after its end");
    }
    let came_back = step.ticket().is_some() && !before.waiters.contains_key(id);
    if came_back && let Some(entry) = after.waiters.get(id) {
        census.count("a waiter was put back");
        census.count_if("a waiter was put back in ticket order", entry.next != "-");
    }
    if had.is_some()
        && step.script == "release"
        && before.readers.get(id).is_some_and(|it| it.index + 1 < before.readers.len() as u64)
    {
        census.count("the hole of a reader was filled");
    }
}

/// States of the semaphore.
pub fn by_permits(census: &Census, step: &Step<'_>) {
    let Some(before) = step.before else { return };
    let (had, has) = (before.holder(step.id()), step.after.holder(step.id()));
    match (step.name(), step.status()) {
        ("acquire", "granted") if had.is_none() => census.count("permits were acquired"),
        ("acquire", "queued") if step.ticket().is_none() => census.count("permits waited"),
        ("acquire", "limit_mismatch") => census.count("another limit was refused"),
        ("renew", "renewed") if had.is_some_and(|had| !had.is_claimed()) => {
            census.count("pushed permits were claimed");
        }
        ("release_permits", "kept")
            if had.zip(has).is_some_and(|(had, has)| has.permits < had.permits) =>
        {
            census.count("permits were released in part");
        }
        ("renew", "renewed")
            if had.zip(has).is_some_and(|(had, has)| has.permits < had.permits) =>
        {
            census.count("a renewal repeated a lost partial release");
        }
        ("set_limit", "set") if step.after.text("limit") != before.text("limit") => {
            census.count("a limit was changed");
        }
        _ => {}
    }
    if step.after.number("used") > step.after.number("limit") {
        census.count("more permits were in use than a lowered limit");
    }
}

/// States of cached holders.
fn by_caches(census: &Census, step: &Step<'_>, before: &LockHash) {
    let (after, id) = (step.after, step.id());
    let states =
        |hash: &LockHash, state: char| hash.holders().filter(|it| it.state == state).count();
    if states(before, 'c') < states(after, 'c') {
        census.count("a cached holder was marked as called back");
    }
    if states(before, 'b') < states(after, 'b') {
        census.count("a cached holder was told to be in use");
    }
    let cursor = after.recall_cursor();
    if cursor.is_some() && cursor != before.recall_cursor() {
        census.count("cached readers were called back");
    }
    let (had, has) = (before.holder(id), after.holder(id));
    let is_known = had.is_some();
    let (had, has) = (had.filter(|it| it.is_cached()), has.filter(|it| it.is_cached()));
    let tells = step.reply.get(RECALLED).is_some_and(|recalled| recalled != "-");
    match (step.script, had, has) {
        ("renew", Some(had), Some(_)) if tells && had.state == 'c' => {
            census.count("a contact told of a recall");
        }
        ("renew", Some(_), Some(_)) if tells => {
            census.count("a contact told of a recall without a mark");
        }
        ("acquire_read" | "acquire_write", None, Some(_)) if tells => {
            census.count("what was cached was wanted when it was granted");
        }
        ("renew" | "acquire_read" | "acquire_write", None, Some(_)) if tells && is_known => {
            census.count("what was cached was wanted when it was claimed");
        }
        _ => {}
    }
    let is_write = has.is_some_and(|has| has.writes);
    let fences = [before, after].map(|hash| hash.number("fence"));
    if step.script == "renew" && is_write && fences[1] >= 1_000 * (after.now + 1) {
        census.count("a cached write got no tokens from a clock that was behind");
    }
    match (step.script, had, has) {
        ("renew", Some(_), Some(_)) if fences[1] > fences[0] => {
            census.count("a cached write got more tokens");
        }
        ("renew", Some(_), Some(_)) => census.count("a cached holder was in contact"),
        ("downgrade", Some(had), Some(_)) if had.state == 'c' => {
            census.count("a cached write became a cached read");
            census.count("what was called back was downgraded");
        }
        ("downgrade", Some(_), Some(_)) => census.count("a cached write became a cached read"),
        ("release", Some(had), None) if had.state == 'c' => {
            census.count("what was called back was given back");
        }
        ("acquire_read" | "acquire_write", None, Some(_)) => census.count("a lock was cached"),
        _ => {}
    }
}
