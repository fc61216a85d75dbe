//! The line that is shown during a wait: the holder, the number of waiters ahead, or the error of
//! the servers.

use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rwlease::status::{Holder, SemaphoreHolder};
use rwlease::{LockStatus, RwLock, Semaphore, SemaphoreStatus};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::RELEASE_TIMEOUT;
use super::lock_target::LockTarget;
use crate::exit::CliError;
use crate::format;
use crate::messages::print_error;

/// Nothing is shown if the lock is granted within this time.
const DISPLAY_DELAY: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval without a terminal, where only errors are shown. It is longer to spare the servers.
const HIDDEN_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How long a refused request looks for the holder.
const HOLDER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a query of the holder's name waits: it can be on a master that is away.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);
/// How long a granted request waits until the line is cleared. The command may write there.
const CLEAR_TIMEOUT: Duration = Duration::from_millis(100);

/// Returns the request's output. Until then it shows a spinner on a terminal. Elsewhere it prints
/// one line when trouble of the servers begins. The ids of this client's acquisitions begin with
/// `client`.
pub async fn with_wait_display<T>(
    client: String,
    wanted: &LockTarget,
    quiet: bool,
    request: impl Future<Output = T>,
) -> T {
    if quiet {
        return request.await;
    }
    let style = ProgressStyle::with_template("{spinner} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner =
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
    let on_terminal = !spinner.is_hidden();
    let (messages, cleared) = show(spinner);
    let output = tokio::select! {
        output = request => output,
        never = watch(&client, wanted, messages, on_terminal) => match never {},
    };
    drop(timeout(CLEAR_TIMEOUT, cleared).await);
    output
}

/// Shows each message, in a thread of its own: writes to a terminal can block. It clears the line
/// when the sender is dropped. The receiver is told of that.
fn show(spinner: ProgressBar) -> (mpsc::Sender<String>, oneshot::Receiver<()>) {
    let (sender, messages) = mpsc::channel();
    let (clears, cleared) = oneshot::channel();
    let display = move || {
        let mut next = messages.recv().map_err(RecvTimeoutError::from);
        loop {
            match next {
                Ok(message) => spinner.set_message(message),
                Err(RecvTimeoutError::Timeout) => spinner.tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            next = messages.recv_timeout(SPINNER_INTERVAL);
        }
        spinner.finish_and_clear();
        drop(clears);
    };
    // Without a thread nothing is shown.
    drop(std::thread::Builder::new().name("wait display".to_owned()).spawn(display));
    (sender, cleared)
}

async fn watch(
    client: &str,
    wanted: &LockTarget,
    shown: mpsc::Sender<String>,
    on_terminal: bool,
) -> Infallible {
    sleep(DISPLAY_DELAY).await;
    // The thread receives for as long as this sends.
    let show = |message| drop(shown.send(message));
    show(String::new());
    let mut in_trouble = false;
    loop {
        match wait_status(client, wanted, on_terminal).await.map_err(CliError::from) {
            Ok(message) => {
                in_trouble = false;
                show(message);
            }
            Err(failure) if failure.is_transient() => {
                let message = format!("still waiting: {failure}");
                if !on_terminal && !in_trouble {
                    print_error(&message);
                }
                in_trouble = true;
                show(format::escape_controls(&message));
            }
            // The request usually ends with it.
            Err(_) => {}
        }
        sleep(if on_terminal { POLL_INTERVAL } else { HIDDEN_POLL_INTERVAL }).await;
    }
}

/// Returns true if the servers answer a query at once.
pub async fn is_answered(wanted: &LockTarget) -> bool {
    timeout(RELEASE_TIMEOUT, wait_status("", wanted, false))
        .await
        .is_ok_and(|answer| answer.is_ok())
}

/// Queries the lock or semaphore, and describes it in one line. `is_named`: with the name of a
/// lock's holder.
async fn wait_status(client: &str, wanted: &LockTarget, is_named: bool) -> rwlease::Result<String> {
    match wanted {
        LockTarget::Lock(lock) => {
            let mut status = lock.status().clients(false).await?;
            if is_named {
                name_holder(lock, &mut status).await;
            }
            Ok(describe_lock(lock.name(), client, &status))
        }
        LockTarget::Permits(semaphore, _) => {
            let status = semaphore.status().clients(false).await?;
            Ok(describe_semaphore(semaphore.name(), client, &status))
        }
    }
}

/// Who holds the lock or the permits, in words. `None` if nobody does, or if the servers do not
/// reply at once.
pub async fn holders(wanted: &LockTarget) -> Option<String> {
    match wanted {
        LockTarget::Lock(lock) => {
            let query = lock.status().clients(false);
            let status = timeout(HOLDER_TIMEOUT, query).await.ok()?.ok();
            let mut status = status.filter(LockStatus::is_locked)?;
            name_holder(lock, &mut status).await;
            Some(lock_holders(&status))
        }
        LockTarget::Permits(semaphore, _) => {
            let query = semaphore.status().clients(false);
            let mut status = timeout(HOLDER_TIMEOUT, query).await.ok()?.ok()?;
            name_permit_holder(semaphore, &mut status).await;
            permit_holders(&status.holders)
        }
    }
}

/// Adds the name of the holder that is shown first, if it can be read in time.
async fn name_holder(lock: &RwLock, status: &mut LockStatus) {
    let Some(holder) = first_holder(status) else { return };
    if let Ok(Ok(mut named)) = timeout(NAME_TIMEOUT, lock.status().page_size(1)).await
        && let Some(named) = first_holder(&mut named).filter(|named| named.id == holder.id)
    {
        holder.client = named.client.take();
    }
}

fn first_holder(status: &mut LockStatus) -> Option<&mut Holder> {
    status.writer.as_mut().or(status.readers.first_mut())
}

/// Adds the name of the first holder, if it can be read in time.
async fn name_permit_holder(semaphore: &Semaphore, status: &mut SemaphoreStatus) {
    let Some(holder) = status.holders.first_mut() else { return };
    if let Ok(Ok(mut named)) = timeout(NAME_TIMEOUT, semaphore.status().page_size(1)).await
        && let Some(named) = named.holders.first_mut().filter(|named| named.id == holder.id)
    {
        holder.client = named.client.take();
    }
}

fn permit_holders(holders: &[SemaphoreHolder]) -> Option<String> {
    let (first, others) = holders.split_first()?;
    let who = format::who_or_id(first.client.as_ref(), &first.id);
    let for_ = format::duration(first.held_for);
    Some(match others.len() {
        0 => format!("{who} has held permits for {for_}"),
        others => format!("{who} and {others} more hold permits"),
    })
}

fn lock_holders(status: &LockStatus) -> String {
    let who = |holder: &Holder| format::who_or_id(holder.client.as_ref(), &holder.id);
    match (&status.writer, &status.readers[..]) {
        (None, []) => "nobody holds it".to_owned(),
        (Some(writer), _) => {
            format!("{} has written for {}", who(writer), format::duration(writer.held_for))
        }
        (None, [reader]) => {
            format!("{} has read for {}", who(reader), format::duration(reader.held_for))
        }
        (None, [first, ..]) => {
            format!("{} and {} more are reading", who(first), status.readers.len() - 1)
        }
    }
}

fn describe_lock(name: &str, client: &str, status: &LockStatus) -> String {
    let ids: Vec<&str> = status.waiters.iter().map(|waiter| &*waiter.id).collect();
    let before = before(client, &ids, status.waiter_count, status.is_last());
    format!("waiting for {}: {}, {before}", format::escape_controls(name), lock_holders(status))
}

fn describe_semaphore(name: &str, client: &str, status: &SemaphoreStatus) -> String {
    let ids: Vec<&str> = status.waiters.iter().map(|waiter| &*waiter.id).collect();
    let before = before(client, &ids, status.waiter_count, status.is_last());
    let (name, in_use) = (format::escape_controls(name), status.in_use);
    let limit = status.limit.unwrap_or(0);
    format!("waiting for {name}: {in_use} of {limit} permits are in use, {before}")
}

/// The number of waiters before this client. `ids` are those on the first page.
fn before(client: &str, ids: &[&str], waiters: u64, is_last: bool) -> String {
    match ids.iter().position(|id| id.starts_with(client)) {
        Some(before) => format!("{before} before you"),
        None if is_last => format::with_noun(waiters, "waits", "wait"),
        None => format!("more than {} before you", ids.len()),
    }
}
