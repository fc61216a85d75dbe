//! Commands on strings.

use crate::command_spec::{ANY_ARITY, CommandSpec, KeyPositions};
use crate::commands::key::parse_expiry;
use crate::keyspace::{Keyspace, StoredKey, StoredValue};
use crate::reply::{Blob, CommandResult, ErrorReply, OK, RedisReply};

pub(crate) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::reads("GET", (1, 1), KeyPositions::First, get),
    CommandSpec::may_grow("SET", (2, ANY_ARITY), set),
];

fn get(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    Ok(RedisReply::bulk_or_nil(store.text(args[0])?))
}

fn set(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let (key, value) = (args[0], args[1]);
    let options = SetOptions::parse(&args[2..])?;
    let expires = match options.expiry {
        None => None,
        Some(expiry) => Some(expiry.moment(store.now())?),
    };
    let before = match options.returns_old_value {
        true => Some(RedisReply::bulk_or_nil(store.text(key)?)),
        false => None,
    };
    let entry = store.entry(key);
    let allowed = match options.condition {
        None => true,
        Some(SetCondition::Absent) => entry.is_none(),
        Some(SetCondition::Present) => entry.is_some(),
    };
    let kept = entry.and_then(|entry| entry.expires_at).filter(|_| options.keeps_ttl);
    if !allowed {
        return Ok(before.unwrap_or(RedisReply::Nil));
    }
    put(store, key, value, expires.or(kept));
    Ok(before.unwrap_or(OK))
}

fn put(store: &mut Keyspace, key: &[u8], value: &[u8], expires: Option<u64>) {
    let value = StoredValue::Text(Blob::from_slice(value));
    store.set(key, Some(StoredKey { value, expires_at: expires }));
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions<'a> {
    condition: Option<SetCondition>,
    expiry: Option<SetExpiry<'a>>,
    keeps_ttl: bool,
    returns_old_value: bool,
}

#[derive(PartialEq)]
enum SetCondition {
    Absent,
    Present,
}

struct SetExpiry<'a> {
    time: &'a [u8],
    is_seconds: bool,
    is_absolute: bool,
}

impl<'a> SetOptions<'a> {
    fn parse(mut words: &[&'a [u8]]) -> Result<Self, ErrorReply> {
        let mut options = SetOptions::default();
        while let Some((word, rest)) = words.split_first() {
            words = rest;
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if options.condition != Some(SetCondition::Present) => {
                    options.condition = Some(SetCondition::Absent)
                }
                b"XX" if options.condition != Some(SetCondition::Absent) => {
                    options.condition = Some(SetCondition::Present)
                }
                b"GET" => options.returns_old_value = true,
                b"KEEPTTL" if options.expiry.is_none() => options.keeps_ttl = true,
                unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT")
                    if options.expiry.is_none() && !options.keeps_ttl =>
                {
                    let (time, rest) = rest.split_first().ok_or(ErrorReply::SYNTAX)?;
                    words = rest;
                    options.expiry = Some(SetExpiry {
                        time,
                        is_seconds: unit.starts_with(b"E"),
                        is_absolute: unit.ends_with(b"AT"),
                    });
                }
                _ => return Err(ErrorReply::SYNTAX),
            }
        }
        Ok(options)
    }
}

impl SetExpiry<'_> {
    fn moment(&self, now: u64) -> Result<u64, ErrorReply> {
        let start = if self.is_absolute { 0 } else { now };
        let moment = parse_expiry("set", self.time, self.is_seconds, start)?;
        // Both a relative and an absolute time must be positive.
        match moment > start as i64 {
            true => Ok(moment.unsigned_abs()),
            false => Err(ErrorReply::from_static("ERR invalid expire time in 'set' command")),
        }
    }
}
