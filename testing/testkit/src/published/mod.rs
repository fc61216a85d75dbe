//! The published locks that this project learned from, reimplemented with their faults: to show the
//! faults, and to interoperate with fleets that still use them.

mod single_hash;
mod two_keys;

pub use single_hash::{SingleHash, Timeouts};
pub use two_keys::TwoKeys;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ToRedisArgs, cmd};

use super::Result;

async fn eval<T: FromRedisValue>(
    connection: &MultiplexedConnection,
    script: &str,
    keys: &[&str],
    arguments: impl ToRedisArgs,
) -> Result<T> {
    let mut command = cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    Ok(command.query_async(&mut connection.clone()).await?)
}
