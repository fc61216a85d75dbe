//! `rwlease status` of a semaphore.

use std::io::Write;

use rwlease::{Locks, PermitHolder, PermitWaiter, RwLock, SemaphoreStatus};
use serde_json::{Value, json};

use super::seconds;
use crate::exit::CliError;
use crate::format;

/// Merges all pages.
pub async fn query_all_pages(locks: &Locks, name: &str) -> rwlease::Result<SemaphoreStatus> {
    let semaphore = locks.semaphore(name, 1)?; // a query ignores the limit
    let mut whole = semaphore.status().await?;
    let mut last = whole.clone();
    while !last.is_last() {
        last = semaphore.status().after(&last).await?;
        whole.holding.extend(last.holding.iter().cloned());
        whole.waiting.extend(last.waiting.iter().cloned());
    }
    Ok(whole)
}

/// `named` has the semaphore's name and slot.
pub fn print(named: &RwLock, status: &SemaphoreStatus, json: bool) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    if json {
        writeln!(out, "{}", in_json(named, status))?;
        return Ok(out.flush()?);
    }
    let bold = anstyle::Style::new().bold();
    writeln!(
        out,
        "{bold}{}{bold:#}  slot {}  semaphore, {} of {} permits in use, {}  last token {}",
        format::escape_controls(named.name()),
        named.slot(),
        status.in_use,
        status.limit.unwrap_or(0),
        format::with_noun(status.waiters, "waits", "wait"),
        status.token
    )?;
    let rows: Vec<[String; 6]> =
        status.holding.iter().map(holds).chain(status.waiting.iter().map(waits)).collect();
    if !rows.is_empty() {
        let dim = anstyle::Style::new().dimmed();
        let [state, permits, id, since, left, token] =
            ["", "PERMITS", "ID", "SINCE", "LEFT", "TOKEN"];
        writeln!(
            out,
            "{dim}{state:<8} {permits:<7} {id:<18} {since:>10} {left:>10}  {token}{dim:#}"
        )?;
        for [state, permits, id, since, left, token] in rows {
            writeln!(out, "{state:<8} {permits:<7} {id:<18} {since:>10} {left:>10}  {token}")?;
        }
    }
    Ok(out.flush()?)
}

fn holds(holder: &PermitHolder) -> [String; 6] {
    [
        "holds".into(),
        holder.permits.to_string(),
        holder.id.clone(),
        format::duration(holder.age),
        format::duration(holder.remaining),
        holder.token.to_string(),
    ]
}

fn waits(waiter: &PermitWaiter) -> [String; 6] {
    [
        if waiter.remaining.is_zero() { "gone" } else { "waits" }.into(),
        waiter.permits.to_string(),
        waiter.id.clone(),
        format::duration(waiter.age),
        format::duration(waiter.remaining),
        String::new(),
    ]
}

/// Times are in seconds.
fn in_json(named: &RwLock, status: &SemaphoreStatus) -> Value {
    let holder = |holder: &PermitHolder| {
        json!({
            "id": holder.id,
            "permits": holder.permits,
            "token": holder.token,
            "age": seconds(holder.age),
            "remaining": seconds(holder.remaining),
        })
    };
    let waiter = |waiter: &PermitWaiter| {
        json!({
            "id": waiter.id,
            "permits": waiter.permits,
            "age": seconds(waiter.age),
            "remaining": seconds(waiter.remaining),
        })
    };
    json!({
        "name": named.name(),
        "slot": named.slot().get(),
        "limit": status.limit,
        "in_use": status.in_use,
        "token": status.token,
        "holders": status.holders,
        "holding": status.holding.iter().map(holder).collect::<Vec<_>>(),
        "waiters": status.waiters,
        "waiting": status.waiting.iter().map(waiter).collect::<Vec<_>>(),
    })
}
