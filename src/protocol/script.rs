//! The Lua scripts, assembled from `lua/`.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::LazyLock;

use crate::backend::GRANTED;
use crate::router::Script;

/// The statuses of several scripts.
const ACQUIRE: &[&str] = &[GRANTED, "queued", "refused", "cached", "full", "stale"];
pub(super) const TRY: &[&str] = &[GRANTED, "refused", "stale"];
pub(super) const RELEASE: &[&str] = &["released", "absent"];
const PUMP: &[&str] = &["pumped"];

/// All scripts of the protocol.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire_read: Script,
    pub(crate) acquire_write: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
    pub(crate) grant_waiters: Script,
    pub(crate) downgrade: Script,
    pub(crate) upgrade: Script,
    pub(crate) revoke: Script,
    pub(crate) force_release: Script,
    pub(crate) inspect: Script,
    pub(crate) holds: Script,
    pub(crate) raise_token: Script,
    pub(crate) accept_transfer: Script,
    pub(crate) set_nx_acquire: Script,
    pub(crate) set_nx_renew: Script,
    pub(crate) set_nx_release: Script,
    pub(crate) set_nx_inspect: Script,
    pub(crate) semaphore_acquire: Script,
    pub(crate) semaphore_renew: Script,
    pub(crate) semaphore_release: Script,
    pub(crate) semaphore_release_permits: Script,
    pub(crate) semaphore_grant_waiters: Script,
    pub(crate) semaphore_set_limit: Script,
    pub(crate) semaphore_inspect: Script,
}

/// The scripts as this library sends them. Use them to load the scripts in advance, to write access
/// rules that name digests, and to implement the protocol elsewhere.
///
/// ```
/// for script in rwlease::scripts() {
///     println!("{} {}", script.digest(), script.name());
/// }
/// ```
pub fn scripts() -> impl Iterator<Item = &'static Script> {
    Scripts::embedded().all().into_iter().chain(legacy())
}

#[cfg(feature = "legacy")]
fn legacy() -> impl Iterator<Item = &'static Script> {
    super::two_key::TwoKeyScripts::built_in().all().into_iter()
}

#[cfg(not(feature = "legacy"))]
fn legacy() -> impl Iterator<Item = &'static Script> {
    std::iter::empty()
}

impl Scripts {
    pub(crate) fn all(&self) -> [&Script; 24] {
        [
            &self.acquire_read,
            &self.acquire_write,
            &self.release,
            &self.renew,
            &self.grant_waiters,
            &self.downgrade,
            &self.upgrade,
            &self.revoke,
            &self.force_release,
            &self.inspect,
            &self.holds,
            &self.raise_token,
            &self.accept_transfer,
            &self.set_nx_acquire,
            &self.set_nx_renew,
            &self.set_nx_release,
            &self.set_nx_inspect,
            &self.semaphore_acquire,
            &self.semaphore_renew,
            &self.semaphore_release,
            &self.semaphore_release_permits,
            &self.semaphore_grant_waiters,
            &self.semaphore_set_limit,
            &self.semaphore_inspect,
        ]
    }

    /// The compiled-in scripts.
    pub(crate) fn embedded() -> &'static Scripts {
        static BUILT_IN: LazyLock<Scripts> = LazyLock::new(|| {
            // Compiled-in files are always found; a test checks that none is missing.
            Scripts::assemble(embedded_file).unwrap_or_else(|never| match never {})
        });
        &BUILT_IN
    }

    /// The scripts in a folder laid out as `lua/`, to try changed ones without a build.
    #[cfg_attr(
        not(any(test, feature = "embedded")),
        expect(dead_code, reason = "only the embedded engine offers it")
    )]
    pub(crate) fn from_folder(folder: &Path) -> io::Result<Scripts> {
        Scripts::assemble(|name| std::fs::read_to_string(folder.join(name)).map(Cow::Owned))
    }

    pub(crate) fn assemble<E>(
        mut file: impl FnMut(&str) -> Result<Cow<'static, str>, E>,
    ) -> Result<Scripts, E> {
        let mut script = |name: &'static str, statuses| Script::assemble(name, statuses, &mut file);
        Ok(Scripts {
            acquire_read: script("acquire_read", ACQUIRE)?,
            acquire_write: script("acquire_write", ACQUIRE)?,
            release: script("release", &["released", "left", "expired", "absent", "writing"])?,
            renew: script("renew", &["renewed", "revoked", "other", "lost"])?,
            grant_waiters: script("pump", PUMP)?,
            downgrade: script("downgrade", &[GRANTED, "lost"])?,
            upgrade: script(
                "upgrade",
                &[GRANTED, "queued", "refused", "conflict", "revoked", "lost", "stale"],
            )?,
            revoke: script("revoke", &["revoked", "free"])?,
            force_release: script("force_release", &["forced", "free"])?,
            inspect: script("inspect", &["lock", "absent"])?,
            holds: script("holds", &["writes", "reads", "absent"])?,
            raise_token: script("raise_token", &["raised", "ahead", "lost"])?,
            accept_transfer: script("take_up", &[GRANTED, "lost", "stale"])?,
            set_nx_acquire: script("mutex/acquire", TRY)?,
            set_nx_renew: script("mutex/renew", &[GRANTED, "lost"])?,
            set_nx_release: Script {
                has_delifeq_shortcut: true,
                ..script("mutex/release", RELEASE)?
            },
            set_nx_inspect: script("mutex/inspect", &["held", "absent"])?,
            semaphore_acquire: script(
                "semaphore/acquire",
                &[GRANTED, "queued", "refused", "limit", "full", "stale"],
            )?,
            semaphore_renew: script("semaphore/renew", &["renewed", "other", "lost"])?,
            semaphore_release: script("semaphore/release", &["released", "left", "absent"])?,
            semaphore_release_permits: script("semaphore/shrink", &["kept", "lost"])?,
            semaphore_grant_waiters: script("semaphore/pump", PUMP)?,
            semaphore_set_limit: script("semaphore/set_limit", &["set", "limit", "stale"])?,
            semaphore_inspect: script("semaphore/inspect", &["semaphore", "absent"])?,
        })
    }
}

impl Script {
    /// Assembles the script of this name with its includes. Its replies have these statuses.
    pub(crate) fn assemble<E>(
        name: &'static str,
        statuses: &'static [&'static str],
        mut file: impl FnMut(&str) -> Result<Cow<'static, str>, E>,
    ) -> Result<Script, E> {
        let mut text = String::new();
        let layers = append(&mut text, &format!("{name}.lua"), &mut file)?;
        text.push_str(&"end)()\n".repeat(layers));
        let digest = sha1_smol::Sha1::from(&text).digest().to_string();
        Ok(Script { statuses, ..Script::new(name, text, digest) })
    }

    /// Assembles the compiled-in script of this name.
    #[cfg(feature = "legacy")]
    pub(super) fn built_in(name: &'static str, statuses: &'static [&'static str]) -> Script {
        // Compiled-in files are always found; a test checks that none is missing.
        Script::assemble(name, statuses, embedded_file).unwrap_or_else(|never| match never {})
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
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../lua/", $name)))),*]
    };
}

const EMBEDDED_FILES: &[(&str, &str)] = files![
    "acquire_read.lua",
    "acquire_write.lua",
    "release.lua",
    "renew.lua",
    "pump.lua",
    "downgrade.lua",
    "upgrade.lua",
    "revoke.lua",
    "force_release.lua",
    "inspect.lua",
    "legacy/acquire_read.lua",
    "legacy/acquire_write.lua",
    "legacy/release.lua",
    "holds.lua",
    "raise_token.lua",
    "take_up.lua",
    "mutex/acquire.lua",
    "mutex/renew.lua",
    "mutex/release.lua",
    "mutex/inspect.lua",
    "semaphore/acquire.lua",
    "semaphore/renew.lua",
    "semaphore/release.lua",
    "semaphore/shrink.lua",
    "semaphore/pump.lua",
    "semaphore/set_limit.lua",
    "semaphore/inspect.lua",
    "lib/constants.lua",
    "lib/clock.lua",
    "lib/server_time.lua",
    "lib/read_line.lua",
    "lib/fast/args.lua",
    "lib/fast/acquire_args.lua",
    "lib/fast/lease_expiry.lua",
    "lib/fast/acquire_commit.lua",
    "lib/fast/release.lua",
    "lib/fast/read_queue.lua",
    "lib/fast/enqueue.lua",
    "lib/fast/queue_blocked.lua",
    "lib/fast/grant_readers.lua",
    "lib/fast/grant_writer.lua",
    "lib/fast/remove_reader.lua",
    "lib/fast/write_fields.lua",
    "lib/fast/notify.lua",
    "lib/fast/revert_grants.lua",
    "lib/fast/grant_waiters.lua",
    "lib/prelude.lua",
    "lib/acquire_args.lua",
    "lib/enqueue.lua",
    "lib/field_cache.lua",
    "lib/state_line.lua",
    "lib/flush.lua",
    "lib/wait_queue.lua",
    "lib/readers.lua",
    "lib/grant_budget.lua",
    "lib/notify.lua",
    "lib/grant_waiters.lua",
    "lib/semaphore_state.lua",
    "lib/recall.lua",
    "lib/fast/renew_args.lua",
    "lib/fast/renew.lua",
    "lib/become_reader.lua",
    "lib/acquire_slow.lua",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    /// The first words of all strings in a script's text.
    fn words_in(text: &str) -> BTreeSet<&str> {
        text.split('\'').filter_map(|part| part.split(' ').next()).collect()
    }

    #[test]
    fn script_statuses_equal_the_replies_in_its_text() {
        for script in scripts() {
            let found = words_in(&script.text);
            for status in script.statuses {
                assert!(found.contains(status), "{} never says {status}", script.name);
            }
            let literal = |part: &str| part.split('\'').next().unwrap().to_owned();
            let replied = script.text.split("reply('").skip(1).map(literal);
            // A reply can have its status from a variable: `local status = mode and 'a' or 'b'`.
            let lines = script.text.lines().filter(|line| line.contains("status = "));
            let assigned = lines.flat_map(|line| {
                let value = line.split_once("status = ").unwrap().1;
                value.split('\'').skip(1).step_by(2).map(str::to_owned)
            });
            for status in replied.chain(assigned) {
                let is_known = script.statuses.contains(&status.as_str());
                assert!(is_known, "{} says {status}, too", script.name);
            }
            assert!(!script.statuses.is_empty(), "{}", script.name);
        }
    }

    #[test]
    fn built_in_scripts_equal_the_lua_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        let read = Scripts::from_folder(&folder).unwrap();
        assert_eq!(Scripts::embedded().acquire_write.digest, read.acquire_write.digest);
        for script in scripts() {
            assert!(script.text.lines().count() > 20, "{} is whole", script.name);
            assert!(!script.text.contains("-- @"), "{} has nothing left to assemble", script.name);
        }
        let files = |folder: PathBuf| {
            folder.read_dir().unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file())
        };
        let parts = [folder.clone(), folder.join("mutex"), folder.join("semaphore")];
        let on_disk: usize = parts.map(|part| files(part).count()).iter().sum();
        let own = scripts().filter(|script| !script.name.starts_with("legacy/"));
        assert_eq!(own.count(), on_disk);
    }
}
