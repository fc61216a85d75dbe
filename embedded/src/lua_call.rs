//! One `redis.call`: its words as Lua passes them, and its answer as Lua sees it.
//!
//! A simulation spends most of its time here. So arguments are copied from Lua's stack as bytes,
//! which is several times faster than converting each one to a Lua value. Answers go to the stack
//! in the same way.

use std::sync::{Arc, Mutex};

use mlua::{BString, Either, IntoLua, Lua, LuaString, Table, Value, Variadic};
use smallvec::SmallVec;

use crate::cluster_state::ClusterWorld;
use crate::locks::lock;
use crate::reply::{ErrorReply, RedisReply};

/// A word of a command: the bytes of a string or a number, or nothing for nil. The right side is a
/// value that cannot be a word.
type LuaArg = Either<Option<BString>, bool>;

/// What a script gets: a reply, or nothing and the text of an error. The error `true` requests the
/// words again, without numbers.
type LuaResult = (Option<LuaReply>, Option<Either<bool, String>>);

/// How a script sees an answer: a boolean, an integer, a string, or another value.
type LuaReply = Either<Either<bool, i64>, Either<String, Value>>;

/// Gives the sandbox the functions that make a call for the script that `world` marks as running.
/// Each takes the number of the words and the words: up to four, up to eight, or any number,
/// because absent arguments cost time as well.
pub(crate) fn add_functions(
    lua: &Lua,
    functions: &Table,
    world: &Arc<Mutex<ClusterWorld>>,
) -> mlua::Result<()> {
    type Four = (LuaArg, LuaArg, LuaArg, LuaArg);
    type Eight = (LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg);
    #[rustfmt::skip]
    type Many = (
        LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, LuaArg, Variadic<LuaArg>,
    );

    let call = LuaCall(world.clone());
    functions.set(
        "execute_four",
        lua.create_function(move |lua, (count, (a, b, c, d)): (usize, Four)| {
            call.run(lua, count, &[a, b, c, d])
        })?,
    )?;
    let call = LuaCall(world.clone());
    functions.set(
        "execute_eight",
        lua.create_function(move |lua, (count, (a, b, c, d, e, f, g, h)): (usize, Eight)| {
            call.run(lua, count, &[a, b, c, d, e, f, g, h])
        })?,
    )?;
    let call = LuaCall(world.clone());
    functions.set(
        "execute_many",
        lua.create_function(move |lua, (count, words): (usize, Many)| {
            let (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, others) = words;
            let words = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o];
            match others.is_empty() {
                true => call.run(lua, count, &words),
                false => call.run(lua, count, &words.into_iter().chain(others).collect::<Vec<_>>()),
            }
        })?,
    )?;
    let call = LuaCall(world.clone());
    functions.set(
        "execute_exact",
        lua.create_function(move |lua, (count, words): (usize, Variadic<LuaArg>)| {
            call.run_exact(lua, count, &words)
        })?,
    )
}

struct LuaCall(Arc<Mutex<ClusterWorld>>);

type Slices<'a> = SmallVec<[&'a [u8]; 16]>;

impl LuaCall {
    fn run(&self, lua: &Lua, count: usize, words: &[LuaArg]) -> mlua::Result<LuaResult> {
        match to_slices(count, words) {
            Ok(words) if words.iter().any(|word| may_be_truncated(word)) => {
                Ok((None, Some(Either::Left(true))))
            }
            words => self.finish(lua, words),
        }
    }

    fn run_exact(&self, lua: &Lua, count: usize, words: &[LuaArg]) -> mlua::Result<LuaResult> {
        self.finish(lua, to_slices(count, words))
    }

    fn finish(&self, lua: &Lua, words: Result<Slices<'_>, ErrorReply>) -> mlua::Result<LuaResult> {
        match words.and_then(|words| lock(&self.0).call_by_script(&words)) {
            Ok(answer) => Ok((Some(to_lua(lua, answer)?), None)),
            Err(failure) => Ok((None, Some(Either::Right(failure.line().to_owned())))),
        }
    }
}

fn to_slices(count: usize, words: &[LuaArg]) -> Result<Slices<'_>, ErrorReply> {
    let mut slices = Slices::new();
    for word in words.iter().take(count) {
        match word {
            Either::Left(Some(bytes)) => slices.push(bytes.as_slice()),
            _ => {
                return Err(ErrorReply::from_static(
                    "ERR Lua redis lib command arguments must be strings or integers",
                ));
            }
        }
    }
    Ok(slices)
}

/// Returns true if this may be a number that Lua printed with fewer digits than the server would:
/// it has a fraction or an exponent. (Lua prints an integer of up to 14 digits in full, and a
/// longer one with an exponent.)
fn may_be_truncated(word: &[u8]) -> bool {
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e');
    word.first().is_some_and(|first| matches!(first, b'0'..=b'9' | b'-'))
        && word.iter().any(|byte| matches!(byte, b'.' | b'e'))
        && word.iter().all(is_number)
}

fn to_lua(lua: &Lua, answer: RedisReply) -> mlua::Result<LuaReply> {
    Ok(match answer {
        RedisReply::Nil => Either::Left(Either::Left(false)),
        RedisReply::Int(number) => Either::Left(Either::Right(number)),
        RedisReply::Bulk(bytes) => Either::Right(match str::from_utf8(&bytes) {
            Ok(text) => Either::Left(text.to_owned()),
            Err(_) => Either::Right(Value::String(lua.create_string(&bytes)?)),
        }),
        RedisReply::Status(text) => {
            let table = lua.create_table_from([("ok", text)])?;
            Either::Right(Either::Right(Value::Table(table)))
        }
        RedisReply::List(items) => Either::Right(Either::Right(list(lua, &items)?)),
    })
}

fn list(lua: &Lua, items: &[RedisReply]) -> mlua::Result<Value> {
    let is_flat = items.iter().all(|item| matches!(item, RedisReply::Nil | RedisReply::Bulk(_)));
    if !is_flat {
        return nested_list(lua, items);
    }
    let items = items.iter().map(|item| match item {
        RedisReply::Bulk(bytes) => Either::Left(bytes_to_lua(bytes)),
        _ => Either::Right(false),
    });
    Ok(Value::Table(lua.create_sequence_from(items)?))
}

fn nested_list(lua: &Lua, items: &[RedisReply]) -> mlua::Result<Value> {
    let items: mlua::Result<Vec<LuaReply>> =
        items.iter().map(|item| to_lua(lua, item.clone())).collect();
    Ok(Value::Table(lua.create_sequence_from(items?)?))
}

/// Bytes as a Lua string. (A `str` goes to the stack directly.)
pub(crate) fn bytes_to_lua(bytes: &[u8]) -> impl IntoLua {
    match str::from_utf8(bytes) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(LuaString::wrap(bytes)),
    }
}
