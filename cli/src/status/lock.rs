//! `rwlease status` of a read/write lock.

use std::io::{self, Write};

use rwlease::status::{Holder, Waiter};
use rwlease::{LockStatus, RwLock};
use serde_json::{Value, json};

use super::{ALIGNED_RIGHT, Extent, HolderSummary, seconds, who};
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
    let rows: Vec<[String; 7]> = (status.writer.iter().chain(&status.readers).map(holder_row))
        .chain(status.upgrader.iter().map(|waiter| waiter_row(waiter, "upgrades")))
        .chain(status.waiters.iter().map(|waiter| waiter_row(waiter, "waits")))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let header = ["", "MODE", "ID", "SINCE", "LEFT", "TOKEN", "WHO"];
    format::write_table(out, header, ALIGNED_RIGHT, &rows)
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

pub fn holders(status: &LockStatus) -> Vec<HolderSummary<'_>> {
    let holders = status.writer.iter().chain(&status.readers);
    let summaries = holders.map(|holder| HolderSummary {
        id: &holder.id,
        client: holder.client.as_ref(),
        held_for: holder.held_for,
        lease_remaining: holder.lease_remaining,
    });
    summaries.collect()
}

fn holder_row(holder: &Holder) -> [String; 7] {
    let state = match (holder.revoked, holder.cached) {
        (true, _) => "revoked",
        (false, true) => "cached",
        (false, false) => "holds",
    };
    [
        state.into(),
        format::mode(holder.mode).into(),
        format::escape_controls(&holder.id),
        format::duration(holder.held_for),
        format::duration(holder.lease_remaining),
        holder.fencing_token.to_string(),
        who(&holder.client),
    ]
}

fn waiter_row(waiter: &Waiter, state: &str) -> [String; 7] {
    let state = if waiter.ttl_remaining.is_zero() { "gone" } else { state };
    [
        state.into(),
        format::mode(waiter.mode).into(),
        format::escape_controls(&waiter.id),
        format::duration(waiter.waiting_for),
        format::duration(waiter.ttl_remaining),
        String::new(),
        who(&waiter.client),
    ]
}

pub fn to_json(lock: &RwLock, status: &LockStatus) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "id": holder.id,
            "client": holder.client.as_ref().map(format::client_json),
            "mode": format::mode(holder.mode),
            "token": holder.fencing_token.get(),
            "held_for": seconds(holder.held_for),
            "lease_remaining": seconds(holder.lease_remaining),
            "revoked": holder.revoked,
            "cached": holder.cached,
        })
    };
    let waiter = |waiter: &Waiter| {
        json!({
            "id": waiter.id,
            "client": waiter.client.as_ref().map(format::client_json),
            "mode": format::mode(waiter.mode),
            "waiting_for": seconds(waiter.waiting_for),
            "ttl_remaining": seconds(waiter.ttl_remaining),
        })
    };
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
