//! A lock's hash, read from a server without the library.

use std::collections::BTreeMap;

use oracle::LockHash;
use redis::cmd;

use super::{Result, Server};

/// The beginning of a script that needs the expiry of `KEYS[1]`: its `expire_time` is what
/// `PEXPIRETIME` returns, which Redis 6.2 does not have.
pub const EXPIRE_TIME: &str = "\
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local before, left
repeat
  before, left = now(), redis.call('PTTL', KEYS[1])
until before == now()
local expire_time = left < 0 and left or before + left
";

/// The lock with this key.
pub async fn lock_hash(server: &Server, key: &str) -> Result<LockHash> {
    Ok(decode_lock(server.run(cmd("HGETALL").arg(key)).await?))
}

/// The lock with this key, at a server that may be importing its slot.
pub async fn lock_hash_asking(server: &Server, key: &str) -> Result<LockHash> {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore().cmd("HGETALL").arg(key);
    let (read,) = asking.query_async(&mut server.connect().await?).await?;
    Ok(decode_lock(read))
}

/// The lock with these fields, as if no time had passed.
pub fn decode_lock(fields: BTreeMap<String, String>) -> LockHash {
    LockHash::decode(fields, None, 0)
}
