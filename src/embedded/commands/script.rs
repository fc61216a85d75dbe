//! Commands that run scripts.

use std::sync::Mutex;

use sha1_smol::Sha1;

use super::server::unknown_subcommand;
use crate::embedded::answer::{Answer, Failure, OK};
use crate::embedded::command::{Act, Command, Keys, MANY};
use crate::embedded::lock;
use crate::embedded::number;
use crate::embedded::script_host::ScriptHost;
use crate::embedded::server::Digest;
use crate::embedded::world::{At, World};
use crate::node::Reply;

pub(in crate::embedded) static COMMANDS: &[Command] = &[
    Command::reads("EVAL", (2, MANY), Keys::Counted, Act::Script(Kind::Eval)).not_in_scripts(),
    Command::reads("EVALSHA", (2, MANY), Keys::Counted, Act::Script(Kind::EvalSha))
        .not_in_scripts(),
    Command::reads("SCRIPT", (1, MANY), Keys::None, Act::Script(Kind::Manage)).not_in_scripts(),
];

#[derive(Clone, Copy, Debug)]
pub(in crate::embedded) enum Kind {
    Eval,
    EvalSha,
    Manage,
}

/// What scripts need to run: the Lua state, and the world that they call.
pub(in crate::embedded) struct Stage<'a> {
    pub(in crate::embedded) host: &'a mut ScriptHost,
    pub(in crate::embedded) world: &'a Mutex<World>,
    pub(in crate::embedded) at: At,
    /// The command followed `ASKING`.
    pub(in crate::embedded) asked: bool,
}

impl Stage<'_> {
    pub(in crate::embedded) fn run(
        &mut self,
        kind: Kind,
        args: &[&[u8]],
    ) -> Result<Reply, Failure> {
        match kind {
            Kind::Eval => self.eval(args),
            Kind::EvalSha => self.eval_sha(args),
            Kind::Manage => self.manage(args),
        }
    }

    fn eval(&mut self, args: &[&[u8]]) -> Result<Reply, Failure> {
        let (keys, argv) = keys_and_args(args)?;
        let digest = self.load(args[0])?;
        self.run_script(&digest, keys, argv)
    }

    fn eval_sha(&mut self, args: &[&[u8]]) -> Result<Reply, Failure> {
        const UNKNOWN: Failure = Failure::of("NOSCRIPT No matching script. Please use EVAL.");
        let (keys, argv) = keys_and_args(args)?;
        let digest = digest_of_word(args[0]).ok_or(UNKNOWN)?;
        if !self.knows(&digest) {
            return Err(UNKNOWN);
        }
        self.run_script(&digest, keys, argv)
    }

    fn manage(&mut self, args: &[&[u8]]) -> Result<Reply, Failure> {
        match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
            (b"LOAD", [text]) => Ok(Answer::bulk(self.load(text)?).into()),
            (b"EXISTS", words @ [_, ..]) => {
                let known =
                    |word: &&[u8]| digest_of_word(word).is_some_and(|digest| self.knows(&digest));
                let known = words.iter().map(|word| Answer::Int(known(word).into()));
                Ok(Answer::List(known.collect()).into())
            }
            (b"FLUSH", how @ ([] | [_])) => {
                let is_known = |how: &&[u8]| {
                    how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC")
                };
                if !how.iter().all(is_known) {
                    return Err(Failure::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
                }
                lock(self.world).servers[self.at.server].scripts.clear();
                Ok(OK.into())
            }
            _ => Err(unknown_subcommand("SCRIPT", args[0])),
        }
    }

    fn load(&mut self, text: &[u8]) -> Result<Digest, Failure> {
        let digest = digest_of_text(text);
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
    ) -> Result<Reply, Failure> {
        lock(self.world).begin_script(self.at, self.asked, keys.first().copied());
        let reply = self.host.run(digest, keys, argv);
        lock(self.world).end_script();
        reply
    }
}

type Words<'a, 'b> = &'a [&'b [u8]];

fn keys_and_args<'a, 'b>(args: Words<'a, 'b>) -> Result<(Words<'a, 'b>, Words<'a, 'b>), Failure> {
    let count = number::argument(args[1])?;
    let count =
        usize::try_from(count).map_err(|_| Failure::of("ERR Number of keys can't be negative"))?;
    let rest = &args[2..];
    rest.split_at_checked(count)
        .ok_or(Failure::of("ERR Number of keys can't be greater than number of args"))
}

fn digest_of_text(text: &[u8]) -> Digest {
    let mut digest = [0; 40];
    digest.copy_from_slice(Sha1::from(text).digest().to_string().as_bytes());
    digest
}

fn digest_of_word(word: &[u8]) -> Option<Digest> {
    word.to_ascii_lowercase().try_into().ok()
}
