//! Keys beside a lock, in its slot, so that a move of the slot takes a while.

use redis::cmd;
use testkit::{Result, Server};

const COUNT: usize = 20_000;

/// One script: thousands of keys in one call.
const FILL: &str = "for i = 1, ARGV[2] do redis.call('SET', '{' .. ARGV[1] .. '}bulk' .. i, string.rep('x', 200), 'EX', 600) end";
const REMOVE: &str =
    "for i = 1, ARGV[2] do redis.call('UNLINK', '{' .. ARGV[1] .. '}bulk' .. i) end";

pub async fn fill(node: &Server, lock: &str) -> Result {
    run(node, FILL, lock).await
}

pub async fn remove(node: &Server, lock: &str) -> Result {
    run(node, REMOVE, lock).await
}

async fn run(node: &Server, script: &str, lock: &str) -> Result {
    node.run(cmd("EVAL").arg(script).arg(1).arg(lock).arg(lock).arg(COUNT)).await
}
