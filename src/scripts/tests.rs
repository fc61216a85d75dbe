use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rwlease_core::protocol::MAX_TOKEN_LEAD;

use super::*;

/// The first words of all strings in a script's text.
fn words_in(text: &str) -> BTreeSet<&str> {
    text.split('\'').filter_map(|part| part.split(' ').next()).collect()
}

#[test]
fn scripts_stand_at_the_place_of_their_name() {
    for name in ScriptName::ALL {
        assert_eq!(Scripts::embedded().get(*name).name(), name.as_str());
    }
}

#[test]
fn script_statuses_equal_the_replies_in_its_text() {
    for script in scripts() {
        let found = words_in(script.text());
        for status in script.name.statuses() {
            assert!(found.contains(status), "{} never says {status}", script.name());
        }
        let literal = |part: &str| part.split('\'').next().unwrap().to_owned();
        let replied = script.text().split("reply('").skip(1).map(literal);
        // A reply can have its status from a variable: `local status = mode and 'a' or 'b'`.
        let lines = script.text().lines().filter(|line| line.contains("status = "));
        let assigned = lines.flat_map(|line| {
            let value = line.split_once("status = ").unwrap().1;
            value.split('\'').skip(1).step_by(2).map(str::to_owned)
        });
        for status in replied.chain(assigned) {
            let is_known = script.name.statuses().contains(&status.as_str());
            assert!(is_known, "{} says {status}, too", script.name());
        }
        assert!(!script.name.statuses().is_empty(), "{}", script.name());
    }
}

#[test]
fn built_in_scripts_equal_the_lua_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let read = Scripts::from_folder(&folder).unwrap();
    assert_eq!(
        Scripts::embedded().get(ScriptName::AcquireWrite).digest,
        read.get(ScriptName::AcquireWrite).digest
    );
    for script in scripts() {
        assert!(script.text().lines().count() > 20, "{} is whole", script.name());
        assert!(!script.text().contains("-- @"), "{} has nothing left to assemble", script.name());
    }
    let files = |folder: PathBuf| {
        folder.read_dir().unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file())
    };
    let parts =
        ["", "set_nx", "semaphore", "fenced", "client_record"].map(|part| folder.join(part));
    let on_disk: usize = parts.map(|part| files(part).count()).iter().sum();
    let own = scripts().filter(|script| !script.name.is_legacy());
    assert_eq!(own.count(), on_disk);
}

#[test]
fn max_token_lead_equals_that_of_the_scripts() {
    let prelude = include_str!("../../lua/lib/prelude.lua");
    assert!(prelude.contains(&format!("local MAX_TOKEN_LEAD = {} --", MAX_TOKEN_LEAD.as_millis())));
}
