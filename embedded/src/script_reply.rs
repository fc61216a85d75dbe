//! Converts what a script returns or raises to a reply.

use bytes::Bytes;
use mlua::{LuaString, Table, Value};
use rwlease_core::resp::RespValue;

use crate::lua_host::CHUNK_NAME;
use crate::number;
use crate::reply::{ErrorReply, to_single_line};
use crate::server::Digest;

/// How deep a reply may be nested. The server has a similar limit.
const MAX_DEPTH: usize = 100;

/// The reply for a script's value. (The fields `map`, `set` and `double` of a table mean nothing
/// here.)
pub(crate) fn to_reply(value: &Value) -> RespValue {
    reply_within(value, MAX_DEPTH)
}

fn reply_within(value: &Value, depth: usize) -> RespValue {
    match value {
        Value::String(text) => RespValue::String(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(integer) => RespValue::Int(*integer),
        Value::Number(number) => RespValue::Int(number::truncate(*number)),
        Value::Boolean(true) => RespValue::Int(1),
        Value::Table(table) => table_to_reply(table, depth),
        _ => RespValue::Nil,
    }
}

fn table_to_reply(table: &Table, depth: usize) -> RespValue {
    if depth == 0 {
        return ErrorReply::from_static("ERR reached lua stack limit").into();
    }
    if let Ok(Value::String(line)) = table.raw_get("err") {
        return ErrorReply::new(line.to_string_lossy()).into();
    }
    if let Ok(Value::String(text)) = table.raw_get("ok") {
        return RespValue::String(to_single_line(&text.as_bytes()).collect());
    }
    let items = (1..).map_while(|index: i64| match table.raw_get(index) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(reply_within(&item, depth - 1)),
    });
    RespValue::Array(items.collect())
}

/// Returns the error reply for an error that the script did not catch, with the line that raised
/// it.
pub(crate) fn annotate_error(failure: &Value, digest: &Digest) -> ErrorReply {
    let Value::Table(failure) = failure else {
        return ErrorReply::from_static("ERR unknown error");
    };
    let text = failure.raw_get::<LuaString>("err").map(|text| text.to_string_lossy());
    let text = text.unwrap_or_else(|error| format!("ERR {error}"));
    let line = failure.raw_get::<Option<u64>>("line").ok().flatten();
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    ErrorReply::new(format!(
        "{text} script: {}, on {CHUNK_NAME}{line}.",
        String::from_utf8_lossy(digest)
    ))
}
