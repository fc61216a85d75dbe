//! One `redis.call`: its words as Lua gives them, and its answer as Lua sees it.
//!
//! A simulation spends most of its time here. So words are copied from Lua's stack as bytes, which is several times as
//! fast as to take each as a value of its own; and an answer goes to the stack in the same way.

use std::sync::{Arc, Mutex};

use mlua::{BString, Either, Function, Lua, LuaString, Value, Variadic};
use smallvec::SmallVec;

use super::answer::{Answer, Failure};
use super::lock;
use super::world::World;

/// A word of a command: the bytes of a string or a number, nothing for nil, or else the value.
type Word = Either<Option<BString>, Value>;

/// The number of words, and the words. Those beyond the usual number are slower.
type Words = (
    usize,
    (
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Word,
        Variadic<Word>,
    ),
);

/// What a script gets: a reply, or nothing and the text of an error. The error `true` means that the words are wanted
/// again, without numbers.
type Given = (Option<Seen>, Option<Either<bool, String>>);

/// What a script sees of an answer: a boolean, an integer, a string, or another value.
type Seen = Either<Either<bool, i64>, Either<String, Value>>;

/// The function that runs a call of the script that the world says is running.
pub(super) fn function(lua: &Lua, world: Arc<Mutex<World>>, is_exact: bool) -> mlua::Result<Function> {
    lua.create_function(move |lua, words: Words| {
        let words = match bytes_of(words) {
            Ok(words) => words,
            Err(failure) => return Ok(refused(&failure)),
        };
        let words: SmallVec<[&[u8]; 16]> = words.iter().map(|word| word.as_slice()).collect();
        if !is_exact && words.iter().any(|word| may_be_cut_short(word)) {
            return Ok((None, Some(Either::Left(true))));
        }
        let outcome = lock(&world).call_by_script(&words);
        match outcome {
            Ok(answer) => Ok((Some(seen(lua, answer)?), None)),
            Err(failure) => Ok(refused(&failure)),
        }
    })
}

fn refused(failure: &Failure) -> Given {
    (None, Some(Either::Right(failure.line().to_owned())))
}

fn bytes_of((count, words): Words) -> Result<SmallVec<[BString; 16]>, Failure> {
    let (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, others) = words;
    let words = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o].into_iter().chain(others);
    let bytes = words.take(count).map(|word| match word {
        Either::Left(Some(bytes)) => Ok(bytes),
        _ => Err(Failure::of(
            "ERR Lua redis lib command arguments must be strings or integers",
        )),
    });
    bytes.collect()
}

/// Whether this may be a number that Lua has printed with fewer digits than the server would: it has a fraction or an
/// exponent. (An integer of up to 14 digits is printed whole, and a longer one with an exponent.)
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
    let simple = items.iter().map(|item| match item {
        Answer::Bulk(bytes) => Some(match str::from_utf8(bytes) {
            Ok(text) => Either::Left(text),
            Err(_) => Either::Right(Either::Left(LuaString::wrap(bytes))),
        }),
        Answer::Nil => Some(Either::Right(Either::Right(false))),
        _ => None,
    });
    if let Some(items) = simple.collect::<Option<SmallVec<[_; 16]>>>() {
        return Ok(Value::Table(lua.create_sequence_from(items)?));
    }
    let items: mlua::Result<Vec<Seen>> = items.iter().map(|item| seen(lua, item.clone())).collect();
    Ok(Value::Table(lua.create_sequence_from(items?)?))
}

#[cfg(test)]
mod tests {
    use super::may_be_cut_short;

    #[test]
    fn only_what_may_be_a_number_printed_short_is_taken_again() {
        for word in ["0.5", "-1.5", "1e+15", "9.007199254741e+15", "1e-07"] {
            assert!(may_be_cut_short(word.as_bytes()), "{word}");
        }
        for word in [
            "",
            "-",
            "0",
            "1735689600000123",
            "fence",
            "e",
            "1.2.3x",
            "HGET",
            "inf",
            "nan",
            "-inf",
        ] {
            assert!(!may_be_cut_short(word.as_bytes()), "{word}");
        }
    }
}
