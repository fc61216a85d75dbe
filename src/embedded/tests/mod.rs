//! Tests of the engine as a whole.

mod equals_server;
mod faults;
mod judge;
mod moves_equal_server;
mod pure_step;
mod random_calls;
mod real;
mod replication;
mod scripts_equal_server;
mod subscriptions;
mod throughput;
mod twin;

use futures::FutureExt;

use crate::backend::Command;

fn words<W: AsRef<[u8]>>(words: &[W]) -> Command {
    words.iter().fold(Command::new(), |all, word| all.arg(word))
}

/// The output of a future that is ready.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the engine answers at once")
}
