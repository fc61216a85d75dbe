//! Rules for the contents of a hash, whatever call left it.

use crate::lock_hash::ends_of;
use crate::step::{Setting, Step};
use crate::{Holder, LockHash, Waiter};

/// How long a key outlives what it records, in ms.
const KEY_GRACE: u64 = 10_000;

/// How much later than needed an expiry is set, in ms.
const EXPIRY_SLACK: u64 = 10_000;

/// The longest life of the key of an idle lock, in ms.
const IDLE_KEY_TTL: u64 = 60_000;

/// The reasons for which a lock has the shape of a queue.
const REASONS_FOR_Q: [&str; 6] =
    ["writer", "waiters", "revoked_up_to", "forced_up_to", "sweep", "cached_readers"];

/// The indices of the readers are 0 to one less than their number, each once.
pub(super) fn readers_are_dense(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let array: Vec<(&String, &String)> = indices(hash).collect();
    let (told, count) = (hash.number("readers"), hash.readers.len());
    let is_at_home = |holder: &Holder| {
        let entry = hash.text(&format!("i:{}", holder.index));
        entry.map(|id| id.trim_start_matches('+')) == Some(&holder.id)
    };
    let is_dense =
        told == count as u64 && array.len() == count && hash.readers.values().all(is_at_home);
    (!is_dense).then(|| format!("{told} readers, {array:?} of {:?}", hash.readers))
}

fn indices(hash: &LockHash) -> impl Iterator<Item = (&String, &String)> {
    hash.fields.iter().filter(|(field, _)| field.starts_with("i:"))
}

/// The cached readers are marked in the array and counted, and only they are recalled.
pub(super) fn cached_are_counted(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let cached: Vec<&Holder> = hash.readers.values().filter(|it| it.is_cached()).collect();
    let is_marked = |it: &&Holder| {
        hash.text(&format!("i:{}", it.index)).is_some_and(|entry| entry.starts_with('+'))
    };
    let marks = indices(hash).filter(|(_, entry)| entry.starts_with('+')).count();
    let told = hash.text("cached_readers");
    let is_counted = match cached.len() {
        0 => told.is_none() && hash.text("recall_cursor").is_none(),
        count => told == Some(&count.to_string()),
    };
    let is_right = is_counted
        && marks == cached.len()
        && cached.iter().all(is_marked)
        && hash.recall_cursor().is_none_or(|next| next >= -1);
    (!is_right).then(|| format!("{told:?} cached, {marks} marks: {cached:?}"))
}

/// The waiters of each mode are one list from its head to its tail, and the numbers of waiters are
/// those that wait.
pub(super) fn waiters_are_linked(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let of_mode = |mode| hash.waiters.values().filter(move |waiter| waiter.mode == mode);
    let is_counted = |field: &str, count: usize| hash.number(field) == count as u64;
    let upgraders: Vec<&str> = of_mode('u').map(|waiter| waiter.id.as_str()).collect();
    let last = hash.waiters.values().map(|waiter| waiter.ticket).max().unwrap_or(0);
    let is_right = is_counted("waiters", hash.waiters.len())
        && is_counted("fair_writers", of_mode('w').filter(|waiter| waiter.is_fair).count())
        && upgraders == Vec::from_iter(hash.text("upgrader"))
        && last <= hash.number("ticket")
        && ['r', 'w', 'p'].into_iter().all(|mode| is_linked(hash, mode, of_mode(mode).count()));
    (!is_right).then(|| format!("{:?}", hash.fields))
}

fn is_linked(hash: &LockHash, mode: char, count: usize) -> bool {
    let (queue, (head, tail)) = (hash.queue(mode), ends_of(mode));
    let ids = |place: usize| queue.get(place).map_or("-", |waiter| waiter.id.as_str());
    let is_in_place = |(place, waiter): (usize, &&Waiter)| {
        let previous = place.checked_sub(1).map_or("-", ids);
        (waiter.mode, waiter.previous.as_str(), waiter.next.as_str())
            == (mode, previous, ids(place + 1))
    };
    queue.len() == count
        && hash.text(head).unwrap_or("-") == ids(0)
        && hash.text(tail).unwrap_or("-") == ids(queue.len().wrapping_sub(1))
        && queue.iter().enumerate().all(is_in_place)
}

/// A field is there only while it tells something, and the flags of the line tell which ones are.
pub(super) fn fields_have_a_reason(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let (shape, flags) = (hash.shape(), hash.number("flags"));
    let (reads, waits) = (!hash.readers.is_empty(), !hash.waiters.is_empty());
    let is_used = reads || waits || hash.writer.is_some();
    let is_record = |kinds: &[&str], field: &str| kinds.iter().any(|kind| field.starts_with(kind));
    let has_reason = |field: &str| match (field, shape) {
        ("pad", _) => hash.text("pad") == Some(&"-".repeat(65)),
        ("ticket" | "lapsed_clients", "S" | "P") => is_used && flags >= 2,
        ("reader_phase", "S") => flags >= 2,
        ("sweep", "P") => reads && flags >= 2,
        ("waiters" | "head" | "tail", "P") => waits && flags >= 2,
        (_, "S") => is_record(&["r:", "i:"], field),
        (_, "P") => is_record(&["r:", "i:", "q:"], field),
        ("readers" | "read_min" | "sweep" | "forced_up_to", "Q") => reads,
        ("cached_readers" | "recall_cursor", "Q") => reads,
        ("waiters" | "fair_writers" | "upgrader", "Q") => waits,
        ("readers_head" | "readers_tail" | "writers_head" | "writers_tail", "Q") => waits,
        ("ticket" | "lapsed_clients" | "reader_phase" | "revoked_up_to", "Q") => is_used,
        (_, "Q") => field == "writer" || is_record(&["r:", "i:", "q:"], field),
        _ => false,
    };
    let mut beside = hash.stored.keys().map(String::as_str).filter(|field| *field != "s");
    let odd = beside.clone().find(|field| !has_reason(field));
    let is_of_queue = |field: &str| field != "pad" && !is_record(&["r:", "i:", "q:"], field);
    let is_missing = match shape {
        "S" | "P" => flags >= 2 && !beside.any(is_of_queue),
        "Q" => !REASONS_FOR_Q.iter().any(|field| hash.text(field).is_some()),
        "" => !hash.is_empty(),
        _ => false,
    };
    let lacks_bound = reads && hash.text("read_min").is_none();
    (odd.is_some() || is_missing || lacks_bound).then(|| format!("{odd:?} in {:?}", hash.stored))
}

/// `read_min` is a lower bound of the readers' deadlines, and during a sweep the lowest deadline
/// seen is one of those that the sweep has checked.
pub(super) fn no_dead_reader_is_overlooked(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let sweep = hash.text("sweep").and_then(|text| text.split_once(' '));
    let sweep: Option<(u64, u64)> =
        sweep.and_then(|(next, least)| Some((next.parse().ok()?, least.parse().ok()?)));
    let least = hash.number("read_min");
    let is_overlooked = |reader: &&Holder| {
        let is_checked = sweep.is_some_and(|(next, _)| reader.index > next);
        let is_below = sweep.is_some_and(|(_, seen)| reader.deadline < seen);
        reader.deadline < least || (is_checked && is_below && reader.deadline > hash.now)
    };
    let reader = hash.readers.values().find(is_overlooked);
    reader.map(|reader| format!("{reader:?}, {least} and {sweep:?} are said"))
}

/// The living holders are one writer, or readers.
pub(super) fn writer_is_alone(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let holders: Vec<&Holder> = hash.holders().collect();
    (hash.is_written() && holders.len() > 1).then(|| format!("{holders:?}"))
}

/// No acquisition waits for what it has. (A reader may wait for an upgrade.)
pub(super) fn holders_do_not_wait(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let has = |waiter: &&Waiter| {
        hash.holder(&waiter.id).is_some_and(|holder| holder.writes || waiter.mode != 'u')
    };
    hash.waiters.values().find(has).map(|waiter| format!("{waiter:?}"))
}

/// The key expires when the line says.
pub(super) fn line_has_key_expiry(hash: &LockHash, setting: &Setting<'_>) -> Option<String> {
    let (told, ends) = (hash.number("life"), hash.expires);
    let is_so = ends.is_some_and(|ends| ends.abs_diff(told) <= setting.skew);
    let is_judged = !hash.is_empty() && !setting.distrusts_clocks;
    (is_judged && !is_so).then(|| format!("the line tells {told}, the key ends at {ends:?}"))
}

/// A key lives until the grace after all leases, waits and tokens in it.
pub(super) fn key_lives(step: &Step<'_>) -> Option<String> {
    let (hash, Setting { forgets_time, skew, distrusts_clocks, .. }) = (step.after, step.setting);
    let deadlines = hash.records().map(|record| record.deadline);
    let waits = hash.waiters.values().map(Waiter::ends);
    let moments = deadlines.chain(waits).filter(|at| !forgets_time || *at > hash.now);
    let is_used = hash.holders().next().is_some() || !hash.waiters.is_empty();
    let least = match forgets_time {
        true if is_used && !step.is_unchanged() => hash.now,
        true => 0,
        false => hash.number("fence") / 1_000,
    };
    let last = moments.chain((least > 0).then_some(least)).max();
    let is_short =
        hash.expires.is_none_or(|ends| last.is_some_and(|last| ends + skew < last + KEY_GRACE));
    let is_judged = !hash.is_empty() && !distrusts_clocks;
    (is_judged && is_short).then(|| format!("it ends at {:?}, for {last:?}", hash.expires))
}

/// The key of an idle lock, and of one whose flags say that no release must look at it, ends within
/// a minute.
pub(super) fn idle_key_ends(hash: &LockHash, setting: &Setting<'_>) -> Option<String> {
    let is_idle = hash.records().next().is_none() && hash.waiters.is_empty();
    let is_short = matches!(hash.text("flags"), Some("0" | "2"));
    let slack = if hash.shape() == "P" && !is_idle { EXPIRY_SLACK } else { 0 };
    let latest = (hash.now + setting.skew).max(hash.number("fence") / 1_000);
    let ends = hash.expires.filter(|ends| *ends > latest + IDLE_KEY_TTL + slack)?;
    let is_judged = (is_idle || is_short) && !setting.distrusts_clocks;
    is_judged.then(|| format!("{ends} is long after {latest}"))
}
