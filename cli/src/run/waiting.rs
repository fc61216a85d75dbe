//! The line that is shown during a wait: who holds the lock, how many wait before this client, or
//! why the servers cannot tell.

use std::convert::Infallible;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rwlease::{SemaphoreStatus, Status};
use tokio::time::{sleep, timeout};

use super::GIVING_BACK;
use super::held::Wanted;
use crate::exit::{Failure, tell};
use crate::show;

/// Nothing is shown if the lock is granted within this time.
const AT_ONCE: Duration = Duration::from_millis(300);
const FROM_LOOK_TO_LOOK: Duration = Duration::from_secs(1);
/// The same where only trouble is told, to spare the servers.
const UNSEEN: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_millis(100);

/// Returns the request's output. Until then it shows a spinner on a terminal. Elsewhere it prints
/// one line when trouble of the servers begins. The ids of this client's acquisitions begin with
/// `client`.
pub async fn shown<T>(
    client: String,
    wanted: &Wanted,
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

async fn watch(client: &str, wanted: &Wanted, spinner: &ProgressBar) -> Infallible {
    sleep(AT_ONCE).await;
    let on_terminal = !spinner.is_hidden();
    if on_terminal {
        spinner.enable_steady_tick(TURN);
    }
    let mut in_trouble = false;
    loop {
        match look(client, wanted).await.map_err(Failure::from) {
            Ok(message) => {
                in_trouble = false;
                spinner.set_message(message);
            }
            Err(failure) if failure.may_pass() => {
                let message = format!("still waiting: {failure}");
                if !on_terminal && !in_trouble {
                    tell(&message);
                }
                in_trouble = true;
                spinner.set_message(show::plain(&message));
            }
            // The request usually ends with it.
            Err(_) => {}
        }
        sleep(if on_terminal { FROM_LOOK_TO_LOOK } else { UNSEEN }).await;
    }
}

/// Returns true if the servers answer a query at once.
pub async fn is_answered(wanted: &Wanted) -> bool {
    timeout(GIVING_BACK, look("", wanted)).await.is_ok_and(|answer| answer.is_ok())
}

/// Queries the state of what is waited for.
async fn look(client: &str, wanted: &Wanted) -> rwlease::Result<String> {
    Ok(match wanted {
        Wanted::Lock(lock) => in_words(lock.name(), client, &lock.status().await?),
        Wanted::Permits(semaphore, _) => {
            permits_in_words(semaphore.name(), client, &semaphore.status().await?)
        }
    })
}

fn in_words(name: &str, client: &str, status: &Status) -> String {
    let holder = match (&status.writer, &status.reading[..]) {
        (None, []) => "nobody holds it".to_owned(),
        (Some(writer), _) => format!("{} has written for {}", writer.id, show::time(writer.age)),
        (None, [reader]) => format!("{} has read for {}", reader.id, show::time(reader.age)),
        (None, [first, ..]) => {
            format!("{} and {} more are reading", first.id, status.reading.len() - 1)
        }
    };
    let before = match place(client, status) {
        Some(before) => format!("{before} before you"),
        None if status.is_last() => show::count(status.waiters, "waits", "wait"),
        None => format!("more than {} before you", status.waiting.len()),
    };
    format!("waiting for {}: {holder}, {before}", show::plain(name))
}

fn permits_in_words(name: &str, client: &str, status: &SemaphoreStatus) -> String {
    let limit = status.limit.unwrap_or(0);
    let before = status.waiting.iter().position(|waiter| waiter.id.starts_with(client));
    let before = match before {
        Some(before) => format!("{before} before you"),
        None if status.is_last() => show::count(status.waiters, "waits", "wait"),
        None => format!("more than {} before you", status.waiting.len()),
    };
    let in_use = status.in_use;
    format!("waiting for {}: {in_use} of {limit} permits are in use, {before}", show::plain(name))
}

/// How many of the listed waiters are before this client.
fn place(client: &str, status: &Status) -> Option<usize> {
    status.waiting.iter().position(|waiter| waiter.id.starts_with(client))
}
