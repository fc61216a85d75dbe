//! Prepares the scripts for the comparison, and makes scripts without usual paths of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rwlease::testing::Scripts;

use crate::scripts_equal_server::GIVEN_CLOCK;

/// The channel on which the slow path reports that a call has reached it.
pub const SLOW_PATH: &str = "slow path";

/// The line after which the slow path begins.
const BEGINS: &str = "-- @include prelude\n";

/// The condition of the fast paths.
const OPEN: &str = "local is_fast_path = ";
const SHUT: &str = "local is_fast_path = false and ";

/// The texts of the files in a folder laid out as `lua/`, by their names.
pub struct ScriptFiles(BTreeMap<String, String>);

impl ScriptFiles {
    /// The scripts under test: those of the library, or those in the folder that `RWLEASE_LUA`
    /// names.
    pub fn as_they_are() -> ScriptFiles {
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua");
        let folder = env::var_os("RWLEASE_LUA").map_or_else(own, PathBuf::from);
        let mut files = BTreeMap::new();
        read_all(&folder, "", &mut files);
        ScriptFiles(files)
    }

    /// The same without their fast paths.
    pub fn without_usual_paths() -> ScriptFiles {
        let mut files = ScriptFiles::as_they_are();
        for file in [
            "lib/fast/acquire_args.lua",
            "release.lua",
            "lib/fast/renew_args.lua",
            "lib/fast/grant_waiters.lua",
            "semaphore/acquire.lua",
            "semaphore/release.lua",
            "semaphore/grant_waiters.lua",
        ] {
            files.change(file, OPEN, SHUT);
        }
        files
    }

    /// The same with a limit of grants that small crowds reach.
    pub fn with_few_grants(mut self) -> ScriptFiles {
        self.change("lib/constants.lua", "local MAX_GRANTS = 32 ", "local MAX_GRANTS = 3 ");
        self
    }

    pub fn change(&mut self, file: &str, old: &str, new: &str) {
        let text = self.0.get_mut(file).unwrap();
        assert_eq!(text.matches(old).count(), 1, "places in {file} for {old}");
        *text = text.replace(old, new);
    }

    /// The scripts, with the given clock, and with a report from the slow path.
    pub fn scripts(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| Ok::<_, Infallible>(self.prepared(name).into());
        let scripts = Scripts::assemble(file).unwrap_or_else(|never| match never {});
        let texts = scripts.iter().map(|script| (script.name(), script.text().into()));
        texts.collect()
    }

    fn prepared(&self, name: &str) -> String {
        let text = &self.0[name];
        let script = name.strip_prefix("semaphore/").unwrap_or(name);
        if script.contains('/') {
            return text.clone(); // a part, or a script of another lock
        }
        // Some enter the slow path with the grants that they have made.
        let grants = ["release.lua", "grant_waiters.lua"].contains(&script);
        let with = if grants { "handoff and 'unheard' or ''" } else { "''" };
        let says = format!("redis.pcall('SPUBLISH', '{SLOW_PATH}', {with})\n{BEGINS}");
        assert!(text.matches(BEGINS).count() <= 1, "{name} enters the slow path once");
        format!("{GIVEN_CLOCK}{}", text.replace(BEGINS, &says))
    }
}

/// Reads all files in this folder, whose names begin with `prefix`.
fn read_all(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            read_all(&path, &format!("{name}/"), files);
        } else {
            files.insert(name, fs::read_to_string(path).unwrap());
        }
    }
}
