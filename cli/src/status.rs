//! `rwlease status`.

mod semaphore;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rwlease::{ErrorKind, Holder, Locks, RwLock, Slot, Status, Waiter};
use serde_json::{Value, json};

use crate::args::{self, Servers};
use crate::exit::{Exit, Failure, tell};
use crate::show;
use crate::signals::Signals;

/// The least time between two queries.
const LEAST: Duration = Duration::from_millis(10);

/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

pub async fn status(servers: &Servers, args: args::Status) -> Result<Exit, Failure> {
    let locks = servers.connect().await?;
    let lock = locks.rwlock(&args.name)?;
    if !args.watch {
        look(&locks, &lock, args.json).await?;
        return Ok(Exit::DONE);
    }
    let mut signals = Signals::that_end()?;
    loop {
        if io::stdout().is_terminal() && !args.json {
            write!(anstream::stdout(), "{CLEAR}")?;
        }
        let looking = async {
            // People watch during failovers, so such a failure is printed and the loop goes on.
            match look(&locks, &lock, args.json).await {
                Err(failure) if failure.may_pass() => tell(&failure.to_string()),
                looked => looked?,
            }
            tokio::time::sleep(args.every.max(LEAST)).await;
            Ok::<_, Failure>(())
        };
        tokio::select! {
            signal = signals.next() => return Ok(Exit::by_signal(signal as i32)),
            looked = looking => looked?,
        }
    }
}

async fn look(locks: &Locks, lock: &RwLock, json: bool) -> Result<(), Failure> {
    let status = match whole(lock).await {
        Ok(status) => status,
        // If it is no lock, it may be a semaphore.
        Err(error) if error.kind() == ErrorKind::Foreign => {
            return match semaphore::whole(locks, lock.name()).await {
                Ok(status) => semaphore::show(lock, &status, json),
                Err(_) => Err(error.into()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = anstream::stdout().lock();
    if json {
        writeln!(out, "{}", in_json(lock.name(), lock.slot(), &status))?;
    } else {
        in_words(&mut out, lock.name(), lock.slot(), &status)?;
    }
    out.flush()?;
    Ok(())
}

/// Merges all pages.
async fn whole(lock: &RwLock) -> rwlease::Result<Status> {
    let mut whole = lock.status().await?;
    let mut last = whole.clone();
    while !last.is_last() {
        last = lock.status().after(&last).await?;
        whole.reading.extend(last.reading.iter().cloned());
        whole.waiting.extend(last.waiting.iter().cloned());
    }
    Ok(whole)
}

fn in_words(out: &mut impl Write, name: &str, slot: Slot, status: &Status) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    let held = match (&status.writer, status.reading.len() as u64) {
        (None, 0) => "free".to_owned(),
        (writer, readers) => format!("held by {}", show::holders(writer.is_some(), readers)),
    };
    let waiting = show::count(status.waiters, "waits", "wait");
    writeln!(
        out,
        "{bold}{}{bold:#}  slot {slot}  {held}, {waiting}  last token {}",
        show::plain(name),
        status.token
    )?;
    let rows: Vec<[String; 6]> = (status.writer.iter().chain(&status.reading).map(holds))
        .chain(status.upgrader.iter().map(|waiter| waits(waiter, "upgrades")))
        .chain(status.waiting.iter().map(|waiter| waits(waiter, "waits")))
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

fn holds(holder: &Holder) -> [String; 6] {
    let state = match (holder.revoked, holder.cached) {
        (true, _) => "revoked",
        (false, true) => "cached",
        (false, false) => "holds",
    };
    [
        state.into(),
        show::mode(holder.mode).into(),
        holder.id.clone(),
        show::time(holder.age),
        show::time(holder.remaining),
        holder.token.to_string(),
    ]
}

fn waits(waiter: &Waiter, state: &str) -> [String; 6] {
    let state = if waiter.remaining.is_zero() { "gone" } else { state };
    [
        state.into(),
        show::mode(waiter.mode).into(),
        waiter.id.clone(),
        show::time(waiter.age),
        show::time(waiter.remaining),
        String::new(),
    ]
}

/// Times are in seconds.
fn in_json(name: &str, slot: Slot, status: &Status) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "id": holder.id,
            "mode": show::mode(holder.mode),
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
            "mode": show::mode(waiter.mode),
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
