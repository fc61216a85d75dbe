//! Converts what a script returns or raises to a reply.

use bytes::Bytes;
use mlua::{LuaString, Table, Value};

use super::answer::{Failure, in_one_line};
use super::number;
use super::script_host::CHUNK;
use super::server::Digest;
use crate::node::Reply;

/// How deep a reply may be nested. The server has a similar limit.
const DEEPEST: usize = 100;

/// The reply for a script's value. (The fields `map`, `set` and `double` of a table mean nothing
/// here.)
pub(super) fn reply_of(value: &Value) -> Reply {
    reply_within(value, DEEPEST)
}

fn reply_within(value: &Value, depth: usize) -> Reply {
    match value {
        Value::String(text) => Reply::Text(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(integer) => Reply::Int(*integer),
        Value::Number(number) => Reply::Int(number::cut(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => reply_of_table(table, depth),
        _ => Reply::Nil,
    }
}

fn reply_of_table(table: &Table, depth: usize) -> Reply {
    if depth == 0 {
        return Failure::of("ERR reached lua stack limit").into();
    }
    if let Ok(Value::String(line)) = table.raw_get("err") {
        return Failure::new(line.to_string_lossy()).into();
    }
    if let Ok(Value::String(text)) = table.raw_get("ok") {
        return Reply::Text(in_one_line(&text.as_bytes()).collect());
    }
    let items = (1..).map_while(|index: i64| match table.raw_get(index) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(reply_within(&item, depth - 1)),
    });
    Reply::List(items.collect())
}

/// The error for one that the script did not catch, with the place where it was raised.
pub(super) fn blamed(failure: &Value, digest: &Digest) -> Failure {
    let Value::Table(failure) = failure else {
        return Failure::of("ERR unknown error");
    };
    let text = failure.raw_get::<LuaString>("err").map(|text| text.to_string_lossy());
    let text = text.unwrap_or_else(|error| format!("ERR {error}"));
    let line = failure.raw_get::<Option<u64>>("line").ok().flatten();
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    Failure::new(format!("{text} script: {}, on {CHUNK}{line}.", String::from_utf8_lossy(digest)))
}
