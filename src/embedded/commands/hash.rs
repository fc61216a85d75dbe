//! Commands on hashes.

use crate::embedded::command_spec::{ANY_ARITY, CommandSpec, KeyPositions};
use crate::embedded::keyspace::{Fields, Keyspace};
use crate::embedded::number;
use crate::embedded::reply::{CommandResult, ErrorReply, RedisReply};

pub(in crate::embedded) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::reads("HGET", (2, 2), KeyPositions::First, hget),
    CommandSpec::reads("HMGET", (2, ANY_ARITY), KeyPositions::First, hmget),
    CommandSpec::reads("HGETALL", (1, 1), KeyPositions::First, hgetall),
    CommandSpec::reads("HKEYS", (1, 1), KeyPositions::First, hkeys),
    CommandSpec::reads("HVALS", (1, 1), KeyPositions::First, hvals),
    CommandSpec::reads("HLEN", (1, 1), KeyPositions::First, hlen),
    CommandSpec::reads("HEXISTS", (2, 2), KeyPositions::First, hexists),
    CommandSpec::may_grow("HSET", (3, ANY_ARITY), hset),
    CommandSpec::may_grow("HSETNX", (3, 3), hsetnx),
    CommandSpec::may_grow("HINCRBY", (3, 3), hincrby),
    CommandSpec::writes("HDEL", (2, ANY_ARITY), KeyPositions::First, hdel),
];

fn hget(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let fields = store.hash(args[0])?;
    let value = fields.and_then(|fields| fields.get(args[1]));
    Ok(RedisReply::bulk_or_nil(value))
}

fn hmget(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let fields = store.hash(args[0])?;
    let value = |name: &&[u8]| RedisReply::bulk_or_nil(fields.and_then(|fields| fields.get(*name)));
    Ok(RedisReply::List(args[1..].iter().map(value).collect()))
}

fn hgetall(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    listed(store, args, |fields| {
        RedisReply::bulks(fields.iter().flat_map(|(name, value)| [name, value]))
    })
}

fn hkeys(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    listed(store, args, |fields| RedisReply::bulks(fields.keys()))
}

fn hvals(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    listed(store, args, |fields| RedisReply::bulks(fields.values()))
}

fn listed(
    store: &mut Keyspace,
    args: &[&[u8]],
    list: impl Fn(&Fields) -> RedisReply,
) -> CommandResult {
    let fields = store.hash(args[0])?;
    Ok(fields.map_or(RedisReply::List(Vec::new()), list))
}

fn hlen(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let fields = store.hash(args[0])?;
    Ok(RedisReply::count(fields.map_or(0, Fields::len)))
}

fn hexists(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let fields = store.hash(args[0])?;
    let exists = fields.is_some_and(|fields| fields.contains_key(args[1]));
    Ok(RedisReply::Int(exists.into()))
}

fn hset(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let (pairs, rest) = args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(ErrorReply::from_static("ERR wrong number of arguments for 'hset' command"));
    }
    let mut added = 0;
    for [field, value] in pairs {
        added += i64::from(store.set_field(args[0], field, value.as_ref())?);
    }
    Ok(RedisReply::Int(added))
}

fn hsetnx(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let fields = store.hash(args[0])?;
    if fields.is_some_and(|fields| fields.contains_key(args[1])) {
        return Ok(RedisReply::Int(0));
    }
    store.set_field(args[0], args[1], args[2])?;
    Ok(RedisReply::Int(1))
}

fn hincrby(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let by = number::parse_argument(args[2])?;
    let fields = store.hash(args[0])?;
    let value = match fields.and_then(|fields| fields.get(args[1])) {
        Some(value) => number::parse(value)
            .ok_or(ErrorReply::from_static("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = value
        .checked_add(by)
        .ok_or(ErrorReply::from_static("ERR increment or decrement would overflow"))?;
    store.set_field(args[0], args[1], sum.to_string().as_bytes())?;
    Ok(RedisReply::Int(sum))
}

fn hdel(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let mut removed = 0;
    for field in &args[1..] {
        removed += i64::from(store.remove_field(args[0], field)?);
    }
    Ok(RedisReply::Int(removed))
}
