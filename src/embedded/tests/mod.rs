//! Tests of the engine as a whole.

mod faults;
mod replication;
mod subscriptions;

use futures::FutureExt;
use rwlease_core::resp::{Command, RespValue};

fn words<W: AsRef<[u8]>>(words: &[W]) -> Command {
    Command::from_words(words)
}

/// The output of a future that is ready.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the engine answers at once")
}

fn text(text: &str) -> RespValue {
    RespValue::String(text.to_owned().into())
}
