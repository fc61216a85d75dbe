//! Tests of the engine as a whole.

mod faults;
mod replication;
mod subscriptions;

use futures::FutureExt;
use rwlease_core::resp::{Command, RespValue};

use crate::link::{CommandLink, LinkError};

fn words<W: AsRef<[u8]>>(words: &[W]) -> Command {
    Command::from_words(words)
}

/// The output of a future that is ready.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the engine answers at once")
}

/// Sends one command, at the first poll.
async fn call(link: &CommandLink, command: Command) -> Result<RespValue, LinkError> {
    let mut replies = link.send(&[command]).await?;
    Ok(replies.pop().expect("a reply"))
}

fn text(text: &str) -> RespValue {
    RespValue::String(text.to_owned().into())
}
