mod lock;
mod semaphore;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rwlease::status::ClientInfo;
use rwlease::{Client, ErrorKind, FencingToken, LockStatus, RwLock, SemaphoreStatus};
use serde_json::{Value, json};

use crate::args::{self, ServerArgs};
use crate::exit::{CliError, ExitStatus};
use crate::format;
use crate::messages::print_error;
use crate::signals::Signals;

/// The least time between two queries.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The columns SINCE and LEFT.
const ALIGNED_RIGHT: &[usize] = &[3, 4];

pub async fn status(servers: &ServerArgs, args: args::StatusArgs) -> Result<ExitStatus, CliError> {
    let locks = servers.connect().await?;
    if !args.watch {
        query_and_print(&locks, &args).await?;
        return Ok(ExitStatus::DONE);
    }
    let mut signals = Signals::terminating()?;
    loop {
        if io::stdout().is_terminal() && !args.json {
            write!(anstream::stdout(), "{CLEAR}")?;
        }
        let looking = async {
            // People watch during failovers, so such a failure is printed and the loop goes on.
            match query_and_print(&locks, &args).await {
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

async fn query_and_print(locks: &Client, args: &args::StatusArgs) -> Result<(), CliError> {
    let status = AnyStatus::query(locks, &args.name, Extent::AllPages).await?;
    let mut out = anstream::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", status.to_json())?,
        false => status.print(&mut out)?,
    }
    out.flush()?;
    Ok(())
}

/// How many holders and waiters to query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// At most 100 holders and 100 waiters.
    FirstPage,
    AllPages,
}

/// A lock or a semaphore. Each has the name and the slot as a lock.
pub enum AnyStatus {
    Lock(RwLock, Box<LockStatus>),
    Semaphore(RwLock, SemaphoreStatus),
}

impl AnyStatus {
    /// Fails with `WrongType` if the key holds neither.
    pub async fn query(locks: &Client, name: &str, extent: Extent) -> rwlease::Result<AnyStatus> {
        let lock = locks.rwlock(name)?;
        match lock::query(&lock, extent).await {
            Ok(status) => Ok(AnyStatus::Lock(lock, Box::new(status))),
            // If it is no lock, it may be a semaphore.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                match semaphore::query(locks, name, extent).await {
                    Err(other) if other.kind() == ErrorKind::WrongType => Err(error),
                    failure => failure.map(|status| AnyStatus::Semaphore(lock, status)),
                }
            }
            Err(error) => Err(error),
        }
    }

    pub fn is_held(&self) -> bool {
        match self {
            AnyStatus::Lock(_, status) => status.is_locked(),
            AnyStatus::Semaphore(_, status) => !status.holders.is_empty(),
        }
    }

    pub fn has_waiters(&self) -> bool {
        match self {
            AnyStatus::Lock(_, status) => status.waiter_count > 0,
            AnyStatus::Semaphore(_, status) => status.waiter_count > 0,
        }
    }

    /// The row of a list: the name, what is held, since when, the time left, the number of waiters,
    /// and who holds it.
    pub fn row(&self) -> [String; 6] {
        let (lock, held, holders, waiters) = match self {
            AnyStatus::Lock(lock, status) => {
                (lock, lock::held(status), lock::holders(status), status.waiter_count)
            }
            AnyStatus::Semaphore(lock, status) => {
                (lock, semaphore::held(status), semaphore::holders(status), status.waiter_count)
            }
        };
        let times = |of: fn(&Entry<'_>) -> Duration| {
            holders.first().map(|holder| format::duration(of(holder))).unwrap_or_default()
        };
        let who = |holder: &Entry<'_>| format::who_or_id(holder.client, holder.id);
        let who = match &holders[..] {
            [] => String::new(),
            [holder] => who(holder),
            [first, others @ ..] => format!("{} and {} more", who(first), others.len()),
        };
        [
            format::escape_controls(lock.name()),
            held,
            times(|holder| holder.since),
            times(|holder| holder.left),
            waiters.to_string(),
            who,
        ]
    }

    /// Times are in seconds.
    pub fn to_json(&self) -> Value {
        match self {
            AnyStatus::Lock(lock, status) => lock::to_json(lock, status),
            AnyStatus::Semaphore(lock, status) => semaphore::to_json(lock, status),
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            AnyStatus::Lock(lock, status) => lock::print(out, lock, status),
            AnyStatus::Semaphore(lock, status) => semaphore::print(out, lock, status),
        }
    }
}

/// A holder of a lock or of permits, or a waiter.
struct Entry<'a> {
    id: &'a str,
    client: Option<&'a ClientInfo>,
    /// What it does, in a word.
    state: &'static str,
    /// The mode, or the number of permits.
    what: Value,
    since: Duration,
    left: Duration,
    /// `None` for a waiter.
    token: Option<FencingToken>,
}

impl Entry<'_> {
    fn row(&self) -> [String; 7] {
        let is_gone = self.token.is_none() && self.left.is_zero();
        [
            if is_gone { "gone" } else { self.state }.into(),
            self.what.as_str().map_or_else(|| self.what.to_string(), str::to_owned),
            format::escape_controls(self.id),
            format::duration(self.since),
            format::duration(self.left),
            self.token.map(|token| token.to_string()).unwrap_or_default(),
            self.client.map(format::who).unwrap_or_default(),
        ]
    }

    fn to_json(&self, what: &str) -> Value {
        let mut json = json!({
            "id": self.id,
            "client": self.client.map(format::client_json),
            what: self.what,
        });
        let (since, left) = match self.token {
            Some(_) => ("held_for", "lease_remaining"),
            None => ("waiting_for", "ttl_remaining"),
        };
        for (key, time) in [(since, self.since), (left, self.left)] {
            json[key] = ((time.as_secs_f64() * 1e6).round() / 1e6).into();
        }
        if let Some(token) = self.token {
            json["token"] = token.get().into();
        }
        json
    }
}

/// Writes the table. `what` is the header of the modes or permits.
fn write_entries<'a>(
    out: &mut impl Write,
    what: &str,
    entries: impl Iterator<Item = Entry<'a>>,
) -> io::Result<()> {
    let rows: Vec<[String; 7]> = entries.map(|entry| entry.row()).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let header = ["", what, "ID", "SINCE", "LEFT", "TOKEN", "WHO"];
    format::write_table(out, header, ALIGNED_RIGHT, &rows)
}
