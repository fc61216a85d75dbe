use std::io::{self, Write};

use rwlease::status::{SemaphoreHolder, SemaphoreWaiter};
use rwlease::{Client, RwLock, SemaphoreStatus};
use serde_json::{Value, json};

use super::{Entry, Extent, write_entries};
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
    let entries = status.holders.iter().map(holder).chain(status.waiters.iter().map(waiter));
    write_entries(out, "PERMITS", entries)
}

/// What is held, in a word.
pub fn held(status: &SemaphoreStatus) -> String {
    format!("{}/{}", status.in_use, status.limit.unwrap_or(0))
}

pub fn holders(status: &SemaphoreStatus) -> Vec<Entry<'_>> {
    status.holders.iter().map(holder).collect()
}

fn holder(holder: &SemaphoreHolder) -> Entry<'_> {
    Entry {
        id: &holder.id,
        client: holder.client.as_ref(),
        state: "holds",
        what: holder.permits.into(),
        since: holder.held_for,
        left: holder.lease_remaining,
        token: Some(holder.fencing_token),
    }
}

fn waiter(waiter: &SemaphoreWaiter) -> Entry<'_> {
    Entry {
        id: &waiter.id,
        client: waiter.client.as_ref(),
        state: "waits",
        what: waiter.permits.into(),
        since: waiter.waiting_for,
        left: waiter.ttl_remaining,
        token: None,
    }
}

pub fn to_json(named: &RwLock, status: &SemaphoreStatus) -> Value {
    let holder = |of: &SemaphoreHolder| holder(of).to_json("permits");
    let waiter = |of: &SemaphoreWaiter| waiter(of).to_json("permits");
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
