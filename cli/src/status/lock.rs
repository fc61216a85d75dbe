use std::io::{self, Write};

use rwlease::status::{Holder, Waiter};
use rwlease::{LockStatus, RwLock};
use serde_json::{Value, json};

use super::{Entry, Extent, write_entries};
use crate::format;

/// Merges the pages.
pub async fn query(lock: &RwLock, extent: Extent) -> rwlease::Result<LockStatus> {
    let mut whole = lock.status().await?;
    let mut last = whole.clone();
    while extent == Extent::AllPages && !last.is_last() {
        last = lock.status().after(&last).await?;
        whole.readers.extend(last.readers.iter().cloned());
        whole.waiters.extend(last.waiters.iter().cloned());
    }
    Ok(whole)
}

pub fn print(out: &mut impl Write, lock: &RwLock, status: &LockStatus) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    let held = match (&status.writer, status.readers.len() as u64) {
        (None, 0) => "free".to_owned(),
        (writer, readers) => format!("held by {}", format::holders(writer.is_some(), readers)),
    };
    let waiting = format::with_noun(status.waiter_count, "waits", "wait");
    writeln!(
        out,
        "{bold}{}{bold:#}  slot {}  {held}, {waiting}  last token {}",
        format::escape_controls(lock.name()),
        lock.slot(),
        status.last_token.map_or(0, u64::from)
    )?;
    let entries = (status.writer.iter().chain(&status.readers).map(holder))
        .chain(status.upgrader.iter().map(|upgrader| waiter(upgrader, "upgrades")))
        .chain(status.waiters.iter().map(|other| waiter(other, "waits")));
    write_entries(out, "MODE", entries)
}

/// What is held, in a word.
pub fn held(status: &LockStatus) -> String {
    match (&status.writer, status.readers.len(), status.reader_count) {
        (Some(_), ..) => "write".to_owned(),
        (None, 0, _) => "free".to_owned(),
        (None, 1, _) => "read".to_owned(),
        (None, _, readers) => format!("{readers} read"),
    }
}

pub fn holders(status: &LockStatus) -> Vec<Entry<'_>> {
    status.writer.iter().chain(&status.readers).map(holder).collect()
}

fn holder(holder: &Holder) -> Entry<'_> {
    Entry {
        id: &holder.id,
        client: holder.client.as_ref(),
        state: match (holder.revoked, holder.cached) {
            (true, _) => "revoked",
            (false, true) => "cached",
            (false, false) => "holds",
        },
        what: format::mode(holder.mode).into(),
        since: holder.held_for,
        left: holder.lease_remaining,
        token: Some(holder.fencing_token),
    }
}

fn waiter<'a>(waiter: &'a Waiter, state: &'static str) -> Entry<'a> {
    Entry {
        id: &waiter.id,
        client: waiter.client.as_ref(),
        state,
        what: format::mode(waiter.mode).into(),
        since: waiter.waiting_for,
        left: waiter.ttl_remaining,
        token: None,
    }
}

pub fn to_json(lock: &RwLock, status: &LockStatus) -> Value {
    let holder = |of: &Holder| {
        let mut json = holder(of).to_json("mode");
        json["revoked"] = of.revoked.into();
        json["cached"] = of.cached.into();
        json
    };
    let waiter = |of: &Waiter| waiter(of, "").to_json("mode");
    json!({
        "kind": "lock",
        "name": lock.name(),
        "slot": lock.slot().get(),
        "locked": status.is_locked(),
        "token": status.last_token.map_or(0, u64::from),
        "writer": status.writer.as_ref().map(holder),
        "reader_count": status.reader_count,
        "readers": status.readers.iter().map(holder).collect::<Vec<_>>(),
        "upgrader": status.upgrader.as_ref().map(waiter),
        "waiter_count": status.waiter_count,
        "waiters": status.waiters.iter().map(waiter).collect::<Vec<_>>(),
    })
}
