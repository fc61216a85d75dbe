//! Which parts of a reply must be equal.

use rwlease_core::resp::{RespValue, ServerError};

use crate::real::RealConnection;

#[derive(Clone)]
pub struct Judge {
    /// Such as `redis 7.0.15`.
    pub server: String,
    /// The real server has the version that the engine imitates. The texts of errors and the form
    /// of numbers differ between versions.
    pub is_same_version: bool,
}

impl Judge {
    pub fn of(real: &mut RealConnection) -> Self {
        let RespValue::String(info) = real.query(&["INFO", "server"]) else {
            panic!("no INFO");
        };
        let info = String::from_utf8_lossy(&info);
        let version = |of: &str| info.lines().find_map(|line| line.strip_prefix(of));
        let server = match (version("valkey_version:"), version("redis_version:")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, version) => format!("redis {}", version.unwrap_or("?")),
        };
        Judge { is_same_version: server == "redis 7.0.15", server }
    }

    /// Redis 6.2.
    pub fn is_old(&self) -> bool {
        self.server.starts_with("redis 6.")
    }

    /// A reply without the parts that may differ: the place of an error, and between versions its
    /// text.
    pub fn essence(&self, reply: RespValue) -> RespValue {
        match reply {
            RespValue::Array(items) => {
                RespValue::Array(items.into_iter().map(|item| self.essence(item)).collect())
            }
            RespValue::Error(error) => RespValue::Error(self.essence_of_error(error)),
            RespValue::String(text) if !self.is_same_version && text.starts_with(b"ERR ") => {
                RespValue::String(text.slice(..3))
            }
            other => other,
        }
    }

    fn essence_of_error(&self, error: ServerError) -> ServerError {
        let ServerError { code, message: detail } = error;
        let detail = match code.as_str() {
            "MOVED" | "ASK" => detail,
            _ if code.starts_with("LOCK") => detail, // the script's own words
            _ if !self.is_same_version => String::new(),
            _ => detail.split(" script: ").next().unwrap_or_default().to_owned(),
        };
        ServerError { code, message: detail }
    }
}
