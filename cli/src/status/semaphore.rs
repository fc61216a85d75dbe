//! `rwlease status` of a semaphore.

use std::io::{self, Write};

use rwlease::status::{SemaphoreHolder, SemaphoreWaiter};
use rwlease::{Client, RwLock, SemaphoreStatus};
use serde_json::{Value, json};

use super::{ALIGNED_RIGHT, Extent, HolderSummary, seconds, who};
use crate::format;

/// Merges the pages.
pub async fn query(locks: &Client, name: &str, extent: Extent) -> rwlease::Result<SemaphoreStatus> {
    let semaphore = locks.semaphore(name, 1)?; // a query ignores the limit
    let mut whole = semaphore.status().await?;
    let mut last = whole.clone();
    while extent == Extent::AllPages && !last.is_last() {
        last = semaphore.status().after(&last).await?;
        whole.holders.extend(last.holders.iter().cloned());
        whole.waiters.extend(last.waiters.iter().cloned());
    }
    Ok(whole)
}

/// `named` has the semaphore's name and slot.
pub fn print(out: &mut impl Write, named: &RwLock, status: &SemaphoreStatus) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    writeln!(
        out,
        "{bold}{}{bold:#}  slot {}  semaphore, {} of {} permits in use, {}  last token {}",
        format::escape_controls(named.name()),
        named.slot(),
        status.in_use,
        status.limit.unwrap_or(0),
        format::with_noun(status.waiter_count, "waits", "wait"),
        status.last_token.map_or(0, u64::from)
    )?;
    let rows: Vec<[String; 7]> =
        status.holders.iter().map(holds).chain(status.waiters.iter().map(waits)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let header = ["", "PERMITS", "ID", "SINCE", "LEFT", "TOKEN", "WHO"];
    format::write_table(out, header, ALIGNED_RIGHT, &rows)
}

/// What is held, in a word.
pub fn held(status: &SemaphoreStatus) -> String {
    format!("{}/{}", status.in_use, status.limit.unwrap_or(0))
}

pub fn holders(status: &SemaphoreStatus) -> Vec<HolderSummary<'_>> {
    let summaries = status.holders.iter().map(|holder| HolderSummary {
        id: &holder.id,
        client: holder.client.as_ref(),
        held_for: holder.held_for,
        lease_remaining: holder.lease_remaining,
    });
    summaries.collect()
}

fn holds(holder: &SemaphoreHolder) -> [String; 7] {
    [
        "holds".into(),
        holder.permits.to_string(),
        format::escape_controls(&holder.id),
        format::duration(holder.held_for),
        format::duration(holder.lease_remaining),
        holder.fencing_token.to_string(),
        who(&holder.client),
    ]
}

fn waits(waiter: &SemaphoreWaiter) -> [String; 7] {
    [
        if waiter.ttl_remaining.is_zero() { "gone" } else { "waits" }.into(),
        waiter.permits.to_string(),
        format::escape_controls(&waiter.id),
        format::duration(waiter.waiting_for),
        format::duration(waiter.ttl_remaining),
        String::new(),
        who(&waiter.client),
    ]
}

pub fn to_json(named: &RwLock, status: &SemaphoreStatus) -> Value {
    let holder = |holder: &SemaphoreHolder| {
        json!({
            "id": holder.id,
            "client": holder.client.as_ref().map(format::client_json),
            "permits": holder.permits,
            "token": holder.fencing_token.get(),
            "held_for": seconds(holder.held_for),
            "lease_remaining": seconds(holder.lease_remaining),
        })
    };
    let waiter = |waiter: &SemaphoreWaiter| {
        json!({
            "id": waiter.id,
            "client": waiter.client.as_ref().map(format::client_json),
            "permits": waiter.permits,
            "waiting_for": seconds(waiter.waiting_for),
            "ttl_remaining": seconds(waiter.ttl_remaining),
        })
    };
    json!({
        "kind": "semaphore",
        "name": named.name(),
        "slot": named.slot().get(),
        "limit": status.limit,
        "in_use": status.in_use,
        "token": status.last_token.map_or(0, u64::from),
        "holder_count": status.holder_count,
        "holders": status.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiter_count": status.waiter_count,
        "waiters": status.waiters.iter().map(waiter).collect::<Vec<_>>(),
    })
}
