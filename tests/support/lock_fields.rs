//! A lock's hash, read from a server without the library.

use std::collections::BTreeMap;

use redis::cmd;

use super::state_line::expand_line;
use super::{Error, Result, Server};

pub type Fields = BTreeMap<String, String>;

/// The fields of the lock with this key, as if each part of its line had its own field.
pub async fn fields(server: &Server, key: &str) -> Result<Fields> {
    expand_fields(&server.run(cmd("HGETALL").arg(key)).await?)
}

/// The same for fields that were read before.
pub fn expand_fields(read: &Fields) -> Result<Fields> {
    expand_line(read).map_err(Error::new)
}
