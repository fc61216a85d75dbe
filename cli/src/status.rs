//! `rwlease status`.

mod semaphore;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rwlease::{ErrorKind, Holder, Locks, RwLock, Slot, Status, Waiter};
use serde_json::{Value, json};

use crate::args::{self, ServerArgs};
use crate::exit::{CliError, ExitStatus, print_error};
use crate::format;
use crate::signals::Signals;

/// The least time between two queries.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

pub async fn status(servers: &ServerArgs, args: args::StatusArgs) -> Result<ExitStatus, CliError> {
    let locks = servers.connect().await?;
    let lock = locks.rwlock(&args.name)?;
    if !args.watch {
        query_and_print(&locks, &lock, args.json).await?;
        return Ok(ExitStatus::DONE);
    }
    let mut signals = Signals::terminating()?;
    loop {
        if io::stdout().is_terminal() && !args.json {
            write!(anstream::stdout(), "{CLEAR}")?;
        }
        let looking = async {
            // People watch during failovers, so such a failure is printed and the loop goes on.
            match query_and_print(&locks, &lock, args.json).await {
                Err(failure) if failure.is_transient() => print_error(&failure.to_string()),
                looked => looked?,
            }
            tokio::time::sleep(args.every.max(MIN_INTERVAL)).await;
            Ok::<_, CliError>(())
        };
        tokio::select! {
            signal = signals.next() => return Ok(ExitStatus::by_signal(signal as i32)),
            looked = looking => looked?,
        }
    }
}

async fn query_and_print(locks: &Locks, lock: &RwLock, json: bool) -> Result<(), CliError> {
    let status = match query_all_pages(lock).await {
        Ok(status) => status,
        // If it is no lock, it may be a semaphore.
        Err(error) if error.kind() == ErrorKind::Foreign => {
            return match semaphore::query_all_pages(locks, lock.name()).await {
                Ok(status) => semaphore::print(lock, &status, json),
                Err(_) => Err(error.into()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = anstream::stdout().lock();
    if json {
        writeln!(out, "{}", to_json(lock.name(), lock.slot(), &status))?;
    } else {
        print_text(&mut out, lock.name(), lock.slot(), &status)?;
    }
    out.flush()?;
    Ok(())
}

/// Merges all pages.
async fn query_all_pages(lock: &RwLock) -> rwlease::Result<Status> {
    let mut whole = lock.status().await?;
    let mut last = whole.clone();
    while !last.is_last() {
        last = lock.status().after(&last).await?;
        whole.reading.extend(last.reading.iter().cloned());
        whole.waiting.extend(last.waiting.iter().cloned());
    }
    Ok(whole)
}

fn print_text(out: &mut impl Write, name: &str, slot: Slot, status: &Status) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    let held = match (&status.writer, status.reading.len() as u64) {
        (None, 0) => "free".to_owned(),
        (writer, readers) => format!("held by {}", format::holders(writer.is_some(), readers)),
    };
    let waiting = format::with_noun(status.waiters, "waits", "wait");
    writeln!(
        out,
        "{bold}{}{bold:#}  slot {slot}  {held}, {waiting}  last token {}",
        format::escape_controls(name),
        status.token
    )?;
    let rows: Vec<[String; 6]> = (status.writer.iter().chain(&status.reading).map(holder_row))
        .chain(status.upgrader.iter().map(|waiter| waiter_row(waiter, "upgrades")))
        .chain(status.waiting.iter().map(|waiter| waiter_row(waiter, "waits")))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let dim = anstyle::Style::new().dimmed();
    let [state, mode, id, since, left, token] = ["", "MODE", "ID", "SINCE", "LEFT", "TOKEN"];
    writeln!(out, "{dim}{state:<8} {mode:<6} {id:<18} {since:>10} {left:>10}  {token}{dim:#}")?;
    for [state, mode, id, since, left, token] in rows {
        writeln!(out, "{state:<8} {mode:<6} {id:<18} {since:>10} {left:>10}  {token}")?;
    }
    Ok(())
}

fn holder_row(holder: &Holder) -> [String; 6] {
    let state = match (holder.revoked, holder.cached) {
        (true, _) => "revoked",
        (false, true) => "cached",
        (false, false) => "holds",
    };
    [
        state.into(),
        format::mode(holder.mode).into(),
        holder.id.clone(),
        format::duration(holder.age),
        format::duration(holder.remaining),
        holder.token.to_string(),
    ]
}

fn waiter_row(waiter: &Waiter, state: &str) -> [String; 6] {
    let state = if waiter.remaining.is_zero() { "gone" } else { state };
    [
        state.into(),
        format::mode(waiter.mode).into(),
        waiter.id.clone(),
        format::duration(waiter.age),
        format::duration(waiter.remaining),
        String::new(),
    ]
}

/// Times are in seconds.
fn to_json(name: &str, slot: Slot, status: &Status) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "id": holder.id,
            "mode": format::mode(holder.mode),
            "token": holder.token,
            "age": seconds(holder.age),
            "remaining": seconds(holder.remaining),
            "revoked": holder.revoked,
            "cached": holder.cached,
        })
    };
    let waiter = |waiter: &Waiter| {
        json!({
            "id": waiter.id,
            "mode": format::mode(waiter.mode),
            "age": seconds(waiter.age),
            "remaining": seconds(waiter.remaining),
        })
    };
    json!({
        "name": name,
        "slot": slot.get(),
        "locked": status.is_locked(),
        "token": status.token,
        "writer": status.writer.as_ref().map(holder),
        "readers": status.readers,
        "reading": status.reading.iter().map(holder).collect::<Vec<_>>(),
        "upgrader": status.upgrader.as_ref().map(waiter),
        "waiters": status.waiters,
        "waiting": status.waiting.iter().map(waiter).collect::<Vec<_>>(),
    })
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}
