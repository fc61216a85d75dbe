//! Commands on keys of any type, and on when they expire.

use crate::command_spec::{ANY_ARITY, CommandSpec, KeyPositions};
use crate::keyspace::{Keyspace, StoredKey, StoredValue};
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::{glob, number};

pub(crate) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::writes("DEL", (1, ANY_ARITY), KeyPositions::All, del),
    CommandSpec::reads("EXISTS", (1, ANY_ARITY), KeyPositions::All, exists),
    CommandSpec::reads("TYPE", (1, 1), KeyPositions::First, type_command),
    CommandSpec::writes("PEXPIREAT", (2, 2), KeyPositions::First, pexpireat),
    CommandSpec::reads("PTTL", (1, 1), KeyPositions::First, pttl),
    CommandSpec::reads("PEXPIRETIME", (1, 1), KeyPositions::First, pexpiretime),
    CommandSpec::reads("SCAN", (1, ANY_ARITY), KeyPositions::None, scan),
];

fn del(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let removed = args.iter().filter(|key| store.set(key, None)).count();
    Ok(RedisReply::count(removed))
}

fn exists(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let found = args.iter().filter(|key| store.contains(key)).count();
    Ok(RedisReply::count(found))
}

fn type_command(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let entry = store.entry(args[0]);
    Ok(RedisReply::Status(entry.map_or("none", kind_of)))
}

fn kind_of(entry: &StoredKey) -> &'static str {
    match entry.value {
        StoredValue::Text(_) => "string",
        StoredValue::Hash(_) => "hash",
    }
}

fn pexpireat(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let moment = u64::try_from(parse_expiry("pexpireat", args[1], false, 0)?).unwrap_or(0);
    let exists = match moment <= store.now() {
        true => store.set(args[0], None),
        false => store.set_expiry(args[0], moment),
    };
    Ok(RedisReply::Int(exists.into()))
}

fn pttl(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let now = store.now();
    Ok(RedisReply::Int(until(store.entry(args[0]), |expires| expires - now)))
}

fn pexpiretime(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    Ok(RedisReply::Int(until(store.entry(args[0]), |expires| expires)))
}

fn until(entry: Option<&StoredKey>, measure: impl Fn(u64) -> u64) -> i64 {
    const NO_KEY: i64 = -2;
    const NO_END: i64 = -1;
    match entry {
        None => NO_KEY,
        Some(entry) => entry.expires_at.map_or(NO_END, |expires| measure(expires) as i64),
    }
}

/// The moment in ms that a time argument of a command stands for.
pub(super) fn parse_expiry(
    command: &str,
    time: &[u8],
    is_seconds: bool,
    start: u64,
) -> Result<i64, ErrorReply> {
    let time = number::parse_argument(time)?;
    let unit = if is_seconds { 1000 } else { 1 };
    let moment = time.checked_mul(unit).and_then(|ms| ms.checked_add_unsigned(start));
    moment.ok_or_else(|| ErrorReply::new(format!("ERR invalid expire time in '{command}' command")))
}

/// Visits the keys in the order of their positions. A cursor is the position to continue from, so
/// keys that stay are seen whatever else changes between two calls.
fn scan(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let cursor = str_of(args[0]).and_then(|cursor| cursor.parse::<u64>().ok());
    let cursor = cursor.ok_or(ErrorReply::from_static("ERR invalid cursor"))?;
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
    Ok(RedisReply::List(vec![RedisReply::bulk(next.to_string()), RedisReply::bulks(found)]))
}

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    count: usize,
}

impl<'a> ScanOptions<'a> {
    fn parse(words: &[&'a [u8]]) -> Result<Self, ErrorReply> {
        let mut options = ScanOptions { pattern: None, kind: None, count: 10 };
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(ErrorReply::SYNTAX);
        }
        for [name, value] in pairs {
            match name.to_ascii_uppercase().as_slice() {
                b"MATCH" => options.pattern = Some(value),
                b"TYPE" => options.kind = Some(value),
                b"COUNT" => {
                    let count = usize::try_from(number::parse_argument(value)?).ok();
                    options.count = count.filter(|count| *count > 0).ok_or(ErrorReply::SYNTAX)?;
                }
                _ => return Err(ErrorReply::SYNTAX),
            }
        }
        Ok(options)
    }
}

fn str_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
