//! The Lua scripts, assembled from `lua/`.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::LazyLock;

use rwlease_core::protocol::ScriptName;
use rwlease_core::resp::Command;

/// A Lua script of the protocol.
#[derive(Debug)]
pub struct Script {
    name: ScriptName,
    text: String,
    digest: String,
    /// `EVALSHA` and the digest.
    evalsha: Command,
    /// `EVAL` and the text.
    eval: Command,
}

/// All scripts of the protocol, in the order of [`ScriptName::ALL`].
#[derive(Debug)]
pub struct Scripts(pub(crate) Vec<Script>);

/// Returns the scripts as this library sends them. Use them to load the scripts in advance, to
/// write access rules that name digests, and to implement the protocol elsewhere.
///
/// ```
/// for script in rwlease::scripts() {
///     println!("{} {}", script.digest(), script.name());
/// }
/// ```
pub fn scripts() -> impl Iterator<Item = &'static Script> {
    Scripts::embedded().iter()
}

impl Scripts {
    /// The scripts, without those of locks that are not compiled in.
    pub fn iter(&self) -> impl Iterator<Item = &Script> {
        // Nothing else calls the scripts of the two-key lock.
        self.0.iter().filter(|script| cfg!(feature = "legacy") || !script.name.is_legacy())
    }

    pub(crate) fn get(&self, name: ScriptName) -> &Script {
        &self.0[name as usize]
    }

    /// The compiled-in scripts.
    pub fn embedded() -> &'static Scripts {
        static EMBEDDED: LazyLock<Scripts> = LazyLock::new(|| {
            // Compiled-in files are always found; a test checks that none is missing.
            Scripts::assemble(embedded_file).unwrap_or_else(|never| match never {})
        });
        &EMBEDDED
    }

    /// The scripts in a folder laid out as `lua/`, to try changed ones without a build.
    #[cfg_attr(
        not(any(test, feature = "embedded")),
        expect(dead_code, reason = "only the embedded engine offers it")
    )]
    pub fn from_folder(folder: &Path) -> io::Result<Scripts> {
        Scripts::assemble(|name| std::fs::read_to_string(folder.join(name)).map(Cow::Owned))
    }

    pub fn assemble<E>(
        mut file: impl FnMut(&str) -> Result<Cow<'static, str>, E>,
    ) -> Result<Scripts, E> {
        let names = ScriptName::ALL.iter();
        names.map(|name| Script::assemble(*name, &mut file)).collect::<Result<_, E>>().map(Scripts)
    }
}

impl Script {
    pub(crate) fn new(name: ScriptName, text: String, digest: String) -> Script {
        let evalsha = Command::new().arg("EVALSHA").arg(&digest);
        let eval = Command::new().arg("EVAL").arg(&text);
        Script { name, text, digest, evalsha, eval }
    }

    /// Assembles a script with its includes.
    fn assemble<E>(
        name: ScriptName,
        mut file: impl FnMut(&str) -> Result<Cow<'static, str>, E>,
    ) -> Result<Script, E> {
        let mut text = String::new();
        let layers = append(&mut text, &format!("{}.lua", name.as_str()), &mut file)?;
        text.push_str(&"end)()\n".repeat(layers));
        let digest = sha1_smol::Sha1::from(&text).digest().to_string();
        Ok(Script::new(name, text, digest))
    }

    /// The first words of a call: `EVAL` and the text, or `EVALSHA` and the digest.
    pub(crate) fn words(&self, with_text: bool) -> &Command {
        if with_text { &self.eval } else { &self.evalsha }
    }

    /// Returns the name of the script, which is the name of its file in `lua/`.
    pub fn name(&self) -> &'static str {
        self.name.as_str()
    }

    /// Returns the script's text, as it is sent to servers.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the SHA-1 digest of the text in hexadecimal, by which `EVALSHA` names the script.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Appends a file with its includes. Returns the number of layers it has begun.
///
/// From `-- @layer` on, the rest of the script is in a function of its own. A script creates its
/// functions anew in each call. For each local variable that a function uses, Lua searches the
/// variables of the enclosing function one by one, but not those of functions further out.
fn append<E>(
    text: &mut String,
    name: &str,
    file: &mut impl FnMut(&str) -> Result<Cow<'static, str>, E>,
) -> Result<usize, E> {
    let mut layers = 0;
    for line in file(name)?.lines() {
        if let Some(part) = line.strip_prefix("-- @include ") {
            layers += append(text, &format!("lib/{}.lua", part.trim()), file)?;
        } else if line == "-- @layer" {
            text.push_str("return (function()\n");
            layers += 1;
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(layers)
}

fn embedded_file(name: &str) -> Result<Cow<'static, str>, std::convert::Infallible> {
    let found = EMBEDDED_FILES.iter().find(|(file, _)| *file == name);
    Ok(found.map_or("", |(_, text)| text).into())
}

macro_rules! files {
    ($($name:literal)*) => {
        &[$((concat!($name, ".lua"), include_str!(concat!("../lua/", $name, ".lua")))),*]
    };
}

const EMBEDDED_FILES: &[(&str, &str)] = files! {
    "acquire_read" "acquire_write" "release" "renew" "grant_waiters" "downgrade" "upgrade" "revoke"
    "force_release" "inspect" "legacy/acquire_read" "legacy/acquire_write" "legacy/release" "holds"
    "raise_token" "accept_transfer" "set_nx/acquire" "set_nx/renew" "set_nx/release"
    "set_nx/inspect" "semaphore/acquire" "semaphore/renew" "semaphore/release"
    "semaphore/release_permits" "semaphore/grant_waiters" "semaphore/set_limit" "semaphore/inspect"
    "client_record/write" "client_record/read" "fenced/get" "fenced/set" "fenced/delete"
    "fenced/enter" "lib/constants" "lib/clock" "lib/server_time" "lib/read_line" "lib/fast/args"
    "lib/fast/acquire_args" "lib/fast/lease_expiry" "lib/fast/acquire_commit" "lib/fast/release"
    "lib/fast/read_queue" "lib/fast/enqueue" "lib/fast/first_waiter"
    "lib/fast/acquire_beside_cached" "lib/fast/queue_blocked" "lib/fast/grant_message"
    "lib/fast/grant_readers" "lib/fast/grant_writer" "lib/fast/remove_reader"
    "lib/fast/write_fields" "lib/fast/notify" "lib/fast/revert_grants" "lib/fast/grant_waiters"
    "lib/fast/permit_queue" "lib/fast/permit_enqueue" "lib/fast/permit_grants"
    "lib/fast/permit_release" "lib/fast/remove_permits" "lib/prelude" "lib/acquire_args"
    "lib/enqueue" "lib/field_cache" "lib/state_line" "lib/flush" "lib/wait_queue" "lib/readers"
    "lib/grant_budget" "lib/notify" "lib/grant_waiters" "lib/semaphore_state" "lib/fenced_args"
    "lib/fenced_value" "lib/fenced_writer" "lib/recall" "lib/fast/renew_args"
    "lib/fast/renew_cached" "lib/fast/renew" "lib/become_reader" "lib/acquire_slow"
};

#[cfg(test)]
mod tests;
