//! The Lua that runs scripts: one state for all servers of an engine, as no script leaves anything behind in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table, Value};
use sha1_smol::Sha1;

use super::answer::{Failure, in_one_line};
use super::call;
use super::number;
use super::server::Digest;
use super::world::World;
use crate::node::Reply;

/// What a script's chunk is called: errors name it.
const CHUNK: &str = "@user_script";

/// How deep a reply may be nested. The server has a limit like this.
const DEEPEST_REPLY: usize = 100;

#[derive(Debug)]
pub(super) struct ScriptHost {
    /// A Lua that could not be started answers each script with the reason.
    state: mlua::Result<State>,
}

struct State {
    lua: Lua,
    /// Runs a script with its keys and arguments.
    run: Function,
    /// Every script that was loaded at any server.
    compiled: HashMap<Digest, Function>,
}

impl ScriptHost {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Self {
        ScriptHost {
            state: State::new(world),
        }
    }

    pub(super) fn compile(&mut self, digest: &Digest, text: &[u8]) -> Result<(), Failure> {
        self.state()?.compile(digest, text)
    }

    /// Runs a script that was compiled. Its calls go to the script that the world says is running.
    pub(super) fn run(&mut self, digest: &Digest, keys: &[&[u8]], args: &[&[u8]]) -> Result<Reply, Failure> {
        Ok(self.state()?.run(digest, keys, args))
    }

    fn state(&mut self) -> Result<&mut State, Failure> {
        let state = self.state.as_mut();
        state.map_err(|error| Failure::new(format!("ERR the embedded Lua did not start: {error}")))
    }
}

impl State {
    fn new(world: Arc<Mutex<World>>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let functions = functions(&lua, &world)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let run = sandbox.call(functions)?;
        Ok(State {
            lua,
            run,
            compiled: HashMap::new(),
        })
    }

    fn compile(&mut self, digest: &Digest, text: &[u8]) -> Result<(), Failure> {
        if !self.compiled.contains_key(digest) {
            let chunk = self.lua.load(text).set_name(CHUNK).set_mode(ChunkMode::Text);
            let function = chunk.into_function().map_err(|error| compile_error(&error))?;
            self.compiled.insert(*digest, function);
        }
        Ok(())
    }

    fn run(&self, digest: &Digest, keys: &[&[u8]], args: &[&[u8]]) -> Reply {
        match self.call(digest, keys, args) {
            Ok((true, value)) => reply_of(&value, DEEPEST_REPLY),
            Ok((false, failure)) => blamed(&failure, digest).into(),
            Err(error) => Failure::new(format!("ERR Error running script {}, {error}", hex(digest))).into(),
        }
    }

    fn call(&self, digest: &Digest, keys: &[&[u8]], args: &[&[u8]]) -> mlua::Result<(bool, Value)> {
        let Some(script) = self.compiled.get(digest) else {
            return Err(mlua::Error::runtime("it was not compiled"));
        };
        let list = |words: &[&[u8]]| {
            self.lua
                .create_sequence_from(words.iter().map(|word| call::bytes_to_lua(word)))
        };
        self.run.call((script, list(keys)?, list(args)?))
    }
}

/// What the sandbox needs of Rust.
fn functions(lua: &Lua, world: &Arc<Mutex<World>>) -> mlua::Result<Table> {
    let functions = lua.create_table()?;
    call::add_functions(lua, &functions, world)?;
    functions.set(
        "sha1hex",
        lua.create_function(|_, text: LuaString| Ok(Sha1::from(&*text.as_bytes()).digest().to_string()))?,
    )?;
    functions.set("line", lua.create_function(|lua, ()| Ok(line_of_script(lua)))?)?;
    let random = Random::default();
    let seeded = random.clone();
    functions.set("random", lua.create_function(move |_, ()| Ok(random.fraction()))?)?;
    functions.set(
        "seed",
        lua.create_function(move |_, seed: f64| {
            seeded.seed(seed as i64 as u32);
            Ok(())
        })?,
    )?;
    Ok(functions)
}

/// What a client sees of a script's value. (The fields `map`, `set` and `double` of a table mean nothing here.)
fn reply_of(value: &Value, depth: usize) -> Reply {
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
        Ok(item) => Some(reply_of(&item, depth - 1)),
    });
    Reply::List(items.collect())
}

/// The error of a script that was caught by nobody, with the place it came from.
fn blamed(failure: &Value, digest: &Digest) -> Failure {
    let Value::Table(failure) = failure else {
        return Failure::of("ERR unknown error");
    };
    let text = failure.raw_get::<LuaString>("err").map(|text| text.to_string_lossy());
    let text = text.unwrap_or_else(|error| format!("ERR {error}"));
    let line = failure.raw_get::<Option<u64>>("line").ok().flatten();
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    Failure::new(format!("{text} script: {}, on {CHUNK}{line}.", hex(digest)))
}

fn compile_error(error: &mlua::Error) -> Failure {
    let message = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    Failure::new(format!("ERR Error compiling script (new function): {message}"))
}

/// The line that the script is at. Nothing is known of a function that has ended in a tail call.
fn line_of_script(lua: &Lua) -> Option<usize> {
    let mut level = 1;
    while let Some((is_script, line)) = lua.inspect_stack(level, |frame| {
        (frame.source().source.as_deref() == Some(CHUNK), frame.current_line())
    }) {
        if is_script {
            return line;
        }
        level += 1;
    }
    None
}

fn hex(digest: &Digest) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(digest)
}

/// The server's random numbers: `lrand48` of C.
#[derive(Clone)]
struct Random(Arc<AtomicU64>);

impl Default for Random {
    fn default() -> Self {
        const UNSEEDED: u64 = 0x1234_abcd_330e;
        Random(Arc::new(AtomicU64::new(UNSEEDED)))
    }
}

impl Random {
    fn seed(&self, seed: u32) {
        self.0.store(u64::from(seed) << 16 | 0x330e, Relaxed);
    }

    fn fraction(&self) -> f64 {
        const MODULUS: u64 = 1 << 48;
        let next = (self.0.load(Relaxed).wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) % MODULUS;
        self.0.store(next, Relaxed);
        const MOST: u64 = i32::MAX as u64;
        ((next >> 17) % MOST) as f64 / MOST as f64
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("compiled", &self.compiled.len())
            .finish_non_exhaustive()
    }
}
