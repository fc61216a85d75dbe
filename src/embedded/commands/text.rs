//! Commands on strings.

use crate::embedded::answer::{Answer, Blob, Failure, OK, Outcome};
use crate::embedded::command::{Act, Command, Keys, MANY};
use crate::embedded::commands::key::moment;
use crate::embedded::store::{Entry, Store, Value};

pub(in crate::embedded) static COMMANDS: &[Command] = &[
    Command::reads("GET", (1, 1), Keys::First, Act::Data(get)),
    Command::grows("SET", (2, MANY), set),
    Command::grows("SETNX", (2, 2), setnx),
];

fn get(store: &mut Store, args: &[&[u8]]) -> Outcome {
    Ok(Answer::bulk_or_nil(store.text(args[0])?))
}

fn setnx(store: &mut Store, args: &[&[u8]]) -> Outcome {
    if store.contains(args[0]) {
        return Ok(Answer::Int(0));
    }
    put(store, args[0], args[1], None);
    Ok(Answer::Int(1))
}

fn set(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let (key, value) = (args[0], args[1]);
    let options = Options::parse(&args[2..])?;
    let expires = match options.expiry {
        None => None,
        Some(expiry) => Some(expiry.moment(store.now())?),
    };
    let before = match options.answers_value {
        true => Some(Answer::bulk_or_nil(store.text(key)?)),
        false => None,
    };
    let entry = store.entry(key);
    let allowed = match options.condition {
        None => true,
        Some(Condition::Absent) => entry.is_none(),
        Some(Condition::Present) => entry.is_some(),
    };
    let kept = entry.and_then(|entry| entry.expires).filter(|_| options.keeps_expiry);
    if !allowed {
        return Ok(before.unwrap_or(Answer::Nil));
    }
    put(store, key, value, expires.or(kept));
    Ok(before.unwrap_or(OK))
}

fn put(store: &mut Store, key: &[u8], value: &[u8], expires: Option<u64>) {
    let value = Value::Text(Blob::from_slice(value));
    store.set(key, Some(Entry { value, expires }));
}

/// The options of `SET`.
#[derive(Default)]
struct Options<'a> {
    condition: Option<Condition>,
    expiry: Option<Expiry<'a>>,
    keeps_expiry: bool,
    answers_value: bool,
}

#[derive(PartialEq)]
enum Condition {
    Absent,
    Present,
}

struct Expiry<'a> {
    time: &'a [u8],
    is_seconds: bool,
    is_absolute: bool,
}

impl<'a> Options<'a> {
    fn parse(mut words: &[&'a [u8]]) -> Result<Self, Failure> {
        let mut options = Options::default();
        while let Some((word, rest)) = words.split_first() {
            words = rest;
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if options.condition != Some(Condition::Present) => {
                    options.condition = Some(Condition::Absent)
                }
                b"XX" if options.condition != Some(Condition::Absent) => {
                    options.condition = Some(Condition::Present)
                }
                b"GET" => options.answers_value = true,
                b"KEEPTTL" if options.expiry.is_none() => options.keeps_expiry = true,
                unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT")
                    if options.expiry.is_none() && !options.keeps_expiry =>
                {
                    let (time, rest) = rest.split_first().ok_or(Failure::SYNTAX)?;
                    words = rest;
                    options.expiry = Some(Expiry {
                        time,
                        is_seconds: unit.starts_with(b"E"),
                        is_absolute: unit.ends_with(b"AT"),
                    });
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(options)
    }
}

impl Expiry<'_> {
    fn moment(&self, now: u64) -> Result<u64, Failure> {
        let start = if self.is_absolute { 0 } else { now };
        let moment = moment("set", self.time, self.is_seconds, start)?;
        // Both a relative and an absolute time must be positive.
        match moment > start as i64 {
            true => Ok(moment.unsigned_abs()),
            false => Err(Failure::of("ERR invalid expire time in 'set' command")),
        }
    }
}
