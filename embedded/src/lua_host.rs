//! The Lua state that runs scripts: one for all servers of an engine, because no script leaves
//! anything behind in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, LuaString, StdLib, Table, Value};
use rwlease_core::resp::RespValue;
use sha1_smol::Sha1;

use crate::cluster_state::ClusterWorld;
use crate::lua_call;
use crate::random::ScriptRandom;
use crate::reply::ErrorReply;
use crate::script_reply::{annotate_error, to_reply};
use crate::server::Digest;

/// The name of a script's chunk, which errors show.
pub(crate) const CHUNK_NAME: &str = "@user_script";

#[derive(Debug)]
pub(crate) struct LuaHost {
    /// If Lua could not be started, each script is answered with the reason.
    state: mlua::Result<LuaState>,
}

struct LuaState {
    lua: Lua,
    /// Runs a script with its keys and arguments.
    run: Function,
    /// All scripts that were loaded at any server.
    compiled: HashMap<Digest, Function>,
}

impl LuaHost {
    pub(crate) fn new(world: Arc<Mutex<ClusterWorld>>) -> Self {
        LuaHost { state: LuaState::new(world) }
    }

    pub(crate) fn compile(&mut self, digest: &Digest, text: &[u8]) -> Result<(), ErrorReply> {
        self.state()?.compile(digest, text)
    }

    /// Runs a compiled script. Its calls go to the script that `world` marks as running.
    pub(crate) fn run(
        &mut self,
        digest: &Digest,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<RespValue, ErrorReply> {
        Ok(self.state()?.run(digest, keys, args))
    }

    fn state(&mut self) -> Result<&mut LuaState, ErrorReply> {
        let state = self.state.as_mut();
        state
            .map_err(|error| ErrorReply::new(format!("ERR cannot start the embedded Lua: {error}")))
    }
}

impl LuaState {
    fn new(world: Arc<Mutex<ClusterWorld>>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let functions = functions(&lua, &world)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let run = sandbox.call(functions)?;
        Ok(LuaState { lua, run, compiled: HashMap::new() })
    }

    fn compile(&mut self, digest: &Digest, text: &[u8]) -> Result<(), ErrorReply> {
        if !self.compiled.contains_key(digest) {
            let chunk = self.lua.load(text).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
            let function = chunk.into_function().map_err(|error| compile_error(&error))?;
            self.compiled.insert(*digest, function);
        }
        Ok(())
    }

    fn run(&self, digest: &Digest, keys: &[&[u8]], args: &[&[u8]]) -> RespValue {
        match self.call(digest, keys, args) {
            Ok((true, value)) => to_reply(&value),
            Ok((false, failure)) => annotate_error(&failure, digest).into(),
            Err(error) => ErrorReply::new(format!(
                "ERR Error running script {}, {error}",
                String::from_utf8_lossy(digest)
            ))
            .into(),
        }
    }

    fn call(&self, digest: &Digest, keys: &[&[u8]], args: &[&[u8]]) -> mlua::Result<(bool, Value)> {
        let Some(script) = self.compiled.get(digest) else {
            return Err(mlua::Error::runtime("the script was not compiled"));
        };
        let list = |words: &[&[u8]]| {
            self.lua.create_sequence_from(words.iter().map(|word| lua_call::bytes_to_lua(word)))
        };
        self.run.call((script, list(keys)?, list(args)?))
    }
}

/// The Rust functions for the sandbox.
fn functions(lua: &Lua, world: &Arc<Mutex<ClusterWorld>>) -> mlua::Result<Table> {
    let functions = lua.create_table()?;
    lua_call::add_functions(lua, &functions, world)?;
    functions.set(
        "sha1hex",
        lua.create_function(|_, text: LuaString| {
            Ok(Sha1::from(&*text.as_bytes()).digest().to_string())
        })?,
    )?;
    functions.set("line", lua.create_function(|lua, ()| Ok(current_line(lua)))?)?;
    let random = ScriptRandom::default();
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

fn compile_error(error: &mlua::Error) -> ErrorReply {
    let message = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    ErrorReply::new(format!("ERR Error compiling script (new function): {message}"))
}

/// The current line of the script. It is unknown for a function that has ended in a tail call.
fn current_line(lua: &Lua) -> Option<usize> {
    let mut level = 1;
    while let Some((is_script, line)) = lua.inspect_stack(level, |frame| {
        (frame.source().source.as_deref() == Some(CHUNK_NAME), frame.current_line())
    }) {
        if is_script {
            return line;
        }
        level += 1;
    }
    None
}

impl fmt::Debug for LuaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LuaState").field("compiled", &self.compiled.len()).finish_non_exhaustive()
    }
}
