//! One `redis.call`: its words as Lua passes them, and its answer as Lua sees it.
//!
//! A simulation spends most of its time here. So words are copied from Lua's stack as bytes, which
//! is several times as fast as taking each one as a value of its own. Answers go to the stack in
//! the same way.

use std::sync::{Arc, Mutex};

use mlua::{BString, Either, IntoLua, Lua, LuaString, Table, Value, Variadic};
use smallvec::SmallVec;

use super::answer::{Answer, Failure};
use super::lock;
use super::world::World;

/// A word of a command: the bytes of a string or a number, or nothing for nil. The right side is a
/// value that cannot be a word.
type Word = Either<Option<BString>, bool>;

/// What a script gets: a reply, or nothing and the text of an error. The error `true` requests the
/// words again, without numbers.
type Given = (Option<Seen>, Option<Either<bool, String>>);

/// How a script sees an answer: a boolean, an integer, a string, or another value.
type Seen = Either<Either<bool, i64>, Either<String, Value>>;

/// Gives the sandbox the functions that make a call for the script that `world` marks as running.
/// Each takes the number of the words and the words: up to four, up to eight, or any number,
/// because absent arguments cost time as well.
pub(super) fn add_functions(
    lua: &Lua,
    functions: &Table,
    world: &Arc<Mutex<World>>,
) -> mlua::Result<()> {
    type Four = (Word, Word, Word, Word);
    type Eight = (Word, Word, Word, Word, Word, Word, Word, Word);
    #[rustfmt::skip]
    type Many = (
        Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Variadic<Word>,
    );

    let call = Call(world.clone());
    functions.set(
        "execute_four",
        lua.create_function(move |lua, (count, (a, b, c, d)): (usize, Four)| {
            call.run(lua, count, &[a, b, c, d])
        })?,
    )?;
    let call = Call(world.clone());
    functions.set(
        "execute_eight",
        lua.create_function(move |lua, (count, (a, b, c, d, e, f, g, h)): (usize, Eight)| {
            call.run(lua, count, &[a, b, c, d, e, f, g, h])
        })?,
    )?;
    let call = Call(world.clone());
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
    let call = Call(world.clone());
    functions.set(
        "execute_exact",
        lua.create_function(move |lua, (count, words): (usize, Variadic<Word>)| {
            call.run_exact(lua, count, &words)
        })?,
    )
}

struct Call(Arc<Mutex<World>>);

type Slices<'a> = SmallVec<[&'a [u8]; 16]>;

impl Call {
    fn run(&self, lua: &Lua, count: usize, words: &[Word]) -> mlua::Result<Given> {
        match slices(count, words) {
            Ok(words) if words.iter().any(|word| may_be_cut_short(word)) => {
                Ok((None, Some(Either::Left(true))))
            }
            words => self.finish(lua, words),
        }
    }

    fn run_exact(&self, lua: &Lua, count: usize, words: &[Word]) -> mlua::Result<Given> {
        self.finish(lua, slices(count, words))
    }

    fn finish(&self, lua: &Lua, words: Result<Slices<'_>, Failure>) -> mlua::Result<Given> {
        match words.and_then(|words| lock(&self.0).call_by_script(&words)) {
            Ok(answer) => Ok((Some(seen(lua, answer)?), None)),
            Err(failure) => Ok((None, Some(Either::Right(failure.line().to_owned())))),
        }
    }
}

fn slices(count: usize, words: &[Word]) -> Result<Slices<'_>, Failure> {
    let mut slices = Slices::new();
    for word in words.iter().take(count) {
        match word {
            Either::Left(Some(bytes)) => slices.push(bytes.as_slice()),
            _ => {
                return Err(Failure::of(
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
fn may_be_cut_short(word: &[u8]) -> bool {
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e');
    word.first().is_some_and(|first| matches!(first, b'0'..=b'9' | b'-'))
        && word.iter().any(|byte| matches!(byte, b'.' | b'e'))
        && word.iter().all(is_number)
}

fn seen(lua: &Lua, answer: Answer) -> mlua::Result<Seen> {
    Ok(match answer {
        Answer::Nil => Either::Left(Either::Left(false)),
        Answer::Int(number) => Either::Left(Either::Right(number)),
        Answer::Bulk(bytes) => Either::Right(match str::from_utf8(&bytes) {
            Ok(text) => Either::Left(text.to_owned()),
            Err(_) => Either::Right(Value::String(lua.create_string(&bytes)?)),
        }),
        Answer::Status(text) => {
            let table = lua.create_table_from([("ok", text)])?;
            Either::Right(Either::Right(Value::Table(table)))
        }
        Answer::List(items) => Either::Right(Either::Right(list(lua, &items)?)),
    })
}

fn list(lua: &Lua, items: &[Answer]) -> mlua::Result<Value> {
    let is_flat = items.iter().all(|item| matches!(item, Answer::Nil | Answer::Bulk(_)));
    if !is_flat {
        return nested_list(lua, items);
    }
    let items = items.iter().map(|item| match item {
        Answer::Bulk(bytes) => Either::Left(bytes_to_lua(bytes)),
        _ => Either::Right(false),
    });
    Ok(Value::Table(lua.create_sequence_from(items)?))
}

fn nested_list(lua: &Lua, items: &[Answer]) -> mlua::Result<Value> {
    let items: mlua::Result<Vec<Seen>> = items.iter().map(|item| seen(lua, item.clone())).collect();
    Ok(Value::Table(lua.create_sequence_from(items?)?))
}

/// Bytes as a Lua string. (A `str` goes to the stack directly.)
pub(super) fn bytes_to_lua(bytes: &[u8]) -> impl IntoLua {
    match str::from_utf8(bytes) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(LuaString::wrap(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_cut_short;

    #[test]
    fn may_be_cut_short_is_true_only_for_numbers_that_lua_shortens() {
        for word in ["0.5", "-1.5", "1e+15", "9.007199254741e+15", "1e-07"] {
            assert!(may_be_cut_short(word.as_bytes()), "{word}");
        }
        for word in
            ["", "-", "0", "1735689600000123", "fence", "e", "1.2.3x", "HGET", "inf", "nan", "-inf"]
        {
            assert!(!may_be_cut_short(word.as_bytes()), "{word}");
        }
    }
}
