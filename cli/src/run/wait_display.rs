//! The line that is shown during a wait: who holds the lock, how many wait before this client, or
//! why the servers cannot tell.

use std::convert::Infallible;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rwlease::{SemaphoreStatus, Status};
use tokio::time::{sleep, timeout};

use super::RELEASE_TIMEOUT;
use super::held::LockTarget;
use crate::exit::{CliError, print_error};
use crate::format;

/// Nothing is shown if the lock is granted within this time.
const DISPLAY_DELAY: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same where only trouble is told, to spare the servers.
const HIDDEN_POLL_INTERVAL: Duration = Duration::from_secs(30);
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

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
    let output = tokio::select! {
        output = request => output,
        never = watch(&client, wanted, &spinner) => match never {},
    };
    spinner.finish_and_clear();
    output
}

async fn watch(client: &str, wanted: &LockTarget, spinner: &ProgressBar) -> Infallible {
    sleep(DISPLAY_DELAY).await;
    let on_terminal = !spinner.is_hidden();
    if on_terminal {
        spinner.enable_steady_tick(SPINNER_INTERVAL);
    }
    let mut in_trouble = false;
    loop {
        match wait_status(client, wanted).await.map_err(CliError::from) {
            Ok(message) => {
                in_trouble = false;
                spinner.set_message(message);
            }
            Err(failure) if failure.is_transient() => {
                let message = format!("still waiting: {failure}");
                if !on_terminal && !in_trouble {
                    print_error(&message);
                }
                in_trouble = true;
                spinner.set_message(format::escape_controls(&message));
            }
            // The request usually ends with it.
            Err(_) => {}
        }
        sleep(if on_terminal { POLL_INTERVAL } else { HIDDEN_POLL_INTERVAL }).await;
    }
}

/// Returns true if the servers answer a query at once.
pub async fn is_answered(wanted: &LockTarget) -> bool {
    timeout(RELEASE_TIMEOUT, wait_status("", wanted)).await.is_ok_and(|answer| answer.is_ok())
}

/// Queries the state of what is waited for.
async fn wait_status(client: &str, wanted: &LockTarget) -> rwlease::Result<String> {
    Ok(match wanted {
        LockTarget::Lock(lock) => describe_lock(lock.name(), client, &lock.status().await?),
        LockTarget::Permits(semaphore, _) => {
            describe_semaphore(semaphore.name(), client, &semaphore.status().await?)
        }
    })
}

fn describe_lock(name: &str, client: &str, status: &Status) -> String {
    let holder = match (&status.writer, &status.reading[..]) {
        (None, []) => "nobody holds it".to_owned(),
        (Some(writer), _) => {
            format!("{} has written for {}", writer.id, format::duration(writer.age))
        }
        (None, [reader]) => format!("{} has read for {}", reader.id, format::duration(reader.age)),
        (None, [first, ..]) => {
            format!("{} and {} more are reading", first.id, status.reading.len() - 1)
        }
    };
    let before = match waiters_ahead(client, status) {
        Some(before) => format!("{before} before you"),
        None if status.is_last() => format::with_noun(status.waiters, "waits", "wait"),
        None => format!("more than {} before you", status.waiting.len()),
    };
    format!("waiting for {}: {holder}, {before}", format::escape_controls(name))
}

fn describe_semaphore(name: &str, client: &str, status: &SemaphoreStatus) -> String {
    let limit = status.limit.unwrap_or(0);
    let before = status.waiting.iter().position(|waiter| waiter.id.starts_with(client));
    let before = match before {
        Some(before) => format!("{before} before you"),
        None if status.is_last() => format::with_noun(status.waiters, "waits", "wait"),
        None => format!("more than {} before you", status.waiting.len()),
    };
    let in_use = status.in_use;
    format!(
        "waiting for {}: {in_use} of {limit} permits are in use, {before}",
        format::escape_controls(name)
    )
}

/// How many of the listed waiters are before this client.
fn waiters_ahead(client: &str, status: &Status) -> Option<usize> {
    status.waiting.iter().position(|waiter| waiter.id.starts_with(client))
}
