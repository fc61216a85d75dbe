//! The embedded engine does as a real server does, and the fast paths of the scripts do as the slow
//! path: both get the same commands, and their answers are compared.

mod engine;
mod equals_server;
mod judge;
mod moves_equal_server;
mod pure_step;
mod random_calls;
mod real;
mod scripts_equal_server;
mod side;
mod twin;

use futures::FutureExt;

/// The words of a command.
type Words = Vec<Vec<u8>>;

/// The output of a future that is ready.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the engine answers at once")
}
