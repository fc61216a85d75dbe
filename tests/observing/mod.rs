//! Shared by the tests of tracing and metrics: the names in the code and in the documentation, and
//! a slot that moves.

// Each user needs only a part of it.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{RwLock, Slot};

pub const DOCUMENTATION: &str = include_str!("../../docs/observing.md");
pub const DASHBOARD: &str = include_str!("../../docs/grafana.json");

/// The library's source without white space, so that line breaks do not matter.
pub fn source() -> String {
    let mut source = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
    source.split_whitespace().collect()
}

fn read(folder: &Path, source: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, source);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            source.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Every name with this `prefix` directly after one of the `starts`.
pub fn names(text: &str, starts: &[&str], prefix: &str) -> BTreeSet<String> {
    let after = starts.iter().flat_map(|start| text.split(*start).skip(1));
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_' || letter == '.';
    after
        .filter(|rest| rest.starts_with(prefix))
        .map(|rest| rest.chars().take_while(|letter| is_name(*letter)).collect())
        .collect()
}

/// Waits until a waiter of the lock has told the server where it is subscribed, so that it gets
/// pushes.
pub async fn until_subscribed(engine: &EmbeddedCluster, lock: &RwLock) {
    let key = format!("rwlease:{}", lock.name());
    let subscribed = async {
        loop {
            let master = engine.faults().master_of(lock.slot());
            let entries = engine.execute(master, &[b"HVALS", key.as_bytes()]);
            let node = |entry: &String| entry.split(' ').nth(9).map(str::to_owned);
            if entries.iter().filter_map(node).any(|node| node != "-") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), subscribed).await;
    waited.unwrap_or_else(|_| panic!("no waiter of `{}` is subscribed", lock.name()));
}

/// Moves a slot to another master, without any notice.
pub fn move_away(engine: &EmbeddedCluster, slot: Slot) {
    let faults = engine.faults();
    let other = 1 - faults.master_of(slot);
    assert!(faults.begin_move(slot, other) && faults.finish_move(slot));
}
