//! What a client reports: its metrics and its events, held against the documentation.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods, unreachable_pub)]

mod metrics;
mod tracing;

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
    read(&testkit::project_root().join("src"), &mut source);
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

/// The messages of events, from the second column of the table of events.
pub fn documented_messages() -> BTreeSet<String> {
    let table = DOCUMENTATION.split("| event | message |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(2).unwrap().trim().trim_matches('`').to_owned()).collect()
}

/// The queries of the alerts: code in the section about alerts that names a metric.
pub fn documented_alerts() -> Vec<String> {
    let section = DOCUMENTATION.split("## What to alert on").nth(1).unwrap();
    let code = section.split('`').skip(1).step_by(2);
    code.filter(|code| code.contains("rwlease_")).map(str::to_owned).collect()
}

/// Waits until a waiter of the lock has told the server where it is subscribed, so that it gets
/// pushes.
pub async fn until_subscribed(engine: &EmbeddedCluster, lock: &RwLock) {
    let key = format!("rwlease:{}", lock.name());
    let subscribed = async {
        loop {
            let master = engine.faults().master_of(lock.slot());
            let entries = engine.execute(master, &[b"HGETALL", key.as_bytes()]);
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
