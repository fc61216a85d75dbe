//! Commands on hashes.

use crate::command_spec::{ANY_ARITY, CommandSpec, KeyPositions};
use crate::keyspace::{Fields, Keyspace};
use crate::reply::{CommandResult, ErrorReply, RedisReply};

pub(crate) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::reads("HGET", (2, 2), KeyPositions::First, hget),
    CommandSpec::reads("HMGET", (2, ANY_ARITY), KeyPositions::First, hmget),
    CommandSpec::reads("HGETALL", (1, 1), KeyPositions::First, hgetall),
    CommandSpec::may_grow("HSET", (3, ANY_ARITY), hset),
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
    let fields = store.hash(args[0])?;
    let pairs = fields.into_iter().flat_map(Fields::iter);
    Ok(RedisReply::bulks(pairs.flat_map(|(name, value)| [name, value])))
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

fn hdel(store: &mut Keyspace, args: &[&[u8]]) -> CommandResult {
    let mut removed = 0;
    for field in &args[1..] {
        removed += i64::from(store.remove_field(args[0], field)?);
    }
    Ok(RedisReply::Int(removed))
}
