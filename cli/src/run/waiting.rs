//! The line that is shown during a wait: who holds the lock, and how many wait before this client.

use std::convert::Infallible;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rwlease::{SemaphoreStatus, Status};
use tokio::time::sleep;

use super::held::Wanted;
use crate::show;

/// Nothing is shown if the lock is granted within this time.
const AT_ONCE: Duration = Duration::from_millis(300);
const FROM_LOOK_TO_LOOK: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(100);

/// Returns the request's output. Until then it shows a spinner, on a terminal only. The ids of this
/// client's acquisitions begin with `client`.
pub async fn shown<T>(
    client: String,
    wanted: &Wanted,
    quiet: bool,
    request: impl Future<Output = T>,
) -> T {
    if quiet || !stderr().is_terminal() {
        return request.await;
    }
    let style = ProgressStyle::with_template("{spinner} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner =
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
    let output = tokio::select! {
        output = request => output,
        never = tell(&client, wanted, &spinner) => match never {},
    };
    spinner.finish_and_clear();
    output
}

async fn tell(client: &str, wanted: &Wanted, spinner: &ProgressBar) -> Infallible {
    sleep(AT_ONCE).await;
    spinner.enable_steady_tick(TURN);
    loop {
        let seen = match wanted {
            Wanted::Lock(lock) => {
                lock.status().await.map(|status| in_words(lock.name(), client, &status))
            }
            Wanted::Permits(semaphore, _) => {
                let status = semaphore.status().await;
                status.map(|status| permits_in_words(semaphore.name(), client, &status))
            }
        };
        if let Ok(message) = seen {
            spinner.set_message(message);
        }
        sleep(FROM_LOOK_TO_LOOK).await;
    }
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
