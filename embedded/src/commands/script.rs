//! Commands that run scripts.

use std::sync::Mutex;

use rwlease_core::resp::RespValue;
use sha1_smol::Sha1;

use super::server::unknown_subcommand;
use crate::cluster_state::{ClusterWorld, CommandSite};
use crate::command_spec::{ANY_ARITY, CommandHandler, CommandSpec, KeyPositions};
use crate::locks::lock;
use crate::lua_host::LuaHost;
use crate::number;
use crate::reply::{ErrorReply, OK, RedisReply};
use crate::server::Digest;

pub(crate) static COMMANDS: &[CommandSpec] = &[
    command("EVAL", 2, KeyPositions::Counted, ScriptCommand::Eval),
    command("EVALSHA", 2, KeyPositions::Counted, ScriptCommand::EvalSha),
    command("SCRIPT", 1, KeyPositions::None, ScriptCommand::Manage),
];

const fn command(
    name: &'static str,
    at_least: usize,
    keys: KeyPositions,
    kind: ScriptCommand,
) -> CommandSpec {
    CommandSpec::new(name, (at_least, ANY_ARITY), keys, CommandHandler::Script(kind))
        .not_in_scripts()
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptCommand {
    Eval,
    EvalSha,
    Manage,
}

/// What scripts need to run: the Lua state, and the world that they call.
pub(crate) struct ScriptRunner<'a> {
    pub(crate) host: &'a mut LuaHost,
    pub(crate) world: &'a Mutex<ClusterWorld>,
    pub(crate) at: CommandSite,
    /// The command followed `ASKING`.
    pub(crate) after_asking: bool,
}

impl ScriptRunner<'_> {
    pub(crate) fn run(
        &mut self,
        kind: ScriptCommand,
        args: &[&[u8]],
    ) -> Result<RespValue, ErrorReply> {
        match kind {
            ScriptCommand::Eval => self.eval(args),
            ScriptCommand::EvalSha => self.eval_sha(args),
            ScriptCommand::Manage => self.manage(args),
        }
    }

    fn eval(&mut self, args: &[&[u8]]) -> Result<RespValue, ErrorReply> {
        let (keys, argv) = keys_and_args(args)?;
        let digest = self.load(args[0])?;
        self.run_script(&digest, keys, argv)
    }

    fn eval_sha(&mut self, args: &[&[u8]]) -> Result<RespValue, ErrorReply> {
        const UNKNOWN: ErrorReply =
            ErrorReply::from_static("NOSCRIPT No matching script. Please use EVAL.");
        let (keys, argv) = keys_and_args(args)?;
        let digest = parse_digest(args[0]).ok_or(UNKNOWN)?;
        if !self.knows(&digest) {
            return Err(UNKNOWN);
        }
        self.run_script(&digest, keys, argv)
    }

    fn manage(&mut self, args: &[&[u8]]) -> Result<RespValue, ErrorReply> {
        match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
            (b"LOAD", [text]) => Ok(RedisReply::bulk(self.load(text)?).into()),
            (b"EXISTS", words @ [_, ..]) => {
                let known =
                    |word: &&[u8]| parse_digest(word).is_some_and(|digest| self.knows(&digest));
                let known = words.iter().map(|word| RedisReply::Int(known(word).into()));
                Ok(RedisReply::List(known.collect()).into())
            }
            (b"FLUSH", how @ ([] | [_])) => {
                let is_known = |how: &&[u8]| {
                    how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC")
                };
                if !how.iter().all(is_known) {
                    return Err(ErrorReply::from_static(
                        "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
                    ));
                }
                lock(self.world).servers[self.at.server].scripts.clear();
                Ok(OK.into())
            }
            _ => Err(unknown_subcommand("SCRIPT", args[0])),
        }
    }

    fn load(&mut self, text: &[u8]) -> Result<Digest, ErrorReply> {
        let digest = digest_of_source(text);
        self.host.compile(&digest, text)?;
        lock(self.world).servers[self.at.server].scripts.insert(digest);
        Ok(digest)
    }

    fn knows(&self, digest: &Digest) -> bool {
        lock(self.world).servers[self.at.server].scripts.contains(digest)
    }

    fn run_script(
        &mut self,
        digest: &Digest,
        keys: &[&[u8]],
        argv: &[&[u8]],
    ) -> Result<RespValue, ErrorReply> {
        lock(self.world).begin_script(self.at, self.after_asking, keys.first().copied());
        let reply = self.host.run(digest, keys, argv);
        lock(self.world).end_script();
        reply
    }
}

type ArgSlices<'a, 'b> = &'a [&'b [u8]];

fn keys_and_args<'a, 'b>(
    args: ArgSlices<'a, 'b>,
) -> Result<(ArgSlices<'a, 'b>, ArgSlices<'a, 'b>), ErrorReply> {
    let count = number::parse_argument(args[1])?;
    let count = usize::try_from(count)
        .map_err(|_| ErrorReply::from_static("ERR Number of keys can't be negative"))?;
    let rest = &args[2..];
    rest.split_at_checked(count)
        .ok_or(ErrorReply::from_static("ERR Number of keys can't be greater than number of args"))
}

fn digest_of_source(text: &[u8]) -> Digest {
    let mut digest = [0; 40];
    digest.copy_from_slice(Sha1::from(text).digest().to_string().as_bytes());
    digest
}

fn parse_digest(word: &[u8]) -> Option<Digest> {
    word.to_ascii_lowercase().try_into().ok()
}
