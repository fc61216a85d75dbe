//! Prepares the scripts of a folder for the comparison, and makes a folder of scripts without usual
//! paths.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::scripts_equal_server::GIVEN_CLOCK;
use crate::protocol::Scripts;

/// The channel on which the slow path reports that a call has reached it.
pub(super) const SLOW_PATH: &str = "slow path";

/// The line after which the slow path begins.
const BEGINS: &str = "-- @include prelude\n";

/// The condition of the fast paths.
const OPEN: &str = "local is_fast_path = ";
const SHUT: &str = "local is_fast_path = false and ";

/// A folder that is deleted when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The scripts under test: those of this crate, or those in the folder that `RWLEASE_LUA`
    /// names.
    pub(super) fn as_they_are() -> Folder {
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        Folder::copy_of(&env::var_os("RWLEASE_LUA").map_or_else(own, PathBuf::from))
    }

    /// The same without their fast paths.
    pub(super) fn without_usual_paths() -> Folder {
        let folder = Folder::as_they_are();
        for file in [
            "lib/fast/acquire_args.lua",
            "release.lua",
            "lib/fast/renew_args.lua",
            "lib/fast/grant_waiters.lua",
        ] {
            folder.change(file, OPEN, SHUT);
        }
        folder
    }

    /// The same with a limit of grants that small crowds reach.
    pub(super) fn with_few_grants(self) -> Folder {
        self.change("lib/constants.lua", "local MAX_GRANTS = 32 ", "local MAX_GRANTS = 3 ");
        self
    }

    pub(super) fn change(&self, file: &str, old: &str, new: &str) {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(old).count(), 1, "places in {file} for {old}");
        fs::write(path, text.replace(old, new)).unwrap();
    }

    /// The scripts, with the given clock, and with a report from the slow path.
    pub(super) fn scripts(&self) -> Scripts {
        for entry in fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            let Some(name) =
                path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_file())
            else {
                continue;
            };
            if fs::read_to_string(&path).unwrap().contains(BEGINS) {
                // Some enter the slow path with the grants that they have made.
                let grants = ["release.lua", "pump.lua"].contains(&name);
                let with = if grants { "handoff and 'unheard' or ''" } else { "''" };
                let says = format!("redis.pcall('SPUBLISH', '{SLOW_PATH}', {with})\n{BEGINS}");
                self.change(name, BEGINS, &says);
            }
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, format!("{GIVEN_CLOCK}{text}")).unwrap();
        }
        Scripts::from_folder(&self.0).unwrap()
    }

    fn copy_of(folder: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let copy = env::temp_dir().join(format!("rwlease-twin-{}-{count}", process::id()));
        copy_all(folder, &copy);
        Folder(copy)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_all(&path, &copy);
        } else {
            fs::copy(path, copy).unwrap();
        }
    }
}
