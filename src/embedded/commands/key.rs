//! Commands on keys of any type, and on when they expire.

use crate::embedded::answer::{Answer, Failure, Outcome};
use crate::embedded::command::{Act, Command, Keys, MANY};
use crate::embedded::store::{Entry, Store, Value};
use crate::embedded::{glob, number};

pub(in crate::embedded) static COMMANDS: &[Command] = &[
    Command::writes("DEL", (1, MANY), Keys::All, del),
    Command::writes("UNLINK", (1, MANY), Keys::All, del),
    Command::reads("EXISTS", (1, MANY), Keys::All, Act::Data(exists)),
    Command::reads("TYPE", (1, 1), Keys::First, Act::Data(kind)),
    Command::writes("EXPIRE", (2, MANY), Keys::First, |store, args| {
        let start = store.now();
        expire(store, args, "expire", true, start)
    }),
    Command::writes("PEXPIRE", (2, MANY), Keys::First, |store, args| {
        let start = store.now();
        expire(store, args, "pexpire", false, start)
    }),
    Command::writes("EXPIREAT", (2, MANY), Keys::First, |store, args| {
        expire(store, args, "expireat", true, 0)
    }),
    Command::writes("PEXPIREAT", (2, MANY), Keys::First, |store, args| {
        expire(store, args, "pexpireat", false, 0)
    }),
    Command::writes("PERSIST", (1, 1), Keys::First, persist),
    Command::reads("TTL", (1, 1), Keys::First, Act::Data(ttl)),
    Command::reads("PTTL", (1, 1), Keys::First, Act::Data(pttl)),
    Command::reads("PEXPIRETIME", (1, 1), Keys::First, Act::Data(pexpiretime)),
    Command::reads("SCAN", (1, MANY), Keys::None, Act::Data(scan)),
    Command::reads("DBSIZE", (0, 0), Keys::None, Act::Data(dbsize)),
];

fn del(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let removed = args.iter().filter(|key| store.set(key, None)).count();
    Ok(Answer::count(removed))
}

fn exists(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let found = args.iter().filter(|key| store.contains(key)).count();
    Ok(Answer::count(found))
}

fn kind(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let entry = store.entry(args[0]);
    Ok(Answer::Status(entry.map_or("none", kind_of)))
}

fn kind_of(entry: &Entry) -> &'static str {
    match entry.value {
        Value::Text(_) => "string",
        Value::Hash(_) => "hash",
    }
}

fn expire(store: &mut Store, args: &[&[u8]], name: &str, is_seconds: bool, start: u64) -> Outcome {
    let conditions = Conditions::parse(&args[2..])?;
    let moment = moment(name, args[1], is_seconds, start)?;
    let Some(entry) = store.entry(args[0]) else {
        return Ok(Answer::Int(0));
    };
    let moment = u64::try_from(moment).unwrap_or(0);
    if !conditions.allow(entry.expires, moment) {
        return Ok(Answer::Int(0));
    }
    if moment <= store.now() {
        store.set(args[0], None);
    } else {
        store.set_expiry(args[0], Some(moment));
    }
    Ok(Answer::Int(1))
}

fn persist(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let ends = store.entry(args[0]).is_some_and(|entry| entry.expires.is_some());
    if ends {
        store.set_expiry(args[0], None);
    }
    Ok(Answer::Int(ends.into()))
}

fn pttl(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let now = store.now();
    Ok(Answer::Int(until(store.entry(args[0]), |expires| expires - now)))
}

fn ttl(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let now = store.now();
    Ok(Answer::Int(until(store.entry(args[0]), |expires| (expires - now + 500) / 1000)))
}

fn pexpiretime(store: &mut Store, args: &[&[u8]]) -> Outcome {
    Ok(Answer::Int(until(store.entry(args[0]), |expires| expires)))
}

fn until(entry: Option<&Entry>, measure: impl Fn(u64) -> u64) -> i64 {
    const NO_KEY: i64 = -2;
    const NO_END: i64 = -1;
    match entry {
        None => NO_KEY,
        Some(entry) => entry.expires.map_or(NO_END, |expires| measure(expires) as i64),
    }
}

/// The moment in ms that a time argument of a command stands for.
pub(super) fn moment(
    command: &str,
    time: &[u8],
    is_seconds: bool,
    start: u64,
) -> Result<i64, Failure> {
    let time = number::argument(time)?;
    let unit = if is_seconds { 1000 } else { 1 };
    let moment = time.checked_mul(unit).and_then(|ms| ms.checked_add_unsigned(start));
    moment.ok_or_else(|| Failure::new(format!("ERR invalid expire time in '{command}' command")))
}

/// The conditions of `EXPIRE` and its variants.
#[derive(Default)]
struct Conditions {
    none_before: bool,
    one_before: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(words: &[&[u8]]) -> Result<Self, Failure> {
        let mut conditions = Conditions::default();
        for word in words {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => conditions.none_before = true,
                b"XX" => conditions.one_before = true,
                b"GT" => conditions.later = true,
                b"LT" => conditions.earlier = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Failure::new(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if conditions.none_before
            && (conditions.one_before || conditions.later || conditions.earlier)
        {
            return Err(Failure::of(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if conditions.later && conditions.earlier {
            return Err(Failure::of("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// A key without an expiry counts as one that expires after any other.
    fn allow(&self, before: Option<u64>, after: u64) -> bool {
        !(self.none_before && before.is_some()
            || self.one_before && before.is_none()
            || self.later && before.is_none_or(|before| after <= before)
            || self.earlier && before.is_some_and(|before| after >= before))
    }
}

/// Visits the keys in the order of their positions. A cursor is the position to continue from, so
/// keys that stay are seen whatever else changes between two calls.
fn scan(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let cursor = str_of(args[0]).and_then(|cursor| cursor.parse::<u64>().ok());
    let cursor = cursor.ok_or(Failure::of("ERR invalid cursor"))?;
    let options = ScanOptions::parse(&args[1..])?;
    let rest: Vec<_> = store.keys().into_iter().skip_while(|(place, _)| *place < cursor).collect();
    // Keys with the same position are returned together, because a cursor cannot point between
    // them.
    let last = rest.get(options.count - 1).map(|(place, _)| *place);
    let taken = match last {
        Some(last) => rest.partition_point(|(place, _)| *place <= last),
        None => rest.len(),
    };
    let next = rest.get(taken).map_or(0, |(place, _)| *place);
    let found = rest[..taken].iter().map(|(_, key)| key);
    let found =
        found.filter(|key| options.pattern.is_none_or(|pattern| glob::matches(pattern, key)));
    let found: Vec<_> = found
        .filter(|key| {
            let kind = store.entry(key).map(kind_of).unwrap_or_default();
            options.kind.is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind.as_bytes()))
        })
        .collect();
    Ok(Answer::List(vec![Answer::bulk(next.to_string()), Answer::bulks(found)]))
}

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    count: usize,
}

impl<'a> ScanOptions<'a> {
    fn parse(words: &[&'a [u8]]) -> Result<Self, Failure> {
        let mut options = ScanOptions { pattern: None, kind: None, count: 10 };
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Failure::SYNTAX);
        }
        for [name, value] in pairs {
            match name.to_ascii_uppercase().as_slice() {
                b"MATCH" => options.pattern = Some(value),
                b"TYPE" => options.kind = Some(value),
                b"COUNT" => {
                    let count = usize::try_from(number::argument(value)?).ok();
                    options.count = count.filter(|count| *count > 0).ok_or(Failure::SYNTAX)?;
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(options)
    }
}

fn str_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn dbsize(store: &mut Store, _: &[&[u8]]) -> Outcome {
    Ok(Answer::count(store.len()))
}
