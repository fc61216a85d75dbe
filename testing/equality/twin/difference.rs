//! What may differ between the two sides.

use rwlease_core::resp::RespValue;

use crate::random_calls::Call;
use crate::side::{Lock, Outcome, Pair, words};

/// Returns the first difference that is not allowed, at this time in ms.
pub fn compare(
    pair: &Pair,
    call: &Call,
    quick: &Outcome,
    slow: &Outcome,
    now: u64,
) -> Result<(), String> {
    let before: Vec<_> = call.keys.iter().map(|key| (key, pair.locks.get(key))).collect();
    let differ = |what: &str, quick: String, slow: String| {
        Err(format!("{what} differs, from {before:#?}\n fast path {quick}\n slow path {slow}"))
    };
    if essence(&quick.reply) != essence(&slow.reply) && !is_timeless(&quick.reply, &slow.reply) {
        return differ("the reply", format!("{:?}", quick.reply), format!("{:?}", slow.reply));
    } else if quick.pushes != slow.pushes {
        let [quick, slow] = [quick, slow].map(|outcome| format!("{:?}", outcome.pushes));
        return differ("what is pushed", quick, slow);
    }
    let is_release = call.script.ends_with("release");
    for ((quick, slow), (_, before)) in quick.locks.iter().zip(&slow.locks).zip(&before) {
        let is_left = || is_release && !had_queue(*before) && is_alike(*before, quick, slow, now);
        if quick != slow && !is_longer(quick, slow) && !is_left() {
            return differ("the lock", format!("{quick:#?}"), format!("{slow:#?}"));
        }
    }
    Ok(())
}

/// Lets both sides continue from the state of the fast path.
pub fn go_on(pair: &mut Pair, call: &Call, quick: Outcome, slow: &Outcome) {
    for ((key, quick), slow) in call.keys.iter().zip(quick.locks).zip(&slow.locks) {
        if quick != *slow {
            make_alike(pair, key, &quick);
        }
        pair.locks.insert(key.clone(), quick);
    }
}

/// Copies the state of the fast path to the slow side.
fn make_alike(pair: &mut Pair, key: &str, quick: &Lock) {
    let fields = quick.raw.iter().flat_map(|(field, value)| [field.as_ref(), value]);
    let set: Vec<&[u8]> = [b"HSET", key.as_bytes()].into_iter().chain(fields).collect();
    let ends = quick.ends.unwrap_or_default().to_string();
    let copy = [words(&["DEL", key]), words(&set), words(&["PEXPIREAT", key, &ends])];
    pair.with_free_memory(|pair| pair.sides[1].tell(&copy));
}

/// Whether the two sides differ only as they may after a usual release, which does not look for
/// dead readers. Without any, the readers must be the same.
fn is_alike(before: Option<&Lock>, quick: &Lock, slow: &Lock, now: u64) -> bool {
    let is_dead =
        |text: &str| text.get(1..14).is_some_and(|ends| ends <= format!("{now:013}").as_str());
    let mut readers = before.into_iter().flat_map(|lock| &lock.fields);
    let has_dead = readers.any(|(field, text)| field.starts_with("r:") && is_dead(text));
    let is_idle = |lock: &Lock| match lock.fields.get("shape").map(String::as_str) {
        Some("P") => ["readers", "waiters"].iter().all(|field| !lock.fields.contains_key(*field)),
        shape => shape == Some("F"),
    };
    let is_idle = is_idle(quick) || is_idle(slow);
    let [quick, slow] = [quick, slow].map(|lock| {
        let mut left = lock.fields.clone();
        left.retain(|field, text| match field.as_str() {
            "life" | "ticket" | "reader_phase" => !is_idle,
            "lapsed_clients" => false, // a dead reader's grant may have lapsed
            "read_min" | "sweep" | "shape" | "flags" => false,
            "readers" | "used" => !has_dead,
            _ if field.starts_with("i:") => !has_dead,
            _ if field.starts_with("r:") && has_dead => {
                let keeps = !is_dead(text);
                text.truncate(30);
                keeps
            }
            _ => true,
        });
        let ends = lock.ends.filter(|_| !is_idle);
        (left, ends)
    });
    quick == slow
}

/// Whether the lock had a queue: then a release is not a usual one.
fn had_queue(lock: Option<&Lock>) -> bool {
    let field = |name: &str| lock.and_then(|lock| lock.fields.get(name)).map(String::as_str);
    match field("shape") {
        Some("P") => field("flags") >= Some("2"),
        shape => shape == Some("Q"),
    }
}

/// Whether the locks differ only in the flag of a long lease, which the fast path still has.
fn is_longer(quick: &Lock, slow: &Lock) -> bool {
    let flags = |lock: &Lock| lock.fields.get("flags")?.parse::<u32>().ok();
    let same = |lock: &Lock| {
        let mut fields = lock.fields.clone();
        fields.remove("flags");
        (fields, lock.ends)
    };
    flags(quick).zip(flags(slow)).is_some_and(|(quick, slow)| quick == slow + 1 && slow % 2 == 0)
        && same(quick) == same(slow)
}

/// Whether the replies differ only because a usual release has not read the time.
fn is_timeless(quick: &RespValue, slow: &RespValue) -> bool {
    let (RespValue::String(quick), RespValue::String(slow)) = (quick, slow) else { return false };
    let slow: Vec<&[u8]> = slow.split(|byte| *byte == b' ').collect();
    quick.as_ref() == b"released 0 0"
        && slow.len() == 3
        && slow[0] == b"released"
        && slow[2] == b"0"
}

/// Only the code of an error that is not the scripts' own, because its text names the line.
fn essence(reply: &RespValue) -> RespValue {
    let mut reply = reply.clone();
    if let RespValue::Error(error) = &mut reply
        && !error.code.starts_with("LOCK")
    {
        error.message.clear();
    }
    reply
}
