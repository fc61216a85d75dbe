//! Commands on hashes.

use crate::embedded::answer::{Answer, Failure, Outcome};
use crate::embedded::command::{Act, Command, Keys, MANY};
use crate::embedded::number;
use crate::embedded::store::{Fields, Store};

pub(in crate::embedded) static COMMANDS: &[Command] = &[
    Command::reads("HGET", (2, 2), Keys::First, Act::Data(hget)),
    Command::reads("HMGET", (2, MANY), Keys::First, Act::Data(hmget)),
    Command::reads("HGETALL", (1, 1), Keys::First, Act::Data(hgetall)),
    Command::reads("HKEYS", (1, 1), Keys::First, Act::Data(hkeys)),
    Command::reads("HVALS", (1, 1), Keys::First, Act::Data(hvals)),
    Command::reads("HLEN", (1, 1), Keys::First, Act::Data(hlen)),
    Command::reads("HEXISTS", (2, 2), Keys::First, Act::Data(hexists)),
    Command::grows("HSET", (3, MANY), hset),
    Command::grows("HSETNX", (3, 3), hsetnx),
    Command::grows("HINCRBY", (3, 3), hincrby),
    Command::writes("HDEL", (2, MANY), Keys::First, hdel),
];

fn hget(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let fields = store.hash(args[0])?;
    let value = fields.and_then(|fields| fields.get(args[1]));
    Ok(Answer::bulk_or_nil(value))
}

fn hmget(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let fields = store.hash(args[0])?;
    let value = |name: &&[u8]| Answer::bulk_or_nil(fields.and_then(|fields| fields.get(*name)));
    Ok(Answer::List(args[1..].iter().map(value).collect()))
}

fn hgetall(store: &mut Store, args: &[&[u8]]) -> Outcome {
    listed(store, args, |fields| {
        Answer::bulks(fields.iter().flat_map(|(name, value)| [name, value]))
    })
}

fn hkeys(store: &mut Store, args: &[&[u8]]) -> Outcome {
    listed(store, args, |fields| Answer::bulks(fields.keys()))
}

fn hvals(store: &mut Store, args: &[&[u8]]) -> Outcome {
    listed(store, args, |fields| Answer::bulks(fields.values()))
}

fn listed(store: &mut Store, args: &[&[u8]], list: impl Fn(&Fields) -> Answer) -> Outcome {
    let fields = store.hash(args[0])?;
    Ok(fields.map_or(Answer::List(Vec::new()), list))
}

fn hlen(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let fields = store.hash(args[0])?;
    Ok(Answer::count(fields.map_or(0, Fields::len)))
}

fn hexists(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let fields = store.hash(args[0])?;
    let exists = fields.is_some_and(|fields| fields.contains_key(args[1]));
    Ok(Answer::Int(exists.into()))
}

fn hset(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let (pairs, rest) = args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::of("ERR wrong number of arguments for 'hset' command"));
    }
    let mut added = 0;
    for [field, value] in pairs {
        added += i64::from(store.set_field(args[0], field, value.as_ref())?);
    }
    Ok(Answer::Int(added))
}

fn hsetnx(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let fields = store.hash(args[0])?;
    if fields.is_some_and(|fields| fields.contains_key(args[1])) {
        return Ok(Answer::Int(0));
    }
    store.set_field(args[0], args[1], args[2])?;
    Ok(Answer::Int(1))
}

fn hincrby(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let by = number::argument(args[2])?;
    let fields = store.hash(args[0])?;
    let value = match fields.and_then(|fields| fields.get(args[1])) {
        Some(value) => {
            number::parse(value).ok_or(Failure::of("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let sum =
        value.checked_add(by).ok_or(Failure::of("ERR increment or decrement would overflow"))?;
    store.set_field(args[0], args[1], sum.to_string().as_bytes())?;
    Ok(Answer::Int(sum))
}

fn hdel(store: &mut Store, args: &[&[u8]]) -> Outcome {
    let mut removed = 0;
    for field in &args[1..] {
        removed += i64::from(store.remove_field(args[0], field)?);
    }
    Ok(Answer::Int(removed))
}
